"""Run a sweep: at each setting a simulated workload, a recorded one, or the user's command."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import fmean
from typing import Protocol

from wattune.cli.child import leave_by
from wattune.cli.counted_program import CountedCommand, CountedRun, command_name
from wattune.cli.gpus import open_gpu
from wattune.cli.output import stderr_console
from wattune.control.counted_work import CountedWork, joined
from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu, RunsWorkloads
from wattune.devices.meter import measured
from wattune.devices.sampler import Sampler
from wattune.devices.table import TableGpu
from wattune.render.quantity import duration, quantity
from wattune.response.clock_doubt import PointTime, doubt_of
from wattune.sweeps.repeats import merged
from wattune.sweeps.result import RUN, STEP, StartUp, Swept
from wattune.sweeps.settings import WantedSettings, knob_settings, sweep

DEFAULT_ITERATIONS = 500
"""Half a minute or so of training, over which the refresh of an energy counter (100 ms) hardly matters."""


def make_sweep(
    device: str,
    *,
    workload: str | None,
    wanted: WantedSettings,
    iterations: int | None,
    program: CountedCommand | None = None,
    on_failure: Callable[[Swept], None] | None = None,
) -> Swept:
    """Sweep one device; where a setting fails, pass what was measured before it to `on_failure`."""
    started_at = datetime.now(UTC)
    trials: list[Trial[Setting]] = []
    with open_gpu(device) as gpu:
        recorded = gpu.settings if isinstance(gpu, TableGpu) else None
        # What wattune plays itself never varies.
        varies = not isinstance(gpu, RunsWorkloads)
        settings, most, at_most = wanted.on(gpu.spec, trials, recorded=recorded, varies=varies)
        work = find_work(gpu, workload, iterations, program)

        def swept() -> Swept:
            return Swept(
                device=device,
                spec=gpu.spec,
                workload=work.name,
                knob=None if wanted.settings else wanted.knob.value,
                slowdown=wanted.slowdown,
                command_line=() if program is None else tuple(program.command),
                step_options=() if program is None else program.options,
                per=work.per,
                iterations=work.repeats,
                history=tuple(trials),
                started_at=started_at,
                spent=work.spent,
                counted_by=work.counted_by,
                start_up=work.start_up,
                doubt=work.doubt,
            )

        def note(_: Trial[Setting]) -> None:
            trials[:] = work.history
            if program is not None:
                cost = trials[-1].cost
                words = f"{quantity(cost.time_s, 's')}, {quantity(cost.energy_j, 'J')} per {work.per}"
                each_s = (datetime.now(UTC) - started_at).total_seconds() / len(trials)
                left = f"{at_most}{duration(each_s * (most - len(trials)))} left" if len(trials) < most else "done"
                stderr_console().print(f"{len(trials)} of {at_most}{most}: {trials[-1].choice}: {words}; {left}")

        try:
            if program is not None:
                _try_to_set(gpu, wanted)
            sweep(gpu, settings, work.measure, on_trial=note)
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


class Work(Protocol):
    """The work that a sweep does at each setting."""

    @property
    def name(self) -> str: ...

    @property
    def repeats(self) -> int:
        """How often it is done at each setting."""

    @property
    def per(self) -> str:
        """What a cost belongs to: an iteration, a step or a run."""

    @property
    def spent(self) -> Measurement:
        """All that it took so far."""

    @property
    def counted_by(self) -> str | None:
        """What counted the steps, where costs are per step."""

    @property
    def start_up(self) -> StartUp | None:
        """What is known of the start-up in costs of whole runs; None where there is none in them."""

    @property
    def doubt(self) -> str | None:
        """Why its times show nothing of the clock, in words; None where they may."""

    def measure(self, setting: Setting) -> Measurement:
        """Do the work at the setting that is applied, and return its cost."""

    @property
    def history(self) -> Sequence[Trial[Setting]]:
        """The trials so far, all in the same unit."""


@dataclass(slots=True)
class PlayedWork:
    """A workload that the GPU plays by itself."""

    name: str
    repeats: int
    play: Callable[[int], Measurement]
    history: list[Trial[Setting]] = field(default_factory=list)
    spent: Measurement = field(default=Measurement(0.0, 0.0))
    per: str = "iteration"
    counted_by: str | None = None
    start_up: StartUp | None = None
    doubt: str | None = None

    def measure(self, setting: Setting) -> Measurement:
        cost = self.play(self.repeats)
        self.spent += cost
        self.history.append(Trial(setting, cost / self.repeats))
        return cost / self.repeats


@dataclass(frozen=True, slots=True)
class CommandTrial:
    """Some runs of a command at one setting."""

    setting: Setting
    whole: Measurement
    """Of one run."""
    work: CountedWork | None
    """Between the first and the last step of each run, together."""
    sm_mhz: float | None
    busy: float | None
    idle_s: float | None
    excluded: str | None


class CommandWork:
    """A command that runs from start to end at each setting.

    Costs are those of a step where steps were counted alike in all its runs, else those of a run with its start-up.
    """

    def __init__(self, gpu: Gpu, program: CountedCommand, runs: int) -> None:
        self._gpu, self._program = gpu, program
        self.trials: list[CommandTrial] = []
        self.name, self.repeats = command_name(program.command), runs
        self.spent = Measurement(0.0, 0.0)

    @property
    def _steps(self) -> CountedWork | None:
        return joined(trial.work for trial in self.trials)

    @property
    def per(self) -> str:
        return RUN if self._steps is None else STEP

    @property
    def counted_by(self) -> str | None:
        return None if self._steps is None else self._steps.source

    @property
    def start_up(self) -> StartUp | None:
        if self._steps is not None:
            return None
        idle = [trial.idle_s for trial in self.trials]
        return StartUp(None if None in idle else _mean(idle))

    def measure(self, setting: Setting) -> Measurement:
        runs: list[CountedRun] = []
        with measured(self._gpu) as span, Sampler((self._gpu,)) as sampler:
            for _ in range(self.repeats):
                runs.append(self._program.run((self._gpu,)))
                _check(self._program.command, setting, runs[-1])
        cost, traces = span.measurement, sampler.traces  # the cost first: it finds when the counter moves
        self.spent += cost
        readings = [one for run in runs for one in run.within(traces[0].readings)]
        idle = [run.idle_s(traces) for run in runs]
        trial = CommandTrial(
            setting=setting,
            whole=cost / self.repeats,
            work=joined(run.work((self._gpu,), traces) for run in runs),
            sm_mhz=_mean(one.sm_mhz for one in readings),
            busy=_mean(one.sm_util for one in readings),
            idle_s=None if None in idle else _mean(idle),
            excluded=runs[-1].excluded,
        )
        self.trials.append(trial)
        return trial.whole

    @property
    def history(self) -> Sequence[Trial[Setting]]:
        per_step = self._steps is not None
        return [
            Trial(one.setting, one.work.per_step if per_step and one.work is not None else one.whole)
            for one in self.trials
        ]

    @property
    def doubt(self) -> str | None:
        return next((trial.excluded for trial in self.trials if trial.excluded), None) or self._clock_doubt()

    def _clock_doubt(self) -> str | None:
        """Return why times do not follow the clock; measurements of one setting count as their mean."""
        if not self.trials:
            return None
        top_mhz = max(self._gpu.spec.sm_clocks_mhz, default=1)
        base, *others = [self._point(trial, top_mhz=top_mhz) for trial in merged(self.history)]
        return doubt_of(base, others)

    def _point(self, trial: Trial[Setting], *, top_mhz: float) -> PointTime:
        """Return the time of a setting at its clock: that requested, or else read, or else the highest."""
        alike = [one for one in self.trials if one.setting == trial.choice]
        sm_mhz = trial.choice.sm_mhz or _mean(one.sm_mhz for one in alike) or top_mhz
        busy = _mean(one.busy for one in alike)
        return PointTime(sm_mhz, trial.cost.time_s, trial.cost.time_error_s or 0.0, busy)


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known; None where none is."""
    known = [one for one in values if one is not None]
    return fmean(known) if known else None


