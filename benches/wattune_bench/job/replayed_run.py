"""One run in the replay: its epochs pass, and its first part goes into finding a power limit.

Our limits are found by the shipped `SettingProfiling`, which gets intervals of iterations with noise as the live
profiler measures them. Zeus's are found as in the simulator that its authors published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from wattune.core.frontier import Trial
from wattune.core.job import JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.job.profile import epoch_trials, setting_profiling
from wattune.levels.job.profiling import Checking, Interval, ProfileHeld
from wattune_bench.job.trace import TraceWorkload, Training

NOISE = 0.01
"""Standard deviation of time and power of one second of training, relative."""
STEP_S = 0.1
"""Time of an iteration at the highest limit; the tables have epochs only."""

_NOTHING = Measurement(0.0, 0.0)
_HARDLY = 1e-9
"""Share of an epoch that is rounding and no work."""


@dataclass(frozen=True, slots=True)
class ShippedLimits:
    """Limits are found by the shipped profiling, while the run trains."""


@dataclass(frozen=True, slots=True)
class ZeusLimits:
    """The first epoch of a batch size goes evenly through all limits, without noise.

    As in the published simulator, the profile is known before the first run, which may be called off at no cost.
    """


@dataclass(frozen=True, slots=True)
class Ruled:
    """A rule names the limit of a run, by what was known when it was submitted; nothing is measured."""

    setting: Callable[[JobMemory, JobRun], Setting]


Limits = ShippedLimits | ZeusLimits | Ruled


class ShippedProfiling:
    """One run's profiling by the shipped policy, iteration by iteration; `found` is the profile, once it is known."""

    def __init__(
        self,
        workload: TraceWorkload,
        run: JobRun,
        memory: JobMemory,
        *,
        noise: np.random.Generator,
    ) -> None:
        self._cells, self._run, self._noise = workload.epochs[run.batch_size], run, noise
        self.found: Profile | None = None
        self._top = max(self._cells)
        self._steps = max(round(self._cells[self._top].time_s / STEP_S), 1)
        self._policy = setting_profiling(workload.job, memory, run, tuple(self._cells), max_power_w=run.gpu.max_power_w)
        self._progress = self._policy.start()
        self._joined = self._is_kept = False
        self._was_held = False

    @property
    def window(self) -> Setting | None:
        """The limit that is being measured; None where one is checked or held."""
        return self._progress.setting if self._policy.steps(self._progress) else None

    @property
    def held(self) -> Setting:
        """The limit that is held; the highest where nothing is known."""
        return self._progress.setting or self._top

    def begin_epoch(self) -> None:
        """Note whether one limit holds for the whole epoch."""
        self._was_held, self._joined = self.window is None, False

    def measure(self, work: float) -> float:
        """Measure one interval and return its share of an epoch, at most `work`."""
        setting, due = self.window, self._policy.steps(self._progress)
        assert setting is not None
        assert due is not None
        steps = min(due, int(work * self._steps + _HARDLY))
        if steps < 1:
            return work
        share = steps / self._steps
        measured = self._measured(self._cells[setting], share)
        before = setting
        self._progress = self._policy.step(
            self._progress, Interval(steps, measured.time_s, measured.energy_j, self._joined)
        )
        self._joined = self.window == before
        return min(share, work)

    def end_epoch(self) -> None:
        """Judge an epoch at the earlier best limit, and note the profile once it is known."""
        epoch = self._measured(self._cells[self.held], 1.0) if self._was_held and self.window is None else None
        if isinstance(self._progress.state, Checking) and epoch is not None:
            self._progress = self._policy.step(self._progress, Interval(1, epoch.time_s, epoch.energy_j))
        held = self._progress.state
        if self._is_kept or not isinstance(held, ProfileHeld) or not held.trials:
            return
        self._is_kept = epoch is not None
        trials = epoch_trials(held.trials, self._steps, held=held.choice, epoch=epoch)
        self.found = Profile(gpu=self._run.gpu, batch_size=self._run.batch_size, trials=trials)

    def _measured(self, cell: Measurement, share: float) -> Measurement:
        spread = NOISE / sqrt(max(cell.time_s * share, STEP_S))
        slower, costlier = (1 + spread * self._noise.standard_normal(2)).tolist()
        return Measurement(share * cell.time_s * slower, share * cell.energy_j * slower * costlier)


class ZeusProfile:
    """Zeus's knowledge of a batch size: every limit, before its first run."""

    def __init__(self, workload: TraceWorkload, batch_size: int) -> None:
        cells = workload.epochs[batch_size]
        trials = tuple(Trial(setting, cost) for setting, cost in cells.items())
        self.profile = Profile(gpu=workload.gpu, batch_size=batch_size, trials=trials)
        self.best = workload.objective.choose(trials).choice
        self.todo = sorted(cells)
        """Limits that the first epoch still has to go through, the highest last."""
        self.share = 1 / len(cells)

    def copied(self) -> ZeusProfile:
        other = copy(self)
        other.todo = list(self.todo)
        return other


