"""`wattune bench NAME`: wattune beside its peers, in one run."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.output import FILE, json_option, remark
from wattune.core.errors import InputError
from wattune.core.objective import parse_share
from wattune_bench.output import check_picture, draw, progress_bar, show

_data_option = click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of public measurements.  [default: WATTUNE_DATA]"
)
_plot_option = click.option("--plot", type=FILE, help="Write charts: FILE.html, or FILE.svg.")
_processes_option = click.option(
    "--processes", type=click.IntRange(min=1), default=2, show_default=True, help="Number of processes."
)
_workload_option = click.option(
    "--workload", "workloads", multiple=True, help="Only workloads whose name contains this; may be repeated."
)


@click.group()
def command() -> None:
    """Measure wattune itself side by side with its peers.

    Each bench runs the peer in the same run and on the same input, and prints ratios. Peers come with
    `pip install './benches[peers]'`; the output names a peer that is missing.
    """


def _data_folder(data: Path | None, needs: str | None = None) -> Path | None:
    from wattune.config import load_config

    folder = data or load_config().data_dir
    if folder is None and needs is not None:
        raise click.UsageError(f"give --data DIR or set WATTUNE_DATA: the bench needs {needs}")
    return folder


def _share(option: str, text: str) -> float:
    try:
        return parse_share(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no share", hint="write 5% or 0.05") from None


@command.command(short_help="Cost and accuracy of a measured span beside ZeusMonitor's.")
@click.option("--quick", is_flag=True, help="Fewer repetitions, for a first impression.")
@json_option
def meter(quick: bool, as_json: bool) -> None:
    """Cost and accuracy of a measured span against ZeusMonitor's window, on the emulated library."""
    from wattune.config import load_config
    from wattune_bench.meter import bench_meter

    show(bench_meter(cache_dir=load_config().cache_dir, quick=quick), as_json=as_json)


@command.command(short_help="Fitted physics on public measurements that the fits have not seen.")
@_data_option
@json_option
def physics(data: Path | None, as_json: bool) -> None:
    """Errors of fitted physics on public measurements, cross-validated, and of the catalogue on published figures."""
    from wattune_bench.output import physics_tables
    from wattune_bench.physics import bench_physics

    bench = bench_physics(_data_folder(data), on_file=lambda file: remark(f"fitting {file.name}"))
    show(bench, as_json=as_json, tables=physics_tables)


@command.command(short_help="Pipeline frontiers beside lowtime's, their bounds and the published savings.")
@_data_option
@click.option("--quick", is_flag=True, help="lowtime on 12 microbatches of one profile only, for a first impression.")
@json_option
def pipeline(data: Path | None, quick: bool, as_json: bool) -> None:
    """Solve time, distance from the bound, and energy of pipeline plans against lowtime's and the published ones."""
    from wattune_bench.pipeline.bench import bench_pipeline

    folder = _data_folder(data, "stage profiles")
    assert folder is not None
    show(bench_pipeline(folder, quick=quick, on_step=remark), as_json=as_json)


