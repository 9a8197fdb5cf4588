"""`wattune run`: tune any program while it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import FILE, json_option, remark
from wattune.cli.program_options import ProgramOptions, program_options
from wattune.levels.run.policies import POLICIES

if TYPE_CHECKING:
    from wattune.cli.run.program_log import ProgramLog
    from wattune.devices.gpu import Gpu

_OPTIONS = (
    click.option("--max-slowdown", metavar="SHARE", help="How much longer the program may take.  [default: 5%]"),
    click.option("--objective", metavar="FORM", help="What to save instead: edp, cost:0.5, power:250 …"),
    click.option("--workload", default="resnet50", show_default=True, help="The workload that simulated GPUs play."),
    click.option("--knobs", metavar="NAMES", help="What may be set: sm-clock,mem-clock,power-limit.  [default: all]"),
    click.option(
        "--policy",
        metavar="NAME",
        default="wattune",
        show_default=True,
        help=f"Policy that chooses settings: {', '.join(POLICIES)}, one of a package, or yours as package.module:Name.",
    ),
    click.option("--report", "report_file", type=FILE, help="Write a report: FILE.html, or FILE.svg."),
    click.option("--screen/--no-screen", default=None, help="Show the live screen on standard error."),
    click.option("--quiet", is_flag=True, help="Print no lines before the end of the run."),
    click.option("--no-store", is_flag=True, help="Do not store this run in the history, and do not use earlier runs."),
    json_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOptions:
    """The options that `run` and `attach` share, as they were given."""

    max_slowdown: str | None
    objective: str | None
    workload: str
    knobs: str | None
    policy: str
    report_file: Path | None
    screen: bool | None
    quiet: bool
    no_store: bool
    as_json: bool


def tuning_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that `run` and `attach` share, and pass them as one value."""

    @wraps(function)
    def command(**given: Any) -> int:
        shared = {field.name: given.pop(field.name) for field in fields(TuningOptions)}
        return function(TuningOptions(**shared), **given)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--device", "devices", multiple=True, help="GPU of the program: auto, nvml:0, sim:a100 … (repeatable).")
