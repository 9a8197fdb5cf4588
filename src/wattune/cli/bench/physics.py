"""Rows of `wattune bench physics` for people: one table for all rows that were fitted and judged alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from wattune.benchmarks.result import Row
from wattune.cli.output import console


def show_rows(rows: Sequence[Row]) -> None:
    """Nothing; the rows are printed."""
    published = [row for row in rows if "inside" in row]
    fitted = [row for row in rows if "inside" not in row]
    for (fitted_on, judged_on, source), alike in groupby(fitted, key=_kind):
        _show_fits(list(alike), title=f"fitted on {fitted_on}; judged on {judged_on} ({source})")
    _show_published(published)


def _kind(row: Row) -> tuple[str, str, str]:
    return row["fitted_on"], row["judged_on"], row["source"]


def _show_fits(rows: Sequence[Row], *, title: str) -> None:
    from rich.table import Table

    screen = console()
    screen.print(title, style="bold", markup=False)
    table = Table("dataset", "quantity", box=None, pad_edge=False, header_style="dim")
    for head in ("error %", str(rows[0]["baseline"]), "floor", "goal"):
        table.add_column(head, justify="right")
    for row in rows:
        figures = (row[name] for name in ("mape_percent", "baseline_percent", "noise_floor_percent", "goal_percent"))
        table.add_row(row["dataset"], row["quantity"], *(_figure(figure) for figure in figures))
    screen.print(table)
    screen.print()


def _show_published(rows: Sequence[Row]) -> None:
    from rich.table import Table

    screen = console()
    screen.print("published outcomes beside those of the simulated GPUs of the catalogue", style="bold")
    table = Table("GPU", "outcome", "workloads", box=None, pad_edge=False, header_style="dim")
    for head in ("published", "ours"):
        table.add_column(head, justify="right")
    table.add_column("")
    table.add_column("source")
    for row in rows:
        span = f"{row['published_low']:g} to {row['published_high']:g}"
        verdict = "inside" if row["inside"] else "outside"
        table.add_row(
            row["dataset"], row["quantity"], row["judged_on"], span, _figure(row["ours"]), verdict, row["source"]
        )
    screen.print(table)
    screen.print()


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