def find_work(gpu: Gpu, workload: str | None, iterations: int | None, program: CountedCommand | None) -> Work:
    """Return what is to be done at each setting."""
    if isinstance(gpu, RunsWorkloads):
        if program is not None:
            raise InputError(
                f"{gpu.spec.label} trains a workload and cannot run a command",
                hint="put simulated GPUs under a command with: wattune simulate --follow -- wattune sweep -- COMMAND",
            )
        name, play = gpu.prepare_workload(workload)
        return PlayedWork(name, iterations or DEFAULT_ITERATIONS, play)
    if program is None:
        raise InputError(
            f"on {gpu.spec.label} a sweep needs a command to run at each setting",
            hint="wattune sweep -- python train.py --steps 100, or --device sim:a100 for a simulated GPU",
        )
    if workload is not None:
        raise InputError("--workload is for simulated GPUs", hint="leave it out: the workload is your command")
    return CommandWork(gpu, program, iterations or 1)


def _check(command: Sequence[str], setting: Setting, run: CountedRun) -> None:
    """Raise where a run of the command failed, or was asked to end: the sweep ends."""
    if run.end.signal is not None:
        leave_by(run.end.signal)  # however the command took it
    code = run.end.exit_code
    if code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if code != 0:
        raise InputError(
            f"{shlex.join(command)} ended with exit code {code} at {setting}",
            hint="run it by itself first; the settings measured so far are in the history",
        )