@command.command(short_help="Batch size and power limit of recurring jobs beside Zeus's choices.")
@_data_option
@click.option("--gpu", "gpus", multiple=True, help="Only the table of this GPU; may be repeated.")
@click.option("--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="Number of seeds.")
@click.option(
    "--eta", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Weight of energy in the cost."
)
@_workload_option
@click.option(
    "--section",
    "sections",
    multiple=True,
    help="Only this section: horizon, eta, drift, overlap, transfer, unseen; may be repeated.",
)
@click.option("--short", is_flag=True, help="Ten runs of jobs of 15 to 80 s on simulated GPUs; needs no tables.")
@_processes_option
@_plot_option
@json_option
def job(
    data: Path | None,
    gpus: tuple[str, ...],
    seeds: int,
    eta: float,
    workloads: tuple[str, ...],
    sections: tuple[str, ...],
    short: bool,
    processes: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Cost of recurring jobs under wattune, Zeus, grid search, the default and the oracle, replayed from tables."""
    from wattune_bench.job.bench import bench_of, play_job_bench
    from wattune_bench.output import job_tables, short_job_tables

    if short:
        from wattune_bench.job.short import bench_short_jobs

        if sections or plot is not None:
            raise InputError("--short has no sections and no pictures", hint="leave out --section and --plot")
        show(bench_short_jobs(), as_json=as_json, tables=short_job_tables)
        return
    folder = _data_folder(data, "tables of recurring jobs")
    assert folder is not None
    if plot is not None and sections and "horizon" not in sections:
        raise InputError("pictures are of the horizon, which is not played", hint="add --section horizon")
    check_picture(plot)
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
        from wattune_bench.job.page import job_bench_file, pictured

        draw(plot, lambda made: job_bench_file(pictured(played, bench, made=made), suffix=plot.suffix))
    show(bench, as_json=as_json, tables=job_tables)


@command.command(short_help="Programs tuned while they run, beside GPOEO, ODPP, MF-GPOEO, Zeus and the oracle.")
@click.option("--simulated", is_flag=True, help="Play the 71 simulated programs; the default without --table.")
@click.option(
    "--table",
    "sweeps",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Sweep CSV that stands for the GPU; may be repeated.",
)
@click.option("--gpu", default="rtx-3080-ti", show_default=True, help="GPU of the catalogue.")
@click.option("--seeds", type=click.IntRange(min=1), help="Number of seeds; 1, with a table 20.")
@click.option("--slowdown", default="5%", show_default=True, help="Slowdown limit of a run.")
@click.option(
    "--hours",
    type=click.FloatRange(min=0.05),
    help="Hours of a run at the driver's own clocks; 0.15, with a table 1.",
)
@click.option("--noise", default="1%", show_default=True, help="With a table: noise of means over ten seconds.")
@click.option(
    "--ripple", default="0%", show_default=True, help="With a table: its times and energies vary so much by setting."
)
@_workload_option
@click.option(
    "--policy",
    "policies",
    multiple=True,
    help="Only this policy; or, beside those of a table, package.module:Name; may be repeated.",
)
@click.option(
    "--reports-steps", is_flag=True, help="Programs report their steps; without it, step times are measured from power."
)
@_processes_option
@_plot_option
@json_option
def run(
    simulated: bool,
    sweeps: tuple[Path, ...],
    gpu: str,
    seeds: int | None,
    slowdown: str,
    hours: float | None,
    noise: str,
    ripple: str,
    workloads: tuple[str, ...],
    policies: tuple[str, ...],
    reports_steps: bool,
    processes: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Energy saved and time lost by whole runs under wattune, the published rules and the oracle, search included."""
    from wattune_bench.output import run_tables
    from wattune_bench.run import RunBench, bench_run
    from wattune_bench.run.table import TableBench, bench_table

    if simulated and sweeps:
        raise click.UsageError("give one of --simulated and --table")
    limit = _share("--slowdown", slowdown)
    check_picture(plot)
    with progress_bar() as on_step:
        if sweeps:
            recorded = TableBench(
                tables=sweeps,
                seeds=seeds or 20,
                hours=hours or 1.0,
                slowdown=limit,
                noise=_share("--noise", noise),
                ripple=_share("--ripple", ripple),
                workloads=workloads,
                policies=tuple(dict.fromkeys(policies)),
                processes=processes,
            )
            bench = bench_table(recorded, on_step=on_step)
        else:
            family = RunBench(
                gpu=gpu,
                seeds=seeds or 1,
                slowdown=limit,
                hours=hours or 0.15,
                workloads=workloads,
                policies=policies,
                reports_steps=reports_steps,
                processes=processes,
            )
            bench = bench_run(family, on_step=on_step)
    if plot is not None:
        from wattune_bench.run.outcome import run_picture

        draw(plot, lambda made: run_picture(bench, suffix=plot.suffix, made=made))
    show(bench, as_json=as_json, tables=run_tables)


@command.command(short_help="How soon a change of a program is found, beside the published rules.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Number of seeds.")
@json_option
def change(seeds: int, as_json: bool) -> None:
    """Delays and false alarms of change detection beside GPOEO's and MF-GPOEO's, on generated programs."""
    from wattune_bench.change import bench_change

    show(bench_change(seeds=seeds, on_step=lambda kind: remark(f"playing noise: {kind}")), as_json=as_json)


@command.command(short_help="How well counters at one clock predict all others, beside simpler predictions.")
@click.option("--gpu", default="rtx-3080-ti", show_default=True, help="GPU of the catalogue.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the 71 jobs.")
@json_option
def predict(gpu: str, seed: int, as_json: bool) -> None:
    """Errors of time and energy predicted from counters, on workloads that the models have not seen."""
    from wattune_bench.predict import bench_predict

    show(bench_predict(gpu, seed=seed, on_step=remark), as_json=as_json)


@command.command(short_help="Periods of power traces whose truth is known, beside GPOEO's detector.")
@_data_option
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Number of seeds.")
@click.option(
    "--first-draw",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="First seed; others are fresh traces.",
)
@json_option
def period(data: Path | None, seeds: int, first_draw: int, as_json: bool) -> None:
    """Periods found in simulated traces of every kind and in real ones, beside GPOEO's detector and simpler ones."""
    from dataclasses import replace

    from wattune.cli.threads import one_thread_each

    with one_thread_each():
        from wattune_bench.period import bench_period, by_kind

    bench = bench_period(
        _data_folder(data), seeds=seeds, first_draw=first_draw, on_kind=lambda kind: remark(f"analysing: {kind}")
    )
    show(bench if as_json else replace(bench, rows=by_kind(bench.rows)), as_json=as_json)


@command.command(short_help="Clocks per layer beside the thesis, free switching, and predictions on real kernels.")
@click.option(
    "--kernels", type=click.Path(path_type=Path), help="CSV of real kernels: kernel,sm_mhz,mem_mhz,count,time_s,std_s."
)
@click.option(
    "--section",
    "sections",
    multiple=True,
    help="Only this section: thesis, language, chain, transfer, hooks, kernels; may be repeated.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=10, show_default=True, help="Seeds of the kernels.")
@_processes_option
@json_option
def layers(kernels: Path | None, sections: tuple[str, ...], seeds: int, processes: int, as_json: bool) -> None:
    """Energy, time and switches of each strategy for the clocks of layers, at several switching latencies."""
    from wattune_bench.layers.bench import bench_layers
    from wattune_bench.output import layers_tables

    with progress_bar() as on_step:
        bench = bench_layers(kernels=kernels, sections=sections, seeds=seeds, processes=processes, on_step=on_step)
    show(bench, as_json=as_json, tables=layers_tables)


@command.command(short_help="Partitions of large models, searched, composed and planned beside Kareus and Perseus.")
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    help="Measured overlap sweep: partition,sm_mhz,comm_sms,launch,time_s,energy_j.",
)
@click.option(
    "--section",
    "sections",
    multiple=True,
    help="Only this section: truth, end-to-end, search, speed, table; may be repeated.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="Seeds of searches of a table."
)
@_processes_option
@json_option
def kernels(table: Path | None, sections: tuple[str, ...], seeds: int, processes: int, as_json: bool) -> None:
    """Measurements that searches of partitions need, and iterations of ten published configurations."""
    from wattune_bench.kernels.bench import bench_kernels_level
    from wattune_bench.output import kernels_tables

    with progress_bar() as on_step:
        bench = bench_kernels_level(table=table, sections=sections, seeds=seeds, processes=processes, on_step=on_step)
    show(bench, as_json=as_json, tables=kernels_tables)


@command.command(short_help="What is left after kills, signals, outages of the store and damaged input.")
@click.option(
    "--section",
    "sections",
    multiple=True,
    help="Only this section: kills, signals, store, writers, driver, inputs; may be repeated.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=500, show_default=True, help="Number of kills.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random times.")
@json_option
def reliability(sections: tuple[str, ...], rounds: int, seed: int, as_json: bool) -> None:
    """What is left on GPUs, in the journal, in the store and of processes after failures."""
    from wattune.config import load_config
    from wattune_bench.reliability.bench import ReliabilityBench, bench_reliability

    with progress_bar() as on_step:
        bench = ReliabilityBench(cache_dir=load_config().cache_dir, rounds=rounds, seed=seed, on_step=on_step)
        result = bench_reliability(bench, sections=sections)
    show(result, as_json=as_json)


@command.command(short_help="One program tuned live in every way, judged by the simulated GPU's own joules.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each arm.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=30,
    show_default=True,
    help="How long the program takes at the driver's default.",
)
@click.option("--gpu", "gpus", multiple=True, help="Only this GPU of the catalogue; may be repeated.")
@click.option(
    "--switching",
    "switchings",
    type=click.Choice(["ideal", "real"]),
    multiple=True,
    help="Only this delay of new clocks.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    help="Only this arm: none, run, tuned, callback, sweep+hold, job, gpoeo, zeus; may be repeated.",
)
@click.option(
    "--workload", "workloads", multiple=True, help="The simulated work of runs in turn: resnet50, bert-base:8 …"
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the first run.")
@click.option("--slowdown", default="5%", show_default=True, help="Slowdown limit of a run.")
@click.option("--traces", type=click.Path(path_type=Path, file_okay=False), help="Save every run to this folder.")
@click.option(
    "--from",
    "saved",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Judge the runs of this folder again, and play none.",
)
@click.option(
    "--zeus",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of the packages of Zeus, where it is not installed.",
)
@click.option(
    "--busy", type=click.IntRange(min=0), default=0, show_default=True, help="Processes that keep the CPU busy."
)
@json_option
def live(
    runs: int,
    seconds: float,
    gpus: tuple[str, ...],
    switchings: tuple[str, ...],
    arms: tuple[str, ...],
    workloads: tuple[str, ...],
    seed: int,
    slowdown: str,
    traces: Path | None,
    saved: Path | None,
    zeus: Path | None,
    busy: int,
    as_json: bool,
) -> None:
    """Savings, claims and costs of tuning one PyTorch program live on simulated GPUs, one run after the other."""
    from wattune.config import load_config
    from wattune_bench.live.arms import ARMS
    from wattune_bench.live.bench import GPUS, SWITCHINGS, WORKLOADS, LiveBench, bench_live, bench_saved
    from wattune_bench.output import live_tables
    from wattune_bench.result import check_sections

    if saved is not None:
        show(bench_saved(saved), as_json=as_json, tables=live_tables)
        return
    check_sections(arms, ARMS, kind="arm")
    asked = LiveBench(
        cache_dir=load_config().cache_dir,
        runs=runs,
        seconds=seconds,
        gpus=gpus or GPUS,
        switchings=switchings or SWITCHINGS,
        arms=arms or ARMS,
        workloads=workloads or WORKLOADS,
        seed=seed,
        slowdown=_share("--slowdown", slowdown),
        traces=traces,
        zeus=zeus,
        busy=busy,
    )
    with progress_bar() as on_step:
        bench = bench_live(asked, on_step=on_step)
    show(bench, as_json=as_json, tables=live_tables)
