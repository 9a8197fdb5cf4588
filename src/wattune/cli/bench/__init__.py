"""`wattune bench NAME`: wattune beside its peers, in one run."""

from __future__ import annotations

from pathlib import Path
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


@command.command(short_help="Cost and accuracy of a measured span beside ZeusMonitor's.")
@click.option("--quick", is_flag=True, help="Fewer repetitions, for a first look.")
@json_option
def meter(quick: bool, as_json: bool) -> None:
    """Cost and accuracy of a measured span against ZeusMonitor's window, on the emulated library."""
    from wattune.benchmarks.meter.bench import bench_meter
    from wattune.config import load_config

    show(bench_meter(cache_dir=load_config().cache_dir, quick=quick), as_json=as_json)


@command.command(short_help="Fitted physics on public measurements that the fits have not seen.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of public measurements; WATTUNE_DATA otherwise.")
@json_option
def physics(data: Path | None, as_json: bool) -> None:
    """Errors of fitted physics on public measurements, cross-validated, and of the catalogue on published figures."""
    from wattune.benchmarks.physics.bench import bench_physics
    from wattune.cli.bench.physics import show_rows
    from wattune.cli.output import stderr_console
    from wattune.config import load_config

    errors = stderr_console()
    folder = data or load_config().data_dir
    bench = bench_physics(folder, on_file=lambda file: errors.print(f"fitting {file.name}", markup=False))
    if as_json:
        print_json(bench.document)
    else:
        show_rows(bench.rows)
        show_goals(bench)


@command.command(short_help="Pipeline frontiers beside lowtime's, their bounds and the published savings.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of public measurements; WATTUNE_DATA otherwise.")
@click.option("--quick", is_flag=True, help="The peer on 12 microbatches only, for a first look.")
@json_option
def pipeline(data: Path | None, quick: bool, as_json: bool) -> None:
    """Solve time, distance from the bound, and energy of pipeline plans against lowtime's and the published ones."""
    from wattune.benchmarks.pipeline.bench import bench_pipeline
    from wattune.cli.output import stderr_console
    from wattune.config import load_config

    folder = data or load_config().data_dir
    if folder is None:
        raise click.UsageError("give --data DIR or set WATTUNE_DATA: the bench needs stage profiles")
    errors = stderr_console()
    show(bench_pipeline(folder, quick=quick, on_step=lambda step: errors.print(step, markup=False)), as_json=as_json)