class ZeusProfiling:
    """One run's share in Zeus's profiling."""

    def __init__(self, known: ZeusProfile) -> None:
        self._known = known
        self._left = known.share

    @property
    def window(self) -> Setting | None:
        """The limit that is being measured; None where the best is held."""
        return self._known.todo[-1] if self._known.todo else None

    @property
    def held(self) -> Setting:
        return self._known.best

    def begin_epoch(self) -> None:
        """Do nothing: an even share of the first epoch is all that counts."""

    def measure(self, work: float) -> float:
        """Spend the share of the epoch that a limit has, at most `work`."""
        part = min(work, self._left)
        self._left -= part
        if self._left <= _HARDLY:
            self._known.todo.pop()
            self._left = self._known.share
        return part

    def end_epoch(self) -> None:
        """Do nothing: the profile was known before."""


LimitProfiling = ShippedProfiling | ZeusProfiling


@dataclass(frozen=True, slots=True)
class PaidEpoch:
    """The state of a run after an epoch: what it has spent so far, and while limits were measured, in s and J."""

    spent: tuple[float, float]
    measuring: tuple[float, float]
    setting: Setting | None
    """The limit that is held; None while limits are measured."""
    profile: Profile | None
    """The profile that was found in this epoch, if any."""


class PaidEpochs:
    """The epochs of a run one by one. What they cost does not depend on the training that is drawn, so that a run
    that is played with many trainings pays for each epoch once."""

    def __init__(self, cells: Mapping[Setting, Measurement], limit: LimitProfiling | Setting) -> None:
        self._cells, self._limit = cells, limit
        self._spent = self._measuring = (0.0, 0.0)
        self._passed = [self._state()]

    def after(self, epochs: int) -> PaidEpoch:
        """Return the state after so many epochs."""
        while len(self._passed) <= epochs:
            self._pass()
        return self._passed[epochs]

    def _pass(self) -> None:
        left = 1.0
        if not isinstance(self._limit, Setting):
            self._limit.begin_epoch()
        while left > _HARDLY:
            left -= self._work(left)
        if not isinstance(self._limit, Setting):
            self._limit.end_epoch()
        self._passed.append(self._state())

    def _work(self, left: float) -> float:
        """Work at one limit and return the share of the epoch that passed, at most `left`."""
        limit = self._limit
        if isinstance(limit, Setting) or limit.window is None:
            cell = self._cells[limit if isinstance(limit, Setting) else limit.held]
            self._spent = _add(self._spent, cell, left)
            return left
        cell = self._cells[limit.window]
        part = limit.measure(left)
        self._spent, self._measuring = _add(self._spent, cell, part), _add(self._measuring, cell, part)
        return part

    def _state(self) -> PaidEpoch:
        limit, profile = self._limit, None
        if isinstance(limit, Setting):
            return PaidEpoch(self._spent, self._measuring, limit, None)
        if isinstance(limit, ShippedProfiling):
            profile, limit.found = limit.found, None
        return PaidEpoch(self._spent, self._measuring, None if limit.window is not None else limit.held, profile)


class ReplayedRun:
    """A run under way; `run` is its present state."""

    def __init__(self, workload: TraceWorkload, run: JobRun, training: Training, *, epochs: PaidEpochs) -> None:
        self.submitted = self.run = run
        self._length, self._reaches = workload.length(training)
        self._metrics = training.metrics(self._length)
        self._epochs = epochs
        self._now = epochs.after(0)

    @property
    def reached(self) -> bool:
        return self._reaches and self.run.epochs >= self._length

    def pass_epoch(self) -> tuple[Measurement, Measurement, Profile | None]:
        """Return the cost of the next epoch, the part of it during which limits were measured, and what was found."""
        before, self._now = self._now, self._epochs.after(self.run.epochs + 1)
        now = self._now
        return _between(before.spent, now.spent), _between(before.measuring, now.measuring), now.profile

    def report(self) -> None:
        """Record the epoch that has passed."""
        self.run = replace(
            self.run,
            metrics=self._metrics[: self.run.epochs + 1],
            cost=Measurement(*self._now.spent),
            profiling=Measurement(*self._now.measuring),
            setting=self._now.setting,
        )

    def end(self, outcome: Outcome, *, ended: int) -> None:
        self.run = replace(
            self.run,
            outcome=outcome,
            ended=ended,
            cost=self.run.cost or _NOTHING,
            profiling=self.run.profiling or _NOTHING,
            setting=self._now.setting,
        )


def _add(spent: tuple[float, float], epoch: Measurement, share: float) -> tuple[float, float]:
    return spent[0] + share * epoch.time_s, spent[1] + share * epoch.energy_j


def _between(before: tuple[float, float], after: tuple[float, float]) -> Measurement:
    return Measurement(after[0] - before[0], after[1] - before[1])
