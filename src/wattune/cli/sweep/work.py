"""Run a sweep: at each setting a simulated workload, a recorded one, or the user's command."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from statistics import fmean

from wattune.cli.child import GRACE_S, leave_by, run_child
from wattune.cli.gpus import open_gpu
from wattune.cli.output import stderr_console
from wattune.cli.sweep.output import Swept
from wattune.control.step_file import UNFOLLOWED, is_unfollowed
from wattune.control.sweep import REPEATS, Knob, knob_settings, next_setting, recorded_settings, sweep, sweep_settings
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.repeats import merged
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu, RunsWorkloads
from wattune.devices.meter import measured
from wattune.devices.table import TableGpu
from wattune.render.quantity import duration
from wattune.response.clock_doubt import PointTime, doubt_of

DEFAULT_ITERATIONS = 500
"""Half a minute or so of training, over which the refresh of an energy counter (100 ms) hardly matters."""

Measure = Callable[[Setting], Measurement]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSettings:
    """Which settings to measure: those named, or those of a knob, evenly spaced or refined at the slowdown limit."""

    knob: Knob = Knob.SM_CLOCK
    points: int = 20
    slowdown: float = 0.05
    even: bool = False
    settings: tuple[Setting, ...] = ()

    def on(self, gpu: Gpu, trials: Sequence[Trial[Setting]]) -> tuple[Iterable[Setting], int, str]:
        """Return the settings for a GPU, chosen while `trials` grows, how many, and "at most " where fewer may do."""
        for setting in self.settings:
            gpu.spec.check(setting)
        chosen: tuple[Setting, ...]
        if self.settings:
            default = not isinstance(gpu, TableGpu) or DRIVER_DEFAULT in gpu.settings
            chosen = tuple(dict.fromkeys((*([DRIVER_DEFAULT] if default else []), *self.settings)))
        elif isinstance(gpu, TableGpu):  # a recording costs nothing to play
            chosen = recorded_settings(gpu.settings, self.knob, points=self.points)
        elif self.even:
            chosen = sweep_settings(gpu.spec, self.knob, points=self.points)
        else:
            candidates = knob_settings(gpu.spec, self.knob)
            repeats = 0 if isinstance(gpu, RunsWorkloads) else REPEATS  # what wattune plays itself never varies
            most = 1 + min(self.points, len(candidates)) + repeats
            return self._refined(candidates, trials, repeats), most, "at most "
        return chosen, len(chosen), ""

    def _refined(
        self, candidates: Sequence[Setting], trials: Sequence[Trial[Setting]], repeats: int
    ) -> Iterator[Setting]:
        ask = partial(next_setting, candidates=candidates, slowdown=self.slowdown, points=self.points, repeats=repeats)
        while (setting := ask(trials)) is not None:
            yield setting


def make_sweep(
    device: str,
    *,
    workload: str | None,
    wanted: WantedSettings,
    iterations: int | None,
    command_line: tuple[str, ...] = (),
    grace_s: float = GRACE_S,
    on_failure: Callable[[Swept], None] | None = None,
) -> Swept:
    """Sweep one device; where a setting fails, pass what was measured before it to `on_failure`."""
    started_at = datetime.now(UTC)
    trials: list[Trial[Setting]] = []
    with open_gpu(device) as gpu:
        settings, most, at_most = wanted.on(gpu, trials)
        readings: list[Reading] = []
        seen: dict[Setting, list[Reading]] = {}
        name, repeats, measure = find_work(
            gpu,
            workload,
            iterations,
            command_line,
            grace_s=grace_s,
            on_wait=lambda: readings.append(gpu.read()),
        )

        def swept() -> Swept:
            return Swept(
                device=device,
                spec=gpu.spec,
                workload=name,
                knob=None if wanted.settings else wanted.knob.value,
                slowdown=wanted.slowdown,
                command_line=command_line,
                per="run" if command_line else "iteration",
                iterations=repeats,
                history=tuple(trials),
                started_at=started_at,
                doubt=_doubt(gpu, trials, seen) if command_line else None,
            )

        def note(trial: Trial[Setting]) -> None:
            trials.append(trial)
            if command_line:
                seen.setdefault(trial.choice, []).extend(readings)
                readings.clear()
                cost = f"{trial.cost.time_s:.2f} s, {trial.cost.energy_j:.1f} J"
                each_s = (datetime.now(UTC) - started_at).total_seconds() / len(trials)
                left = f"{at_most}{duration(each_s * (most - len(trials)))} left" if len(trials) < most else "done"
                stderr_console().print(f"{len(trials)} of {at_most}{most}: {trial.choice}: {cost}; {left}")

        try:
            if command_line:
                _try_to_set(gpu, wanted)
            sweep(gpu, settings, measure, on_trial=note)
        except BaseException:
            if trials and on_failure is not None:
                on_failure(swept())
            raise
        return swept()


def _try_to_set(gpu: Gpu, wanted: WantedSettings) -> None:
    """Set the GPU and restore it, so that a driver which refuses does so before the command has run."""
    settings = wanted.settings or knob_settings(gpu.spec, wanted.knob)
    try:
        for setting in settings[:1]:
            gpu.apply(setting)
    finally:
        gpu.restore()


def _point(trial: Trial[Setting], readings: Sequence[Reading], *, top_mhz: float) -> PointTime:
    """Return the time of a trial at its clock: that requested, or else read, or else the highest."""
    clocks = [reading.sm_mhz for reading in readings if reading.sm_mhz]
    utils = [reading.sm_util for reading in readings if reading.sm_util is not None]
    sm_mhz = trial.choice.sm_mhz or (fmean(clocks) if clocks else top_mhz)
    return PointTime(sm_mhz, trial.cost.time_s, trial.cost.time_error_s or 0.0, fmean(utils) if utils else None)


def find_work(
    gpu: Gpu,
    workload: str | None,
    iterations: int | None,
    command_line: tuple[str, ...],
    *,
    grace_s: float = GRACE_S,
    on_wait: Callable[[], None] | None = None,
) -> tuple[str, int, Measure]:
    """Return the name of the work, how often it is repeated at each setting, and the function that measures it.

    `on_wait` is called twice a second while a command runs.
    """
    if not isinstance(gpu, RunsWorkloads):
        return _commanded(gpu, workload, iterations or 1, command_line, grace_s=grace_s, on_wait=on_wait)
    if command_line:
        raise InputError(
            f"{gpu.spec.label} trains a workload and cannot run a command",
            hint="put simulated GPUs under a command with: wattune simulate --follow -- wattune sweep -- COMMAND",
        )
    repeats = iterations or DEFAULT_ITERATIONS
    name, measure = gpu.prepare_workload(workload)
    return name, repeats, lambda _setting: measure(repeats) / repeats


def _commanded(
    gpu: Gpu,
    workload: str | None,
    runs: int,
    command_line: tuple[str, ...],
    *,
    grace_s: float,
    on_wait: Callable[[], None] | None,
) -> tuple[str, int, Measure]:
    if not command_line:
        raise InputError(
            f"on {gpu.spec.label} a sweep needs a command to run at each setting",
            hint="wattune sweep -- python train.py --steps 100, or --device sim:a100 for a simulated GPU",
        )
    if workload is not None:
        raise InputError("--workload is for simulated GPUs", hint="leave it out: the workload is your command")

    def measure(setting: Setting) -> Measurement:
        with measured(gpu) as span:
            for _ in range(runs):
                _run(command_line, setting, grace_s=grace_s, on_wait=on_wait)
        return span.measurement / runs

    # File names need not be text; what names the work must be.
    name = shlex.join(command_line).encode("utf-8", "replace").decode()
    return name, runs, measure


def _run(
    command_line: tuple[str, ...], setting: Setting, *, grace_s: float, on_wait: Callable[[], None] | None
) -> None:
    """Run the command and raise where it fails; its output goes to standard error, since ours is on standard output."""
    end = run_child(command_line, stdout_to_stderr=True, grace_s=grace_s, on_wait=on_wait)
    code = end.exit_code
    if end.signal is not None:
        leave_by(end.signal)  # however the command took it: the sweep ends
    if code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if code != 0:
        raise InputError(
            f"{shlex.join(command_line)} ended with exit code {code} at {setting}",
            hint="run it by itself first; the settings measured so far are in the history",
        )


def _doubt(gpu: Gpu, trials: Sequence[Trial[Setting]], seen: Mapping[Setting, Sequence[Reading]]) -> str | None:
    """Return why the times of a command show nothing of the clock, in words; None where they may.

    Measurements of the same setting count as their mean, since each of them may be off by chance.
    """
    if not trials:
        return None
    if gpu.spec.simulated and is_unfollowed(os.environ):
        return UNFOLLOWED
    top_mhz = max(gpu.spec.sm_clocks_mhz, default=1)
    base, *others = [_point(trial, seen.get(trial.choice, ()), top_mhz=top_mhz) for trial in merged(trials)]
    return doubt_of(base, others)
