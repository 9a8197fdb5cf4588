"""Output of benches for people: tables, goals and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from wattune.cli.output import check_writable, console, made_line, print_json, remark, write_text
from wattune.core.errors import InputError
from wattune_bench.result import Bench, Row

Rows = Sequence[Mapping[str, Any]]

_MARKS = {True: "[green]met[/]   ", False: "[red]missed[/]", None: "[yellow]open[/]  "}


def show(bench: Bench, *, as_json: bool, tables: Callable[[Bench], None] | None = None) -> None:
    """Print a bench as one JSON document, or for people: its tables, all rows where none are given, and its goals."""
    if as_json:
        print_json(bench.document)
        return
    (tables or _all_rows)(bench)
    screen = console()
    for goal in bench.goals:
        screen.print(f"{_MARKS[goal.met]} {goal.name}: {cell(goal.value)} (goal {goal.goal})", soft_wrap=True)
        if goal.note:
            screen.print(f"       note: {goal.note}", markup=False, soft_wrap=True)
    for note in bench.notes:
        screen.print(note, markup=False, soft_wrap=True)


def _all_rows(bench: Bench) -> None:
    """Print one table for all rows that have the same columns."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in bench.rows:
        groups.setdefault(tuple(row), []).append(row)
    label = " (simulated GPUs)" if bench.simulated else ""
    for rows in groups.values():
        show_table(f"bench {bench.bench}{label}", rows)


