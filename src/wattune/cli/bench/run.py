"""`wattune bench run` for people: a bar while it plays, means per policy, the worst runs, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattune._version import __version__
from wattune.benchmarks.result import Bench
from wattune.benchmarks.run.bench import RunBench, bench_run
from wattune.benchmarks.run.pictures import run_picture
from wattune.benchmarks.run.policies import OURS
from wattune.benchmarks.run.table import TableBench, bench_table
from wattune.cli.bench.job import progress_bar
from wattune.cli.output import check_writable, console, print_json, stderr_console, write_text
from wattune.core.errors import InputError
from wattune.core.objective import parse_share

_SHOWN = 12
_COLUMNS = ("workload", "seed", "saving_percent", "oracle_saving_percent", "slowdown_percent", "evaluations", "held")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAsked:
    """What the command line asks for."""

    table: Path | None
    gpu: str
    seeds: int | None
    slowdown: str
    hours: float
    noise: str
    workloads: tuple[str, ...]
    policies: tuple[str, ...]
    processes: int
    plot: Path | None


def run_bench(asked: RunAsked, *, as_json: bool) -> None:
    """Nothing; the bench was played, printed and drawn."""
    if asked.plot is not None:
        _check_picture(asked.plot)
    bench = _simulated(asked) if asked.table is None else _recorded(asked, asked.table)
    if asked.plot is not None:
        _draw(asked.plot, bench)
    if as_json:
        print_json(bench.document)
    else:
        _show(bench)


def run_live(gpu: str, seconds: float, slowdown: str) -> Bench:
    """What the live loop took of a core."""
    from wattune.benchmarks.run.live import bench_live
    from wattune.config import load_config

    errors = stderr_console()
    return bench_live(
        gpu,
        seconds=seconds,
        slowdown=_share("--slowdown", slowdown),
        cache_dir=load_config().cache_dir,
        on_step=lambda step: errors.print(step, markup=False),
    )


def _simulated(asked: RunAsked) -> Bench:
    what = RunBench(
        gpu=asked.gpu,
        seeds=asked.seeds or 5,
        slowdown=_share("--slowdown", asked.slowdown),
        hours=asked.hours,
        workloads=asked.workloads,
        policies=asked.policies,
        processes=asked.processes,
    )
    with progress_bar() as on_step:
        return bench_run(what, on_step=on_step)


def _recorded(asked: RunAsked, table: Path) -> Bench:
    what = TableBench(
        table=table,
        seeds=asked.seeds or 20,
        slowdown=_share("--slowdown", asked.slowdown),
        noise=_share("--noise", asked.noise),
        workloads=asked.workloads,
        processes=asked.processes,
    )
    with progress_bar() as on_step:
        return bench_table(what, on_step=on_step)


def _share(option: str, text: str) -> float:
    try:
        return parse_share(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no share", hint="write 5% or 0.05") from None


def _check_picture(plot: Path) -> None:
    if plot.suffix not in (".html", ".svg"):
        raise InputError(f"cannot plot to {plot}", hint="name a file that ends with .html or .svg")
    check_writable(plot)


def _draw(plot: Path, bench: Bench) -> None:
    made = f"Made by wattune {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    write_text(plot, run_picture(bench, suffix=plot.suffix, made=made))
    stderr_console().print(f"plot written to {plot}", soft_wrap=True, markup=False)


def _show(bench: Bench) -> None:
    from wattune.cli.bench import show_goals

    _table("means over all runs (simulated)", bench.figures["policies"])
    ours = [row for row in bench.rows if row["policy"] == OURS]
    furthest = sorted(ours, key=lambda row: row["saving_percent"] - row["oracle_saving_percent"])[:_SHOWN]
    if furthest:
        _table(
            "wattune's runs that are furthest from the oracle",
            [{name: row[name] for name in _COLUMNS} for row in furthest],
        )
    show_goals(bench)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table

    screen = console()
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in rows[0]:
        words = isinstance(rows[0][name], str)
        table.add_column(name.replace("_", " "), justify="left" if words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    screen.print(table)
    screen.print()


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