@command.command(short_help="Batch size and power limit of recurring jobs beside Zeus's choices.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of recorded tables; WATTUNE_DATA otherwise.")
@click.option("--gpu", "gpus", multiple=True, help="GPU of which there is a table; may be repeated; all otherwise.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="How often all is played.")
@click.option(
    "--eta", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Weight of energy in the cost."
)
@click.option("--workload", "workloads", multiple=True, help="Part of a workload's name; may be repeated.")
@click.option("--section", "sections", multiple=True, help="Play this part of it only; may be repeated.")
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that play.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it: FILE.html, or FILE.svg.")
@json_option
def job(
    data: Path | None,
    gpus: tuple[str, ...],
    seeds: int,
    eta: float,
    workloads: tuple[str, ...],
    sections: tuple[str, ...],
    processes: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Cost of recurring jobs under wattune, Zeus, grid search, the default and the oracle, replayed from tables."""
    from wattune.benchmarks.job.bench import bench_of, play_job_bench
    from wattune.cli.bench.job import check_picture, draw, progress_bar, show_sections
    from wattune.config import load_config

    folder = data or load_config().data_dir
    if folder is None:
        raise click.UsageError("give --data DIR or set WATTUNE_DATA: the bench needs tables of recurring jobs")
    check_picture(plot, sections)
    with progress_bar() as on_step:
        played = play_job_bench(
            folder,
            gpus,
            seeds=seeds,
            eta=eta,
            workloads=workloads,
            sections=sections,
            processes=processes,
            on_step=on_step,
        )
    bench = bench_of(played)
    if plot is not None:
        draw(plot, played, bench)
    if as_json:
        print_json(bench.document)
    else:
        show_sections(bench)
        show_goals(bench)


@command.command(short_help="Programs tuned while they run, beside GPOEO, ODPP, MF-GPOEO, Zeus and the oracle.")
@click.option("--simulated", is_flag=True, help="The 71 simulated programs; this is what is played without --table.")
@click.option("--table", type=click.Path(path_type=Path), help="Sweep CSV that stands for the GPU.")
@click.option("--live", metavar="SECONDS", type=click.FloatRange(min=1), help="What the live loop takes of a core.")
@click.option("--gpu", default="rtx-3080-ti", show_default=True, help="GPU of the catalogue.")
@click.option("--seeds", type=click.IntRange(min=1), help="How often all is played; 5, with a table 20.")
@click.option("--slowdown", default="5%", show_default=True, help="The promise: how much slower a run may be.")
@click.option("--hours", type=click.FloatRange(min=0.05), default=1.0, show_default=True, help="Length of a run.")
@click.option("--noise", default="1%", show_default=True, help="With a table: noise of a window.")
@click.option("--workload", "workloads", multiple=True, help="Part of a workload's name; may be repeated.")
@click.option("--policy", "policies", multiple=True, help="Play this policy only; may be repeated.")
@click.option("--processes", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that play.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it: FILE.html, or FILE.svg.")
@json_option
def run(
    simulated: bool,
    table: Path | None,
    live: float | None,
    gpu: str,
    seeds: int | None,
    slowdown: str,
    hours: float,
    noise: str,
    workloads: tuple[str, ...],
    policies: tuple[str, ...],
    processes: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Energy saved and promises kept by wattune, the published rules and the oracle, search costs included."""
    from wattune.cli.bench.run import RunAsked, run_bench, run_live

    if simulated + (table is not None) + (live is not None) > 1:
        raise click.UsageError("give one of --simulated, --table and --live")
    if live is not None:
        show(run_live(gpu, live, slowdown), as_json=as_json)
        return
    run_bench(
        RunAsked(
            table=table,
            gpu=gpu,
            seeds=seeds,
            slowdown=slowdown,
            hours=hours,
            noise=noise,
            workloads=workloads,
            policies=policies,
            processes=processes,
            plot=plot,
        ),
        as_json=as_json,
    )


@command.command(short_help="How soon a change of a program is found, beside the published rules.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="How often all is played.")
@json_option
def change(seeds: int, as_json: bool) -> None:
    """Delays and false alarms of change detection beside GPOEO's and MF-GPOEO's, on made-up programs."""
    from wattune.benchmarks.change.bench import bench_change
    from wattune.cli.output import stderr_console

    errors = stderr_console()
    bench = bench_change(seeds=seeds, on_step=lambda kind: errors.print(f"playing noise: {kind}", markup=False))
    show(bench, as_json=as_json)


@command.command(short_help="What counters at one clock tell of all others, beside simpler guesses.")
@click.option("--gpu", default="rtx-3080-ti", show_default=True, help="GPU of the catalogue.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the 71 jobs.")
@json_option
def predict(gpu: str, seed: int, as_json: bool) -> None:
    """Errors of time and energy predicted from counters, on workloads that the models have not seen."""
    from wattune.benchmarks.predict import bench_predict
    from wattune.cli.output import stderr_console

    errors = stderr_console()
    show(bench_predict(gpu, seed=seed, on_step=lambda step: errors.print(step, markup=False)), as_json=as_json)


@command.command(short_help="What repeats in power traces whose truth is known, beside GPOEO's detector.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder of public measurements; WATTUNE_DATA otherwise.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="How often all is drawn.")
@json_option
def period(data: Path | None, seeds: int, as_json: bool) -> None:
    """Periods found in simulated traces of every kind and in real ones, beside GPOEO's detector and simpler ones."""
    from dataclasses import replace

    from wattune.benchmarks.period.bench import bench_period, by_kind
    from wattune.cli.output import stderr_console
    from wattune.config import load_config

    errors = stderr_console()
    folder = data or load_config().data_dir
    bench = bench_period(folder, seeds=seeds, on_kind=lambda kind: errors.print(f"looking at: {kind}", markup=False))
    show(bench if as_json else replace(bench, rows=by_kind(bench.rows)), as_json=as_json)


def show(bench: Bench, *, as_json: bool) -> None:
    """Nothing; the outcome is printed, for programs or for people."""
    if as_json:
        print_json(bench.document)
        return
    from rich.table import Table

    screen = console()
    label = " (simulated GPUs)" if bench.simulated else ""
    for columns, rows in _alike(bench.rows):
        # Blanks for underscores, so that a narrow terminal breaks a heading between words and does not cut it.
        heads = (column.replace("_", " ") for column in columns)
        table = Table(title=f"bench {bench.bench}{label}", title_justify="left", box=None, pad_edge=False)
        for head in heads:
            table.add_column(head, overflow="fold")
        for row in rows:
            table.add_row(*(_cell(row[column]) for column in columns))
        screen.print(table)
        screen.print()
    show_goals(bench)


def show_goals(bench: Bench) -> None:
    """Nothing; the goals and remarks are printed for people."""
    screen = console()
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
