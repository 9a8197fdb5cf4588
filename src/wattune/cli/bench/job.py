"""`wattune bench job` for people: a bar while it plays, and a table for each section."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattune._version import __version__
from wattune.benchmarks.job.bench import JobPlayed
from wattune.benchmarks.job.cases import SECTIONS
from wattune.benchmarks.result import Bench
from wattune.cli.output import check_writable, console, stderr_console, write_text
from wattune.core.errors import InputError

_TITLES = {
    "workloads": "regret in percent of the oracle's cost after so many recurrences",
    "policies": "means over workloads",
    "eta": "other weights of energy, η",
    "drift": "the job changes half way",
    "overlap": "overlapping submissions",
    "transfer": "what another GPU has taught",
}
_HEADS = {
    "regret_first_5_percent": "5",
    "regret_first_10_percent": "10",
    "regret_first_20_percent": "20",
    "regret_percent": "all",
    "worst_of_default": "of default",
    "energy_saving_percent": "saved %",
    "energy_saving_least_percent": "saved %, least",
    "energy_saving_most_percent": "most",
    "after_5_percent": "5 after",
    "seeds_given_up": "stuck",
}
_WORDS = ("workload", "gpu", "policy", "drift", "known_from")
_LEFT_OUT = ("recurrences", "workloads", "gpu")
_DULL = {
    "drift": ("regret_first_5_percent", "regret_first_10_percent", "regret_first_20_percent"),
    "transfer": ("policy", "regret_percent", "worst_of_default", "energy_saving_percent"),
}
"""Columns of a section that say nothing of it: what was before the change, or what there is nobody to compare with."""

_LEGEND = (
    "5, 10, 20, all: regret after so many recurrences; of default: cumulative cost as a multiple of the default's, at "
    "its worst moment; saved: energy against the default; 5 after: cost of a run above the new oracle's, in percent, "
    "from the fifth after the change on; stuck: seeds that gave up."
)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """What tells a bar on standard error how far the bench is; on no terminal there is none."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    screen = stderr_console()
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda step, done, of: bar.update(task, description=step, completed=done, total=of)


def show_sections(bench: Bench) -> None:
    """Nothing; a table for each section that was played is printed."""
    for name in ("workloads", "policies", *SECTIONS):
        rows = bench.figures.get(name, ())
        for gpu in dict.fromkeys(row["gpu"] for row in rows):
            _show(name, f"{gpu}: {_TITLES[name]}", [row for row in rows if row["gpu"] == gpu])
    console().print(_LEGEND, markup=False, style="dim")


def check_picture(plot: Path | None, sections: Sequence[str]) -> None:
    """Nothing, where the picture can be drawn and written; better to know before playing than after."""
    if plot is None:
        return
    if plot.suffix not in (".html", ".svg"):
        raise InputError(f"cannot plot to {plot}", hint="name a file that ends with .html or .svg")
    if sections and "horizon" not in sections:
        raise InputError("pictures are of the horizon, which is not played", hint="add --section horizon")
    check_writable(plot)


def draw(plot: Path, played: JobPlayed, bench: Bench) -> None:
    """Nothing; the page, or its first picture, is in the file."""
    from wattune.benchmarks.job.page import job_bench_file, pictured

    made = f"Made by wattune {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    write_text(plot, job_bench_file(pictured(played, bench, made=made), suffix=plot.suffix))
    stderr_console().print(f"plot written to {plot}", soft_wrap=True, markup=False)


def _show(section: str, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table

    screen = console()
    screen.print(title, style="bold", markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    shown = [name for name in rows[0] if name not in (*_LEFT_OUT, *_DULL.get(section, ()), *_never_stuck(rows))]
    for name in shown:
        head = _HEADS.get(name, name.replace("_", " "))
        if name in _WORDS:
            table.add_column(head, no_wrap=True)
        else:
            table.add_column(head, justify="right", min_width=max(map(len, head.split())))
    for row in rows:
        table.add_row(*(_cell(name, row[name]) for name in shown))
    screen.print(table)
    screen.print()


def _never_stuck(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return () if any(row.get("seeds_given_up") for row in rows) else ("seeds_given_up",)


def _cell(name: str, value: object) -> str:
    if value is None:
        return "–"
    if name == "workload":
        return str(value).split()[0]
    return f"{value:.3f}" if name == "worst_of_default" else f"{value:.1f}" if isinstance(value, float) else str(value)
