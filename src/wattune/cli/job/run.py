"""`wattune job run`: run any training program with the best known batch size and setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import json_option, print_error, print_json, stderr_console
from wattune.cli.program_options import ProgramOptions, steps_and_program_options
from wattune.core.codec import to_json
from wattune.core.errors import InputError, StoreError, WattuneError
from wattune.levels.job.options import MAX_EPOCHS, RULES, JobKnob
from wattune.levels.job.policies import SEARCHERS

if TYPE_CHECKING:
    from wattune.cli.job.program import ScaledRate
    from wattune.cli.job.recurrence import Attempt
    from wattune.core.job import Job
    from wattune.core.tariff import Tariff
    from wattune.devices.gpu import Gpu
    from wattune.levels.job.session import RecurringRun
    from wattune.store.worker import StoreWorker

LINGER_S = 10.0
"""Enough to save a model of a few gigabytes to disk; little idle power compared with hours of training."""

ATTEMPTS = 10

searcher_option = click.option(
    "--searcher",
    type=click.Choice(SEARCHERS),
    default="wattune",
    show_default=True,
    help="Policy that chooses batch sizes.",
)


@click.command("run", short_help="Run a training program with the best known batch size.")
@click.argument("name")
@click.option("--batch-sizes", metavar="N,N,…", help="Batch sizes to choose from, over all GPUs: 16,32,64.")
@click.option("--default", "default", type=click.IntRange(min=1), help="The batch size that is used today.")
@click.option("--target", type=float, help="The metric to reach.")
@click.option(
    "--lower-is-better/--higher-is-better",
    "lower",
    default=None,
    help="Whether the metric falls or rises.  [default: higher is better]",
)
@click.option(
    "--max-epochs",
    type=click.IntRange(min=1),
    help=f"A run misses the target after this many.  [default: {MAX_EPOCHS}]",
)
@click.option("--objective", help="What to save: cost:0.5, energy:5%, deadline:2h …  [default: cost:0.5]")
@click.option("--metric-file", metavar="FILE", help="The program writes its metric into this file.")
@click.option("--metric-pattern", metavar="REGEX", help="The program prints its metric: 'accuracy: ([0-9.]+)'.")
@click.option("--device", "devices", multiple=True, help="GPU of the job: auto, nvml:0, sim:a100 … (repeatable).")
@click.option("--workload", default="resnet50", show_default=True, help="The workload that simulated GPUs play.")
@click.option(
    "--knob",
    type=click.Choice([knob.value for knob in JobKnob]),
    default=JobKnob.AUTO.value,
    show_default=True,
    help="What is set on the GPU.",
)
@searcher_option
@click.option("--lr", metavar="RATE@BATCH", help="A learning rate and the batch size it was tuned for: 0.1@256.")
@click.option("--lr-rule", type=click.Choice(RULES), help="How the learning rate scales with the batch size.")
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    default=ATTEMPTS,
    show_default=True,
    help="Most runs until one reaches the target.",
)
@click.option(
    "--linger",
    "linger_s",
    type=click.FloatRange(min=0),
    default=LINGER_S,
    show_default=True,
    help="Seconds to save the model, once the target is reached, before the program is ended.",
)
@click.option("--keep-going", is_flag=True, help="Do not end the program when the target is reached.")
@steps_and_program_options
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
def run(
    name: str,
    batch_sizes: str | None,
    default: int | None,
    target: float | None,
    lower: bool | None,
    max_epochs: int | None,
    objective: str | None,
    metric_file: str | None,
    metric_pattern: str | None,
    devices: tuple[str, ...],
    workload: str,
    knob: str,
    searcher: str,
    lr: str | None,
    lr_rule: str | None,
    attempts: int,
    linger_s: float,
    keep_going: bool,
    starting: ProgramOptions,
    as_json: bool,
    command_line: tuple[str, ...],
) -> int:
    """Run a training program with the best known batch size and GPU setting, and learn from it.

    In COMMAND, {batch_size} is replaced by the batch size; so are {local_batch_size}, {learning_rate}, {run_id} and
    {seed}, and the environment has the same: WATTUNE_BATCH_SIZE and so on. The first run of a job needs --batch-sizes,
    --default and --target; later runs may omit them, and options that differ redefine the job.

    The program keeps its input and output. It is ended when the target is reached, or when it costs more than training
    with another batch size would; then the next attempt starts automatically.
    """
    from wattune.cli.run.processor_time import load_matrices

    load_matrices()
    from wattune.cli.gpus import open_gpus
    from wattune.cli.job.program import (
        JobProgram,
        Wanted,
        changes,
        first_definition,
        parse_sizes,
        redefined,
        watch_of,
    )
    from wattune.cli.job.recurrence import Patience, run_recurrence
    from wattune.config import load_config
    from wattune.store.worker import StoreWorker

    rate = _rate(lr, lr_rule)
    wanted = Wanted(
        batch_sizes=None if batch_sizes is None else parse_sizes(batch_sizes),
        default_batch_size=default,
        target=target,
        higher_is_better=None if lower is None else not lower,
        max_epochs=max_epochs,
        objective=objective,
        metric_file=metric_file,
        metric_pattern=metric_pattern,
        step_pattern=starting.step_pattern,
    )
    config = load_config()
    tariff = config.tariff
    worker = StoreWorker(config.store_url)
    known = _known(name, worker)
    job = first_definition(name, wanted) if known is None else redefined(known, wanted)
    changed = () if known is None else changes(known, job)
    for line in changed:
        _say(f"{name} is redefined: {line}")
    asked = JobProgram(
        program=replace(starting.program(command_line), places=(2, 2) if as_json else (1, 2)),
        watch=watch_of(job),
        rate=rate,
        workload=workload,
        injects=not starting.no_inject,
    )
    asked.check(job)
    starting.name_user()
    with open_gpus(*devices, wall_clock=True) as gpus:
        program = replace(asked, gpus=gpus)
        if not program.check(job):
            _say("the command has no {batch_size}; the program must read WATTUNE_BATCH_SIZE")
        patience = Patience(attempts=attempts, linger_s=None if keep_going else linger_s)
        new_run = _runs(job, gpus, knob=JobKnob(knob), searcher=searcher, worker=worker, state_dir=config.state_dir)
        done = run_recurrence(program, new_run, patience, tariff=tariff, say=_say)
    if as_json:
        print_json(_document(job, searcher, changed, done, tariff))
    complaint = _complaint(job, done)
    if complaint is not None:
        print_error(complaint)
    return done[-1].exit_code


def _rate(lr: str | None, rule: str | None) -> ScaledRate | None:
    from wattune.cli.job.program import ScaledRate

    if lr is None:
        if rule is not None:
            raise click.UsageError("--lr-rule needs --lr")
        return None
    if rule is None:
        raise InputError(
            "no option gives the scaling of the learning rate with the batch size",
            hint="add --lr-rule linear (usual for SGD) or --lr-rule sqrt (usual for Adam)",
        )
    return ScaledRate.parse(lr, rule)


def _known(name: str, worker: StoreWorker) -> Job | None:
    """Return the job as it was defined last; None where it is new, or the history cannot be reached."""
    try:
        return worker.call(lambda store: store.jobs.find_job(name))
    except StoreError as error:
        _say(f"{error.message}; the job is defined by the options alone; {error.hint}")
        return None


def _runs(
    job: Job, gpus: tuple[Gpu, ...], *, knob: JobKnob, searcher: str, worker: StoreWorker, state_dir: Path
) -> Callable[[], RecurringRun]:
    """Return a function that makes the run of each attempt."""
    from wattune.cli.job.steps import POLL_S, following_of
    from wattune.control.actuator import passes_by_itself
    from wattune.levels.job.policies import searcher_named
    from wattune.levels.job.session import RecurringRun
    from wattune.levels.job.store_access import JobStoreAccess

    store_access = JobStoreAccess(job, searcher_named(searcher), worker=worker, state_dir=state_dir, warn=_say)
    following = following_of(gpus)
    if following.refused is not None:
        _say(following.refused)
    # Where time is virtual, much of it may pass between two looks.
    polled_s = POLL_S if passes_by_itself(gpus[0]) else None
    return lambda: RecurringRun(
        job, gpus, store_access=store_access, knob=knob, warn=_say, following=following, polled_s=polled_s
    )


def _document(
    job: Job, searcher: str, changed: tuple[str, ...], done: tuple[Attempt, ...], tariff: Tariff
) -> dict[str, Any]:
    from wattune.cli.job.output import run_document, simulated_fields
    from wattune.core.job import Outcome
    from wattune.levels.job.view.view_model import runs_footprint

    runs = [attempt.run for attempt in done]
    return {
        **simulated_fields(runs),
        "job": to_json(job),
        "searcher": searcher,
        "redefined": list(changed),
        "reached": runs[-1].outcome is Outcome.REACHED,
        "exit_code": done[-1].exit_code,
        "runs": [
            {
                **run_document(attempt.run),
                **asdict(runs_footprint((attempt.run,), tariff)),
                "ended_because": attempt.why,
                "program_exit_code": attempt.ending.exit_code,
            }
            for attempt in done
        ],
    }


def _complaint(job: Job, done: tuple[Attempt, ...]) -> WattuneError | None:
    """Return what is wrong and what to do, where the target was not reached; None where it was."""
    from wattune.core.job import Outcome

    last = done[-1]
    show = f"see what happened: wattune job show {job.name}"
    match last.run.outcome:
        case Outcome.REACHED:
            return None
        case Outcome.CRASHED if last.ending.interrupted:
            hint = "run it again; this run adds nothing to the history"
            return WattuneError(f"{job.name}: the program was interrupted", hint=hint)
        case Outcome.CRASHED if last.ending.exit_code == 0:
            return WattuneError(
                f"{job.name}: the program ended and no metric was found",
                hint="check the pattern, file or address of the metric; this run adds nothing to the history",
            )
        case Outcome.CRASHED:
            return WattuneError(f"{job.name}: the program died with exit code {last.ending.exit_code}", hint=show)
        case Outcome.LOST:
            return WattuneError(f"{job.name}: {last.why}", hint=show)
        case _:
            runs = "run" if len(done) == 1 else f"{len(done)} runs"
            return WattuneError(f"{job.name}: the target {job.target:g} was not reached in {runs}", hint=show)


def _say(text: str) -> None:
    stderr_console().print(f"wattune: {text}", markup=False, soft_wrap=True)
