"""`wattune bench NAME`: wattune beside its peers, in one run."""

from __future__ import annotations

from typing import Any

import click

from wattune.benchmarks.result import Bench, Goal
from wattune.cli.output import console, json_option, print_json


@click.group()
def command() -> None:
    """Measure wattune itself side by side with its peers.

    Each bench runs the peer in the same run and on the same input, and prints ratios. Peers come with
    `pip install 'wattune[bench]'`; a peer that is missing is named, not guessed.
    """


@command.command()
@click.option("--quick", is_flag=True, help="Fewer repetitions, for a first look.")
@json_option
def meter(quick: bool, as_json: bool) -> None:
    """Cost and accuracy of a measured span against ZeusMonitor's window, on the emulated library."""
    from wattune.benchmarks.meter import bench_meter
    from wattune.config import load_config

    show(bench_meter(cache_dir=load_config().cache_dir, quick=quick), as_json=as_json)


def show(bench: Bench, *, as_json: bool) -> None:
    """Nothing; the outcome is printed, for programs or for people."""
    if as_json:
        print_json(bench.document)
        return
    from rich.table import Table

    screen = console()
    label = " (simulated GPUs)" if bench.simulated else ""
    for columns, rows in _alike(bench.rows):
        table = Table(*columns, title=f"bench {bench.bench}{label}", title_justify="left", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*(_cell(row[column]) for column in columns))
        screen.print(table)
        screen.print()
    for goal in bench.goals:
        screen.print(f"{_mark(goal)} {goal.name}: {_cell(goal.value)} (goal {goal.goal})", soft_wrap=True)
    for note in bench.notes:
        screen.print(note, markup=False, soft_wrap=True)


def _alike(rows: tuple[Any, ...]) -> list[tuple[tuple[str, ...], list[Any]]]:
    """The rows grouped by their columns, in order of appearance."""
    groups: dict[tuple[str, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return list(groups.items())


def _cell(value: object) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _mark(goal: Goal) -> str:
    return {True: "[green]met[/]   ", False: "[red]missed[/]", None: "[yellow]open[/]  "}[goal.met]
