"""Tables of single benches for people."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from wattune.benchmarks.result import Bench, Row
from wattune.cli.bench.output import Rows, show_table
from wattune.cli.output import console

_RUN_WORST = 12
_RUN_COLUMNS = (
    "workload",
    "seed",
    "saving_percent",
    "oracle_saving_percent",
    "slowdown_percent",
    "windows",
    "changes",
    "held",
)

_JOB_TITLES = {
    "workloads": "regret in percent of the oracle's cost after so many recurrences",
    "policies": "means over workloads",
    "eta": "other weights of energy, η",
    "drift": "the job changes half way",
    "overlap": "overlapping submissions",
    "transfer": "what another GPU has taught",
}
_JOB_HEADS = {
    "regret_first_5_percent": "5",
    "regret_first_10_percent": "10",
    "regret_first_20_percent": "20",
    "regret_percent": "all",
    "worst_of_default": "of default",
    "seeds_above_percent": "above",
    "energy_saving_percent": "saved %",
    "energy_saving_least_percent": "saved %, least",
    "energy_saving_most_percent": "most",
    "after_5_percent": "5 after",
    "seeds_given_up": "stuck",
}
_JOB_LEFT_OUT = {
    "drift": ("regret_first_5_percent", "regret_first_10_percent", "regret_first_20_percent"),
    "transfer": ("policy", "regret_percent", "worst_of_default", "seeds_above_percent", "energy_saving_percent"),
}
"""Columns that mean nothing in a section: from before the change, or without a peer to compare with."""

_JOB_LEGEND = (
    "5, 10, 20, all: regret after so many recurrences; of default: cumulative cost as a multiple of the default's, at "
    "the worst moment of the worst seed; above: percent of seeds that exceed 1.05; saved: energy against the "
    "default; 5 after: cost of a run above the new oracle's, in percent, from the fifth after the change on; stuck: "
    "seeds that gave up."
)


def run_tables(bench: Bench) -> None:
    """Print means per policy, and our runs that are furthest from the oracle."""
    show_table("means over all runs (simulated)", bench.figures["policies"], digits=".1f")
    ours = [row for row in bench.rows if row["policy"] == "wattune"]
    furthest = sorted(ours, key=lambda row: row["saving_percent"] - row["oracle_saving_percent"])[:_RUN_WORST]
    heads = {name: name.replace("_", " ") for name in _RUN_COLUMNS}
    show_table("wattune's runs that are furthest from the oracle", furthest, heads=heads, digits=".1f")


def job_tables(bench: Bench) -> None:
    """Print a table for each section that was played."""
    for section, title in _JOB_TITLES.items():
        rows: Rows = bench.figures.get(section, ())
        for gpu in dict.fromkeys(row["gpu"] for row in rows):
            some = [_short_name(row) for row in rows if row["gpu"] == gpu]
            left_out = {"recurrences", "workloads", "gpu", *_JOB_LEFT_OUT.get(section, ())}
            if not any(row.get("seeds_given_up") for row in some):
                left_out.add("seeds_given_up")
            heads = {name: _JOB_HEADS.get(name, name.replace("_", " ")) for name in some[0] if name not in left_out}
            formats = {"worst_of_default": ".3f", "eta": "g", "load": "g"}
            show_table(f"{gpu}: {title}", some, heads=heads, formats=formats, digits=".1f")
    console().print(_JOB_LEGEND, markup=False, style="dim")


def _short_name(row: Row) -> dict[str, Any]:
    return {**row, "workload": row["workload"].split()[0]} if "workload" in row else dict(row)


def physics_tables(bench: Bench) -> None:
    """Print one table for all rows that were fitted and judged alike, and one for published outcomes."""
    fitted = [row for row in bench.rows if "inside" not in row]
    for (fitted_on, judged_on, source), alike in groupby(
        fitted, key=lambda row: (row["fitted_on"], row["judged_on"], row["source"])
    ):
        rows = list(alike)
        heads = {
            "dataset": "dataset",
            "quantity": "quantity",
            "mape_percent": "error %",
            "baseline_percent": str(rows[0]["baseline"]),
            "noise_floor_percent": "floor",
            "goal_percent": "goal",
        }
        title = f"fitted on {fitted_on}; judged on {judged_on} ({source})"
        show_table(title, rows, heads=heads, digits=".2f")
    published = [
        {
            **row,
            "published": f"{row['published_low']:g} to {row['published_high']:g}",
            "verdict": "inside" if row["inside"] else "outside",
        }
        for row in bench.rows
        if "inside" in row
    ]
    heads = {
        "dataset": "GPU",
        "quantity": "outcome",
        "judged_on": "workloads",
        "published": "published",
        "ours": "ours",
        "verdict": "",
        "source": "source",
    }
    show_table(
        "published outcomes beside those of the simulated GPUs of the catalogue", published, heads=heads, digits=".2f"
    )
