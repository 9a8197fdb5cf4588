"""One run in the replay: its epochs pass, its first moments go into finding a power limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from wattune.benchmarks.job.trace import TraceWorkload, Training
from wattune.core.frontier import History, Trial
from wattune.core.job import JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.levels.job.profile import EXTRA_WINDOWS, WINDOW_S, similar_to, windows_to_come
from wattune.response.setting_search import SettingSearch

NOISE = 0.01
"""Standard deviation of a window's time and power, relative."""


class LimitSearch(Protocol):
    """Chooses the limits to measure, and says what the measurements come to; a `Searcher[Setting]`."""

    def propose(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """The limit to measure next, or None where enough is known."""
        ...

    def settled(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """One trial for each limit that was measured."""
        ...


FindLimit = Callable[[Objective, JobMemory, JobGpu, int], LimitSearch]
"""Who chooses the limits to measure for a batch size, by what is known of the job so far."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """The first moments of a run go through limits, until the one that the objective likes best is known."""

    find: FindLimit
    window_s: float | None = WINDOW_S
    """None: an even share of the first epoch for each limit."""
    noise: float = NOISE
    foreseen: bool = False
    """Whether a batch size's profile is known before its first run, and the run may be called off at no cost: two
    favours that the simulator published with Zeus does it."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """A rule names the limit of a run, by what was known when it was submitted; nothing is measured."""

    setting: Callable[[JobMemory, JobRun], Setting]


Limits = Profiled | Ruled


@dataclass(frozen=True, slots=True)
class EveryLimit:
    """Every limit once, the highest first, as Zeus does it."""

    def propose(self, candidates: Sequence[Setting], history: History[Setting]) -> Setting | None:
        """The highest limit that was not measured."""
        measured = {trial.choice for trial in history}
        return next((choice for choice in sorted(candidates, reverse=True) if choice not in measured), None)

    def settled(self, candidates: Sequence[Setting], history: History[Setting]) -> History[Setting]:
        """What was measured, as it was."""
        del candidates
        return history


def zeus_limits() -> Profiled:
    """The way of the published simulator: the first epoch goes evenly through all limits, without noise."""
    return Profiled(lambda *_: EveryLimit(), window_s=None, noise=0.0, foreseen=True)


def own_limits() -> Profiled:
    """Our way: a few windows where the best limit may be, after what other batch sizes have shown."""
    return Profiled(_setting_search)


def _setting_search(objective: Objective, memory: JobMemory, gpu: JobGpu, batch_size: int) -> SettingSearch:
    similar = similar_to(memory, gpu, batch_size, knobs=("power_limit",))
    horizon = windows_to_come(memory, gpu, batch_size)
    return SettingSearch(objective=objective, similar=similar, max_power_w=gpu.max_power_w, horizon=horizon)


_NOTHING = Measurement(0.0, 0.0)
_HARDLY = 1e-9
"""Share of an epoch that is rounding and no work."""

_MOST_WINDOWS = 30
"""Windows in a run whose batch size has no profile yet."""


class KnownLimits:
    """What has been measured of a batch size by all its runs."""

    def __init__(self, workload: TraceWorkload, batch_size: int, limits: Profiled, *, profile: Profile | None) -> None:
        self.workload, self.batch_size, self.limits = workload, batch_size, limits
        self.cells = workload.epochs[batch_size]
        self.over = False
        """Whether enough is known."""
        self._runs = self._asked = 0
        self.windows: History[Setting] = ()
        self.profile: Profile | None = None
        self.best = max(self.cells)
        if profile is not None:
            self.keep(profile.trials, profile.trials)
        elif limits.foreseen:
            self.keep((), tuple(Trial(setting, cost) for setting, cost in self.cells.items()))

    def is_due(self) -> bool:
        """Whether one more run has a look at limits: until enough is known, and then whenever runs grew by half.

        Only the longer time for which a limit will be held makes a look worth more than when there was last none.
        """
        self._runs += 1
        if self.over and (self.limits.foreseen or self._runs < 1.5 * self._asked):
            return False
        self._asked = self._runs
        return True

    def keep(self, windows: History[Setting], settled: History[Setting]) -> None:
        """Nothing; these are the windows so far, and what they come to."""
        self.windows = windows
        self.profile = Profile(gpu=self.workload.gpu, batch_size=self.batch_size, trials=settled)
        self.best = self.workload.objective.choose(settled).choice


class ReplayedProfiling:
    """One run's share in finding the best limit of its batch size."""

    def __init__(self, known: KnownLimits, memory: JobMemory, noise: np.random.Generator) -> None:
        self.window: Setting | None = None
        """What is being measured; None where the best limit known is held."""
        self._known, self._noise = known, noise
        self._left = 0.0
        self._windows_left = EXTRA_WINDOWS if known.over else _MOST_WINDOWS
        if known.is_due():
            gpu, objective = known.workload.gpu, known.workload.objective
            self._search: LimitSearch = known.limits.find(objective, memory, gpu, known.batch_size)
            self._open()

    @property
    def held(self) -> Setting:
        """The best limit by now; the highest where nothing is known."""
        return self._known.best

    def measure(self, work: float) -> float:
        """The share of an epoch, at most that of `work`, which is done in the window that is open."""
        part = min(work, self._left)
        self._left -= part
        if self._left <= _HARDLY:
            self._close()
        return part

    def _open(self) -> None:
        known = self._known
        wanted = self._search.propose(tuple(known.cells), known.windows) if self._windows_left else None
        self.window = wanted
        self._windows_left -= 1
        known.over = known.over or wanted is None
        if self.window is not None:
            seconds = known.limits.window_s
            self._left = 1 / len(known.cells) if seconds is None else seconds / known.cells[self.window].time_s

    def _close(self) -> None:
        assert self.window is not None
        known = self._known
        windows = (*known.windows, Trial(self.window, self._measured(known.cells[self.window])))
        if known.limits.foreseen:
            known.windows = windows
        else:
            known.keep(windows, self._search.settled(tuple(known.cells), windows))
        self._open()

    def _measured(self, cell: Measurement) -> Measurement:
        spread = self._known.limits.noise
        if not spread:
            return cell
        slower, costlier = (1 + spread * self._noise.standard_normal(2)).tolist()
        time_s, energy_j = cell.time_s * slower, cell.energy_j * slower * costlier
        return Measurement(time_s, energy_j, SIGMAS_95 * spread * time_s, SIGMAS_95 * spread * 2**0.5 * energy_j)


class ReplayedRun:
    """A run under way: `run` is how it stands."""

    def __init__(
        self, workload: TraceWorkload, run: JobRun, training: Training, *, limit: ReplayedProfiling | Setting
    ) -> None:
        self.submitted = self.run = run
        self._cells = workload.epochs[run.batch_size]
        self._length, self._reaches = workload.length(training)
        self._metrics = training.metrics(self._length)
        self._limit = limit
        self._spent = self._measuring = (0.0, 0.0)

    @property
    def reached(self) -> bool:
        """Whether the target has been reached by now."""
        return self._reaches and self.run.epochs >= self._length

    def pass_epoch(self) -> tuple[Measurement, Measurement]:
        """What the next epoch costs, and the part of that during which limits were measured."""
        before, measuring = self._spent, self._measuring
        left = 1.0
        while left > _HARDLY:
            left -= self._work(left)
        return _between(before, self._spent), _between(measuring, self._measuring)

    def _work(self, left: float) -> float:
        """The share of the epoch, at most `left`, that passes at one limit."""
        limit = self._limit
        if isinstance(limit, Setting) or limit.window is None:
            cell = self._cells[limit if isinstance(limit, Setting) else limit.held]
            self._spent = _add(self._spent, cell, left)
            return left
        cell = self._cells[limit.window]
        part = limit.measure(left)
        self._spent, self._measuring = _add(self._spent, cell, part), _add(self._measuring, cell, part)
        return part

    def report(self) -> None:
        """Nothing; the epoch that has passed is on record."""
        self.run = replace(
            self.run,
            metrics=self._metrics[: self.run.epochs + 1],
            cost=Measurement(*self._spent),
            profiling=Measurement(*self._measuring),
            setting=self._setting,
        )

    def end(self, outcome: Outcome, *, ended: int) -> None:
        """Nothing; the run is over."""
        self.run = replace(
            self.run,
            outcome=outcome,
            ended=ended,
            cost=self.run.cost or _NOTHING,
            profiling=self.run.profiling or _NOTHING,
            setting=self._setting,
        )

    @property
    def _setting(self) -> Setting | None:
        if isinstance(self._limit, Setting):
            return self._limit
        return None if self._limit.window is not None else self._limit.held


def _add(spent: tuple[float, float], epoch: Measurement, share: float) -> tuple[float, float]:
    return spent[0] + share * epoch.time_s, spent[1] + share * epoch.energy_j


def _between(before: tuple[float, float], after: tuple[float, float]) -> Measurement:
    return Measurement(after[0] - before[0], after[1] - before[1])