def show_table(
    title: str,
    rows: Rows,
    *,
    heads: Mapping[str, str] | None = None,
    formats: Mapping[str, str] | None = None,
    digits: str = ".4g",
) -> None:
    """Print rows as a table.

    `heads` names the columns to print, in order, with their headings; without it every column is printed. `formats` has
    the format of the numbers of a column where that is not `digits`.
    """
    from rich.table import Table

    if not rows:
        return
    # Blanks for underscores, so that a narrow terminal breaks a heading between words and does not cut it.
    heads = heads or {name: name.replace("_", " ") for name in rows[0]}
    screen = console()
    screen.print(title, style="bold", markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, head in heads.items():
        words = any(isinstance(row[name], str) for row in rows)
        texts = [str(row[name]) for row in rows] if words else []
        widest = max((len(word) for text in (head, *texts) for word in text.split()), default=0)
        widest = min(widest, max(_LONGEST, *map(len, head.split() or [""])))
        table.add_column(head, justify="left" if words else "right", overflow="fold", min_width=widest)
    for row in rows:
        table.add_row(*(cell(row[name], (formats or {}).get(name, digits)) for name in heads))
    screen.print(table)
    screen.print()


_LONGEST = 12
"""Letters of a word that a narrow terminal does not break; paths and names of own policies may be longer."""


def cell(value: object, digits: str = ".4g") -> str:
    """Format a value for people."""
    if value is None:
        return "not measured"
    return format(value, digits) if isinstance(value, float) else str(value)


def check_picture(plot: Path | None) -> None:
    """Refuse a picture that cannot be written before the bench is played rather than after it."""
    if plot is None:
        return
    if plot.suffix not in (".html", ".svg"):
        raise InputError(f"cannot plot to {plot}", hint="name a file that ends with .html or .svg")
    check_writable(plot)


def draw(plot: Path, picture: Callable[[str], str]) -> None:
    """Write a picture, made from a line that says when and by which version it was drawn."""
    write_text(plot, picture(made_line()))
    remark(f"plot written to {plot}")


_RUN_WORST = 12
_RUN_COLUMNS = "workload seed saving_percent oracle_saving_percent slowdown_percent windows changes held"

_JOB_TITLES = {
    "workloads": "regret in percent of the oracle's cost after so many recurrences",
    "policies": "means over workloads",
    "eta": "other weights of energy, η",
    "drift": "the job changes half way",
    "overlap": "overlapping submissions",
    "transfer": "what another GPU has taught",
    "unseen": "made up from a public table",
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


_SWEEP_HEADS = {
    "table": "table",
    "settings": "settings",
    "runs": "runs",
    "saving_percent": "saving %",
    "of_single_percent": "of best single %",
    "of_mixture_percent": "of best two %",
    "promise_kept_percent": "within limit %",
}


def run_tables(bench: Bench) -> None:
    """Print means per policy, ours on each table, and our runs that are furthest from the oracle."""
    show_table("means over all runs (simulated)", bench.figures["policies"], digits=".1f")
    if "tables" in bench.figures:
        title = "wattune on each table: saving, and its share of what the best single setting and the best two save"
        show_table(
            title, bench.figures["tables"], heads=_SWEEP_HEADS, formats={"settings": "g", "runs": "g"}, digits=".1f"
        )
    ours = [row for row in bench.rows if row["policy"] == "wattune"]
    furthest = sorted(ours, key=lambda row: row["saving_percent"] - row["oracle_saving_percent"])[:_RUN_WORST]
    heads = {name: name.replace("_", " ") for name in _RUN_COLUMNS.split()}
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


def short_job_tables(bench: Bench) -> None:
    """Print what runs of short jobs cost."""
    heads = {
        "gpu": "GPU",
        "length_s": "run s",
        "of_default": "of default",
        "of_oracle": "of oracle",
        "last_of_default": "last run of default",
        "last_of_oracle": "last run of oracle",
        "batch_sizes_tried": "sizes tried",
    }
    formats = {"length_s": "g", "batch_sizes_tried": "g"}
    title = "simulated: ten runs of a short job, learning included"
    show_table(title, bench.rows, heads=heads, formats=formats, digits=".3f")


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


_LAYER_LIMITS = (0.5, 5.0)
"""Slowdown limits of the tables on the screen; JSON has all."""


def layers_tables(bench: Bench) -> None:
    """Print energy per strategy over latencies, then the rows of the other sections, those of kernels averaged."""
    thesis = [row for row in bench.rows if "slowdown_limit_percent" in row and "strategy" in row]
    shown = [row for row in thesis if row["slowdown_limit_percent"] in _LAYER_LIMITS]
    keys = ("model", "gpu", "scope", "slowdown_limit_percent")
    for key, group in groupby(sorted(shown, key=lambda row: row["slowdown_limit_percent"]), key=_picked(keys)):
        lines = [
            {"switching": way, "ms": 1000 * latency_s} | {row["strategy"]: _layer_cell(row) for row in own}
            for (way, latency_s), own in groupby(group, key=_picked(("switching", "switch_latency_s")))
        ]
        title = "{} on {}, {}: energy in % of the default within {:g} % slowdown, switches per step".format(*key)
        show_table(f"{title} (simulated)", lines, digits="g")
    if shown:
        console().print("A plan that misses the limit shows its time: +32% t.", markup=False, style="dim")
    kernels = [row for row in bench.rows if "predictor" in row]
    others = [row for row in bench.rows if row not in thesis and row not in kernels]
    _all_rows(replace(bench, rows=tuple(others)))
    means = []
    for (predictor, measured), group in groupby(
        sorted(kernels, key=_picked(("measured", "predictor"))), key=_picked(("predictor", "measured"))
    ):
        errors = [row["mape_percent"] for row in group]
        means.append(
            {"measured": measured, "predictor": predictor, "error %": sum(errors) / len(errors), "worst": max(errors)}
        )
    show_table("time of real kernels at pairs of clocks that were not measured, over seeds", means, digits=".2f")


def _picked(names: tuple[str, ...]) -> Callable[[Row], tuple[Any, ...]]:
    return lambda row: tuple(row[name] for name in names)


def _layer_cell(row: Row) -> str:
    if not row["within_limit"]:
        return f"{row['energy_percent']:+z.0f}, {row['time_percent']:+z.0f}% t"
    return f"{row['energy_percent']:+z.1f} ({row['switches']})"


_SYSTEM_HEADS = {
    "system": "system",
    "time_s": "s",
    "energy_j": "J per GPU",
    "time_off_percent": "off %",
    "energy_off_percent": "off % J",
    "time_reduction_percent": "faster %",
    "published_time_reduction_percent": "published",
    "equal_time_energy_percent": "J saved %",
    "published_equal_time_energy_percent": "published ",
    "measurements": "trials",
}
"""Columns of a configuration; `off` is the distance from the published figure."""


def kernels_tables(bench: Bench) -> None:
    """Print a table for each configuration, medians of searches, and the rows of the other sections."""
    systems = [row for row in bench.rows if "system" in row]
    for config in dict.fromkeys(row["config"] for row in systems):
        rows = [{name: row.get(name) for name in _SYSTEM_HEADS} for row in systems if row["config"] == config]
        shown = {name: head for name, head in _SYSTEM_HEADS.items() if any(row[name] is not None for row in rows)}
        blank = [{name: "" if row[name] is None else row[name] for name in shown} for row in rows]
        show_table(f"{config} (simulated)", blank, heads=shown, formats={"time_s": ".3f"}, digits=".1f")
    searches = [row for row in bench.rows if "search" in row and "partition" in row]
    keys = ("partition", "search")
    means = []
    for (partition, name), group in groupby(sorted(searches, key=_picked(keys)), key=_picked(keys)):
        counts = sorted(row["measurements"] for row in group)
        means.append(
            {
                "partition": partition,
                "search": name,
                "median": float(counts[len(counts) // 2]),
                "90th percentile": float(counts[min(9 * len(counts) // 10, len(counts) - 1)]),
            }
        )
    show_table("measurements until the frontier is right", means, digits=".0f")
    others = tuple(row for row in bench.rows if row not in systems and row not in searches)
    _all_rows(replace(bench, rows=others))


_LIVE_HEADS = {
    "arm": "arm",
    "true_saving_percent": "saved %",
    "claimed_saving_percent": "claimed",
    "claimed_saving_percent_error": "±",
    "held_saving_percent": "holds",
    "true_slowdown_percent": "slower %",
    "claimed_slowdown_percent": "claimed ",
    "claimed_slowdown_percent_error": "± ",
    "held_slowdown_percent": "holds ",
    "contention_percent": "late %",
}
_LIVE_COST_HEADS = {
    "arm": "arm",
    "share_of_best_fixed_percent": "of best %",
    "process_cpu_percent": "core %",
    "load": "load",
}


def live_tables(bench: Bench) -> None:
    """Print what is true and claimed of each program on each GPU, then what it cost, then the means of each arm."""
    keys = ("gpu", "switching", "run", "workload", "best_fixed", "best_fixed_saving_percent")
    for (gpu, switching, run, workload, best, saving), group in groupby(bench.rows, key=_picked(keys)):
        rows = [{name: _live_cell(row[name]) for name in (*_LIVE_HEADS, *_LIVE_COST_HEADS)} for row in group]
        title = (
            f"{gpu} (simulated), {switching} switching, run {run}: {workload}; {best} held would save {saving:.2f} %"
        )
        show_table(title, rows, heads=_LIVE_HEADS)
        show_table("share of that, and the cost on the host", rows, heads=_LIVE_COST_HEADS)
    for row in bench.rows:
        if row["problem"]:
            remark(f"{row['gpu']}, {row['arm']}, run {row['run']}: {row['problem']}")
    arms = bench.figures["arms"]
    if len(bench.rows) > len(arms):
        rows = [{name: _live_cell(value) for name, value in row.items()} for row in arms]
        show_table("means of each arm (simulated)", rows)


def _live_cell(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    return cell(value, ".2f")