@click.option("--per-gpu", is_flag=True, help="Tune each GPU by itself, for programs that do not work together.")
@program_options("step_pattern", "no_inject", "phase_pattern", "require_gpu", "grace_s", "as_root")
@tuning_options
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
def command(
    options: TuningOptions,
    devices: tuple[str, ...],
    per_gpu: bool,
    starting: ProgramOptions,
    command_line: tuple[str, ...],
) -> int:
    """Run any program and tune the clocks of its GPU meanwhile, so that it spends less and is hardly slower.

    Optimizer steps of PyTorch, or else items of tqdm bars, are counted inside the program by a hook that its Python
    loads at its start; --no-inject leaves that out.

    The program keeps its input, output and exit code. One line at the start, one for each event and the result at the
    end go to standard error; --quiet leaves the result alone. With --json the result is one document on standard output
    (the program's own output then goes to standard error). However the program ends, the GPU gets back the settings it
    had. The live screen is shown where standard error is a terminal and standard output is not, or with --screen; it
    has the last lines of the program, and a log has all of them.
    """
    from wattune.cli.gpus import open_gpus
    from wattune.cli.run.processor_time import load_matrices

    load_matrices()
    from wattune.cli.run.program_log import ProgramLog
    from wattune.cli.run.screen import RUN_KEYS, RunScreen
    from wattune.cli.run.tuning import TunedProgram
    from wattune.config import load_config
    from wattune.control.progress_estimator import PATTERN
    from wattune.devices.gpu import PlaysWorkloads
    from wattune.devices.guarded import leaving_by_exception
    from wattune.process.beside import Opening, failure_text
    from wattune.process.output import PrintedLines
    from wattune.process.patterns import PhasePattern, StepPattern
    from wattune.process.printed_steps import OutputFollower
    from wattune.process.step_file import UNFOLLOWED, StepFile, StepFollower, is_followed, is_unfollowed
    from wattune.process.watched import run_counted

    starting.check(command_line, quiet=options.quiet)
    tuned = TunedProgram(options, command_line)
    step_pattern, phase_pattern = starting.step_pattern, starting.phase_pattern
    steps = None if step_pattern is None else StepPattern.parse(step_pattern)
    if per_gpu and steps is not None:
        raise click.UsageError("--per-gpu and --step-pattern cannot be used together: a step is of all GPUs")
    phases = None if phase_pattern is None else PhasePattern.parse(phase_pattern)
    if phases is not None and steps is None:
        raise click.UsageError("--phase-pattern needs --step-pattern: phases are parts of a step")
    wants_screen = tuned.wants_screen(default=sys.stderr.isatty() and not sys.stdout.isatty())
    with leaving_by_exception(), ExitStack() as files:
        file = files.enter_context(StepFile.made(starting.uid))
        log = files.enter_context(ProgramLog.made()) if wants_screen and sys.stderr.isatty() else None
        places = _places(log, to_stderr=options.as_json)

        def prepare(gpus: tuple[Gpu, ...]) -> None:
            # A program does not follow a GPU that is simulated in this process, and --per-gpu has no steps.
            plays = any(isinstance(gpu, PlaysWorkloads) for gpu in gpus)
            hooked = not (starting.no_inject or per_gpu or plays)
            tuned.open(gpus, per_gpu=per_gpu, hook=StepFollower(file) if hooked else None)
            watch = tuned.sessions[0][1].watch
            if gpus[0].spec.simulated and is_unfollowed(os.environ):
                watch.refused = UNFOLLOWED
            watch.follows_gpu = gpus[0].spec.simulated and is_followed(os.environ)
            watch.only_optimizers = hooked and watch.follows_gpu
            if steps is not None:
                watch.reported_by = PATTERN
            elif not per_gpu and not plays:
                watch.output = OutputFollower(PrintedLines.beside(places, file))
            workload = options.workload if plays else None
            tuned.open_lines(
                steps=_sources(command_line, step_pattern, hooked=hooked, per_gpu=per_gpu, workload=workload)
            )

        def untuned(failure: Exception) -> None:
            if not options.quiet:  # quietly, the result has it
                remark(f"wattune: the program runs on and is not tuned: {failure_text(failure)}")

        with Opening(partial(open_gpus, *devices, wall_clock=True), prepare, tuned.begin, say=untuned) as opening:
            opening.wait(required=load_config().require_gpu)
            if log is not None:
                starting.give(log.descriptor)
                remark(f"wattune: while the screen is shown, the program writes to {log.path}")
            with tuned.shown(wants_screen=wants_screen, keys=RUN_KEYS, log=log) as shown:
                program = replace(
                    starting.program(command_line),
                    places=places,
                    on_start=opening.started,
                    on_stop=shown.suspend if isinstance(shown, RunScreen) else None,
                )
                if not starting.no_inject and (steps is not None or not (per_gpu or tuned.plays_workloads)):
                    program = replace(program, environment=file.environment(program.variables))
                if log is not None:
                    program = program.unbuffered()
                if steps is not None:
                    file.want_all_text()
                    patterns = (steps,) if phases is None else (steps, phases)
                    copied = None if starting.no_inject else file
                    end, note = run_counted(
                        program, tuned, patterns, copied=copied, warn=lambda line: remark(f"wattune: {line}")
                    )
                else:
                    end, note = program.run(), None
        if log is not None and not log.is_empty:
            remark(f"wattune: the program's output is above, and in {log.path}")
        if note is not None:
            tuned.note(note)
    return tuned.finish(end.exit_code, unopened=opening.failure)


def _sources(
    command_line: Sequence[str], step_pattern: str | None, *, hooked: bool, per_gpu: bool, workload: str | None
) -> str:
    """Return how steps will be seen, in words; `workload` is what a GPU that is simulated in this process plays."""
    from wattune.process.python_command import refuses_hook

    if step_pattern is not None:
        return f"what the program prints, by the pattern {step_pattern!r}"
    if workload is not None:
        return f"the power of {workload}, which the simulated GPU plays; the program itself is not seen"
    if per_gpu:
        return "the period of the power"
    if hooked and not refuses_hook(command_line):
        return "a hook in the program's Python, progress that it prints, or the period of its power"
    alone = " (Python with -E, -I or -S does not load the hook)" if hooked else ""
    return f"progress that it prints to a file, or the period of its power{alone}"


def _places(log: ProgramLog | None, *, to_stderr: bool) -> tuple[int, int]:
    """Return where the program's standard output and standard error go: to the log instead of to a terminal."""
    places = (2 if to_stderr else 1, 2)
    if log is None:
        return places
    out, err = (log.descriptor if os.isatty(place) else place for place in places)
    return out, err
