"""How benches are shown to people: tables, goals, a progress bar, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattune._version import __version__
from wattune.benchmarks.result import Bench
from wattune.cli.output import check_writable, console, print_json, stderr_console, write_text
from wattune.core.errors import InputError

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
        table.add_column(head, justify="left" if words else "right", overflow="fold", min_width=_widest(head))
    for row in rows:
        table.add_row(*(cell(row[name], (formats or {}).get(name, digits)) for name in heads))
    screen.print(table)
    screen.print()


def _widest(head: str) -> int:
    return max((len(word) for word in head.split()), default=0)


def cell(value: object, digits: str = ".4g") -> str:
    """Format a value for people."""
    if value is None:
        return "not measured"
    return format(value, digits) if isinstance(value, float) else str(value)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on standard error, updated by what is yielded; without a terminal there is none."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    screen = stderr_console()
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda step, done, of: bar.update(task, description=step, completed=done, total=of)


def print_progress(line: str) -> None:
    """Print what is being done to standard error."""
    stderr_console().print(line, markup=False, soft_wrap=True)


def check_picture(plot: Path | None) -> None:
    """Refuse a picture that cannot be written before the bench is played rather than after it."""
    if plot is None:
        return
    if plot.suffix not in (".html", ".svg"):
        raise InputError(f"cannot plot to {plot}", hint="name a file that ends with .html or .svg")
    check_writable(plot)


def draw(plot: Path, picture: Callable[[str], str]) -> None:
    """Write a picture, made from a line that says when and by which version it was drawn."""
    write_text(plot, picture(f"Made by wattune {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."))
    print_progress(f"plot written to {plot}")
