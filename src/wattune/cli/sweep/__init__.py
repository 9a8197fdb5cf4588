"""`wattune sweep`: a workload at many settings, and the frontier they make."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from wattune.api import open_gpu
from wattune.cli.output import check_writable, console, json_option, print_json, stderr_console, write_text
from wattune.cli.sweep.output import (
    Swept,
    document,
    frontier_picture,
    frontier_table,
    sweep_csv,
    sweep_report,
)
from wattune.cli.sweep.work import find_work
from wattune.config import Config, load_config
from wattune.control.sweep import Knob, OnTrial, recorded_settings, sweep, sweep_settings
from wattune.core.errors import InputError, StoreError
from wattune.core.frontier import Trial
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--device", help="The GPU: auto, nvml:0, sim:a100, table:FILE.csv … One only.")
@click.option("--workload", help="What a simulated GPU trains: resnet50, resnet50:128 (batch size), bert-base …")
@click.option(
    "--knob",
    type=click.Choice([knob.value for knob in Knob]),
    default=Knob.SM_CLOCK.value,
    show_default=True,
    help="What to change from trial to trial.",
)
@click.option("--points", type=click.IntRange(min=1), default=20, show_default=True, help="Settings to try at most.")
@click.option("--iterations", type=click.IntRange(min=1), help="Iterations, or runs of COMMAND, at each setting.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the trials as CSV.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a report page (HTML).")
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]")
def command(
    device: str | None,
    workload: str | None,
    knob: str,
    points: int,
    iterations: int | None,
    csv_file: Path | None,
    report: Path | None,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Measure a workload at many settings and print its time-energy frontier.

    A simulated GPU trains the named workload. On a real GPU the workload is COMMAND, run at each setting from start to
    end; what it prints goes to standard error. The driver's default is always tried first, and the GPU is left as it
    was found.
    """
    config = load_config()
    for path in (csv_file, report):
        check_writable(path)
    swept = make_sweep(
        device or config.device,
        workload=workload,
        knob=Knob(knob),
        points=points,
        iterations=iterations,
        command_line=command_line,
        on_failure=lambda partial: _keep_partial(partial, config),
    )
    try:
        deliver(swept, csv_file=csv_file, report=report, as_json=as_json)
    except BaseException:
        _keep_partial(swept, config)
        raise
    keep_sweep(swept, config)


def make_sweep(
    device: str,
    *,
    workload: str | None,
    knob: Knob,
    points: int,
    iterations: int | None,
    command_line: tuple[str, ...] = (),
    on_failure: Callable[[Swept], None] | None = None,
) -> Swept:
    """The sweep of one device; where a setting fails, `on_failure` gets what was measured before it."""
    started_at = datetime.now(UTC)
    trials: list[Trial[Setting]] = []
    with open_gpu(device) as gpu:
        settings = _settings(gpu, knob, points)
        name, repeats, measure = find_work(gpu, workload, iterations, command_line)

        def swept() -> Swept:
            return Swept(
                device=device,
                spec=gpu.spec,
                workload=name,
                knob=knob.value,
                per="run" if command_line else "iteration",
                iterations=repeats,
                history=tuple(trials),
                started_at=started_at,
            )

        try:
            sweep(gpu, settings, measure, on_trial=_noting(trials, len(settings), aloud=bool(command_line)))
        except BaseException:
            if trials and on_failure is not None:
                on_failure(swept())
            raise
        return swept()


def _settings(gpu: Gpu, knob: Knob, points: int) -> tuple[Setting, ...]:
    from wattune.devices.table import TableGpu

    if isinstance(gpu, TableGpu):
        return recorded_settings(gpu.settings, knob, points=points)
    return sweep_settings(gpu.spec, knob, points=points)


def _noting(trials: list[Trial[Setting]], count: int, *, aloud: bool) -> OnTrial:
    """Keeps each trial as it ends and, where a trial takes a while, says so."""
    errors = stderr_console()

    def note(trial: Trial[Setting]) -> None:
        trials.append(trial)
        if aloud:
            cost = trial.cost
            errors.print(f"{len(trials)} of {count}: {trial.choice}: {cost.time_s:.2f} s, {cost.energy_j:.1f} J")

    return note


def _keep_partial(swept: Swept, config: Config) -> None:
    """Nothing; what was measured is kept, and where that fails too it is said, since the first failure matters more."""
    try:
        keep_sweep(swept, config)
    except StoreError as error:
        stderr_console().print(f"remark: {error.message}", soft_wrap=True, markup=False)


def keep_sweep(swept: Swept, config: Config) -> None:
    """Nothing; the sweep and its trials are in the store."""
    from wattune.store.fallback import keep_run, new_run
    from wattune.store.records import FullRun, RunGpu, TrialRecord

    spec, total = swept.spec, swept.total
    part = RunGpu(
        uuid=spec.uuid, name=spec.name, simulated=spec.simulated, time_s=total.time_s, energy_j=total.energy_j
    )
    details = {"device": swept.device, "knob": swept.knob, "per": swept.per, "iterations": swept.iterations}
    run = new_run("sweep", swept.workload, started_at=swept.started_at, gpus=(part,), details=details)
    trials = tuple(
        TrialRecord.of(trial, workload=swept.workload, gpu=spec.name, simulated=spec.simulated)
        for trial in swept.history
    )
    keep_run(FullRun(run, trials), store_url=config.store_url, state_dir=config.state_dir)


def deliver(swept: Swept, *, csv_file: Path | None, report: Path | None, as_json: bool) -> None:
    """Nothing; the files are written and the frontier is shown, which it also is where a file cannot be written."""
    files, failure = _write_files(swept, {"csv": csv_file, "report": report})
    if as_json:
        print_json(document(swept, files=files))
    else:
        show(swept, files)
    if failure is not None:
        raise failure


def _write_files(swept: Swept, wanted: dict[str, Path | None]) -> tuple[dict[str, Path | None], InputError | None]:
    """The files that were written, by kind, and the first failure to write one."""
    written: dict[str, Path | None] = dict.fromkeys(wanted)
    failure = None
    for kind, path in wanted.items():
        if path is not None:
            text = sweep_csv(swept) if kind == "csv" else sweep_report(swept, made_at=datetime.now(UTC))
            try:
                write_text(path, text)
                written[kind] = path
            except InputError as error:
                failure = failure or error
    return written, failure


def show(swept: Swept, files: dict[str, Path | None]) -> None:
    """Print the frontier for people."""
    from rich.text import Text

    out = console()
    out.print(Text.assemble((swept.workload, "bold"), " on ", (swept.spec.label, "bold"), f", per {swept.per}:"))
    out.print(frontier_table(swept))
    out.print()
    out.print(frontier_picture(swept, width=min(out.width, 100), height=16))
    label = " (simulated)" if swept.spec.simulated else ""
    out.print(f"[dim]energy over time per {swept.per}{label}: ① ② see table, • frontier, ∘ beaten[/]")
    for kind, path in files.items():
        if path is not None:
            out.print(f"{kind} written to {path}", soft_wrap=True, markup=False)
