"""Find the best setting while a job trains: warm up, measure, decide, and hold, one interval of work after another.

The caller measures time and energy between the ends of two iterations and passes each such interval to a pure step.
What to set, and when to measure, follows from the progress alone, so that a replay can drive it like a live run:

    progress = policy.start()
    for each interval:  apply progress.setting, wait for policy.steps(progress) iterations, and
                        progress = policy.step(progress, interval)

Notation: a window is all intervals at one setting after its warm-up; intervals of a second or so show the scatter
within a window. A counter with a period of τ seconds is off by up to τ·P at both ends of a window, a standard error of
τ·P/√6 for every contiguous part of it. Single intervals have that error too, but between adjacent ones it cancels; so
it is subtracted from their scatter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, hypot, sqrt

from wattune.control.window_state import Measuring, Settling, Until
from wattune.core.frontier import History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.response.setting_search import SettingSearch

USUAL_SCATTER = 0.01
"""Prior of the relative standard deviation of seconds of training, with the weight of two intervals."""

_PRIOR_INTERVALS = 2

MOST_WINDOWS = 30

COUNTER_PERIOD_S = 0.1
"""Period of the energy counter where it is not known: 100 ms is the slowest of data-centre GPUs (A100, H100)."""

EXTRA_WINDOWS = 3
"""Most windows that a run adds to an existing profile of its batch size."""

FEW_SETTINGS = 4
"""A short run continues a profile of fewer settings at once, without an epoch to check it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Work of all GPUs of the job: a number of iterations, and their time and energy."""

    steps: int
    time_s: float
    energy_j: float
    joined: bool = False
    """True where it follows directly on the previous interval."""


SETTLE = Until(least_s=0.5, least_steps=3)
"""After a switch; clocks settle within 0.1 s, data loaders and power within a few more iterations."""
MEASURE = Until(least_steps=4, most_s=15.0, precision=0.01)
"""In intervals, up to a relative standard error of time and energy; one iteration that takes longer is a window."""


REFERENCE = Until(least_steps=4, most_s=10.0, precision=0.003)
FINE_S, FINE_INTERVAL_S = 0.02, 0.5
"""Of counters that are as exact as this, shorter intervals are exact enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Lengths of settling, of intervals and of windows."""

    counter_period_s: float = COUNTER_PERIOD_S
    """Period of the energy counter."""
    settle: Until = SETTLE
    interval_s: float = 1.0
    measure: Until = MEASURE
    reference: Until = MEASURE
    """The same for the first one at the highest setting, which everything is compared with."""
    again: bool = False
    """Whether that is measured again where a lower one was faster, and after the search: a program may be slow in its
    first minute, while it compiles and fills caches."""
    compares: bool = False
    """Whether a run that holds what an earlier one found measures the highest setting too, which its saving is compared
    with."""

    @property
    def shortest_interval_s(self) -> float:
        """Ten periods of the counter at least, so that the counter does not add to the scatter."""
        return max(self.interval_s, 10 * self.counter_period_s)


LONG_RUN_S = 600.0
"""In a run that lasts as long, the few seconds of a window at the highest setting cost less than a thousandth of it."""
_SHORT_RUN_S = 120.0
"""Runs that last longer than this have time for windows of full length."""

_PROFILED_SHARE = 0.4
"""Most of a short run that goes into windows, so that the best setting is held for most of it."""


def windows_for(run_s: float | None, *, counter_period_s: float) -> Windows:
    """Return windows that fit the length of a run, where it is known: short ones have fewer and shorter intervals."""
    usual = Windows(counter_period_s=counter_period_s)
    if counter_period_s <= FINE_S:
        usual = replace(usual, interval_s=FINE_INTERVAL_S, reference=REFERENCE, again=True)
    if run_s is None or run_s >= _SHORT_RUN_S:
        return replace(usual, compares=usual.again and run_s is not None and run_s >= LONG_RUN_S)
    least = Until(least_steps=2, most_s=max(run_s / 8, 2 * usual.shortest_interval_s), precision=0.01)
    interval_s = min(max(run_s / _SHORT_RUN_S, 0.1), usual.interval_s)
    return replace(usual, interval_s=interval_s, measure=least, reference=least, again=False)


def windows_in(run_s: float | None, windows: Windows) -> int | None:
    """Return the most windows of a short run; None where its length is not known, or leaves time for all."""
    if run_s is None or run_s >= _SHORT_RUN_S:
        return None
    return max(int(_PROFILED_SHARE * run_s / (windows.settle.least_s + windows.measure.most_s)), 1)


ONE_INTERVAL = Windows(settle=Until(), measure=Until(most_s=0.0), reference=Until(most_s=0.0))
"""Every interval is a window: for programs that report epochs only, and for replays of tables, whose intervals are
whole epochs and whose energies come from no counter (`counter_period_s=0`)."""


@dataclass(frozen=True, slots=True)
class Checking:
    """The best setting of an earlier profile is held for an epoch, to check that profile."""

    choice: Setting


@dataclass(frozen=True, slots=True)
class IntervalWindow:
    """The intervals of a window so far, and the approximate time of an iteration."""

    step_s: float
    intervals: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileHeld:
    """The search is over; None leaves the GPUs as they were found."""

    choice: Setting | None
    trials: History[Setting] = field(default=(), repr=False)
    """Per iteration, one for each setting that was measured; empty where an earlier profile is still valid."""


@dataclass(frozen=True, slots=True)
class ProfilingProgress:
    """The state of profiling, and the results of this run."""

    state: Checking | Settling[Setting, Interval] | Measuring[Setting, IntervalWindow] | ProfileHeld
    windows: History[Setting] = ()
    """Their costs are per iteration."""
    refused: frozenset[Setting] = frozenset()
    """Settings that the GPU refused."""
    restarts: int = 0
    """How often the program became faster, so that earlier windows were dropped."""
    again: bool = False
    """True where an earlier profile is valid and gets extra windows; the first one is then at its best setting."""
    then: ProfileHeld | None = None
    """What is held once the highest setting was measured for a comparison alone."""

    @property
    def setting(self) -> Setting | None:
        """The setting to apply; None is the one that was found."""
        return self.state.choice


_SINCE_NOW = Interval(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProfiling:
    """Finds the best setting. `cached` is an earlier profile of the same job, batch size and GPU model, per epoch."""

    search: SettingSearch
    candidates: tuple[Setting, ...]
    windows: Windows = Windows()
    cached: History[Setting] = ()
    most_windows: int = MOST_WINDOWS
    """A search that has not ended after so many windows ends with the best setting so far."""
    extra_windows: int = EXTRA_WINDOWS
    """Most windows that a run adds to an earlier profile that is still valid."""
    short: bool = False
    """True where the run is too short for a whole search."""
    epochs: float = 100.0
    """Expected epochs of the run: the horizon where every epoch is a window."""
    power_distance: float = 0.03
    """Relative difference of the mean power of an epoch from the earlier profile at which that is discarded: more than
    room temperature causes, less than another curve does."""
    time_distance: float = 0.10
    """The same for its time, which changes with the amount of data too."""

    def by_epoch(self) -> SettingProfiling:
        """Return the same policy with epochs as windows."""
        search = replace(self.search, horizon=max(self.epochs, 1.0))
        return replace(self, windows=ONE_INTERVAL, search=search, extra_windows=0)

    def start(self) -> ProfilingProgress:
        """Return the state at the start: a check of the earlier best setting, or else the first setting to measure.

        In a short run, a profile of few settings was probably cut short by the end of an earlier one, and the search
        goes on at once.
        """
        best = self._cached_best()
        few = self.short and self.extra_windows > 0 and len(self.cached) < FEW_SETTINGS
        if best is not None and few and self.search.propose(self.candidates, self.cached) is not None:
            return ProfilingProgress(Settling(best.choice, _SINCE_NOW), again=True)
        if best is not None:
            return ProfilingProgress(Checking(best.choice))
        return self._next(ProfilingProgress(ProfileHeld(None)))

    def step(self, progress: ProfilingProgress, interval: Interval) -> ProfilingProgress:
        """Return the state after one more interval of work at the current setting; while checking, after an epoch."""
        match progress.state:
            case Checking():
                return self._checked(progress, interval)
            case Settling(choice, since):
                done = replace(since, steps=since.steps + interval.steps, time_s=since.time_s + interval.time_s)
                window = IntervalWindow(interval.time_s / interval.steps)
                if self.windows.settle == Until():
                    return self._measured(progress, choice, window, interval)
                is_over = self.windows.settle.is_over(time_s=done.time_s, steps=done.steps)
                return replace(progress, state=Measuring(choice, window) if is_over else Settling(choice, done))
            case Measuring(choice, window):
                return self._measured(progress, choice, window, interval)
            case ProfileHeld():
                return progress

    def refused(self, progress: ProfilingProgress) -> ProfilingProgress:
        """Return the state after the GPU refused the current setting."""
        setting = progress.setting
        if setting is None:
            return progress
        if progress.then is not None:
            return replace(progress, state=progress.then, then=None, refused=progress.refused | {setting})
        # Where the earlier best itself is refused there is nothing to compare with: the search begins afresh.
        again = progress.again and bool(progress.windows)
        after = replace(progress, refused=progress.refused | {setting}, again=again)
        return self._held(after) if isinstance(progress.state, ProfileHeld) else self._next(after)

    def so_far(self, progress: ProfilingProgress) -> History[Setting]:
        """Return the cost of an iteration at each setting that was measured, while the search goes on."""
        allowed, history = self._allowed(progress), self._history(progress)
        return self.search.settled(allowed, history) if progress.windows and allowed else ()

    def given_up(self, progress: ProfilingProgress) -> ProfilingProgress:
        """Return the state where nothing can be set: the GPUs stay as they were found."""
        return replace(progress, state=ProfileHeld(None))

    def steps(self, progress: ProfilingProgress) -> int | None:
        """Return the number of iterations after which the counters are to be read: 0 after the epoch, None never."""
        match progress.state:
            case Checking():
                return 0
            case Settling(since=since):
                return self.windows.settle.steps_left(time_s=since.time_s, steps=since.steps)
            case Measuring(window=IntervalWindow(step_s)):
                return max(ceil(self.windows.shortest_interval_s / max(step_s, 1e-9)), 1)
            case ProfileHeld():
                return None

    def _checked(self, progress: ProfilingProgress, epoch: Interval) -> ProfilingProgress:
        """Hold the setting if its epoch agrees with the earlier profile, else start the search.

        Under a binding limit any job draws the limit, so power alone is not enough.
        """
        best = self._cached_best()
        if best is None:
            return self._next(progress)
        hotter = epoch.energy_j / epoch.time_s / best.cost.power_w - 1.0
        slower = epoch.time_s / best.cost.time_s - 1.0
        if abs(hotter) > self.power_distance or abs(slower) > self.time_distance:
            return self._next(progress)
        if self.extra_windows and self.search.propose(self._allowed(progress), self.cached) is not None:
            return replace(progress, state=Settling(best.choice, _SINCE_NOW), again=True)
        return self._compared(progress, ProfileHeld(best.choice))

    def _compared(self, progress: ProfilingProgress, held: ProfileHeld) -> ProfilingProgress:
        """Hold a setting of an earlier profile, after a window at the highest one where that is worth it."""
        highest = max(self._allowed(progress), default=None)
        if not self.windows.compares or highest is None or highest == held.choice:
            return replace(progress, state=held)
        return replace(progress, state=Settling(highest, _SINCE_NOW), then=held)

    def _measured(
        self, progress: ProfilingProgress, choice: Setting, window: IntervalWindow, interval: Interval
    ) -> ProfilingProgress:
        intervals = (*window.intervals, interval)
        cost = window_cost(intervals, self.windows.counter_period_s)
        time_s = sum(each.time_s for each in intervals)
        is_first = choice == self.candidates[-1] and all(trial.choice != choice for trial in progress.windows)
        until = self.windows.reference if is_first or progress.then is not None else self.windows.measure
        if not until.is_over(time_s=time_s, steps=len(intervals), error=standard_error(cost)):
            return replace(progress, state=Measuring(choice, replace(window, intervals=intervals)))
        if progress.then is not None:
            return replace(progress, state=progress.then, then=None)
        after = replace(progress, windows=(*progress.windows, Trial(choice, cost)))
        return self._held(after) if len(after.windows) >= self.most_windows else self._next(after)

    def _next(self, progress: ProfilingProgress) -> ProfilingProgress:
        """Return the state with the setting to measure next, or hold the best one."""
        allowed = self._allowed(progress)
        if self.windows.again and not progress.again and allowed:
            progress = _without_old(progress, max(allowed))
            if _is_too_fast(progress.windows, max(allowed)):
                return replace(progress, state=Settling(max(allowed), _SINCE_NOW))
        enough = progress.again and len(progress.windows) > self.extra_windows
        wanted = self.search.propose(allowed, self._history(progress)) if allowed and not enough else None
        wanted = wanted or self._reference_again(progress, allowed)
        return self._held(progress) if wanted is None else replace(progress, state=Settling(wanted, _SINCE_NOW))

    def _reference_again(self, progress: ProfilingProgress, allowed: tuple[Setting, ...]) -> Setting | None:
        """Return the highest setting where this search has measured it at its beginning alone."""
        highest = max(allowed, default=None)
        measured = [trial.choice for trial in progress.windows]
        once = len(measured) > 1 and measured[0] == highest and highest not in measured[1:]
        return highest if self.windows.again and once and not progress.again else None

    def _history(self, progress: ProfilingProgress) -> History[Setting]:
        """Return the cost of an iteration at each setting: the windows, and an earlier profile that is still valid.

        That profile is per epoch; its best setting was measured again in the first window, which gives the scale.
        """
        if not progress.again or not progress.windows:
            return progress.windows
        now = progress.windows[0]
        then = next(trial.cost for trial in self.cached if trial.choice == now.choice)
        shorter, cheaper = now.cost.time_s / then.time_s, now.cost.energy_j / then.energy_j
        earlier = tuple(Trial(trial.choice, rescaled(trial.cost, shorter, cheaper)) for trial in self.cached)
        return (*earlier, *progress.windows[1:])

    def _held(self, progress: ProfilingProgress) -> ProfilingProgress:
        allowed, history = self._allowed(progress), self._history(progress)
        if not history or not allowed:
            best = self._cached_best()
            usable = best is not None and best.choice in allowed
            return replace(progress, state=ProfileHeld(best.choice if usable and best else None))
        trials = self.search.settled(allowed, history)
        fit = any(trial.choice in allowed for trial in trials)
        return replace(progress, state=ProfileHeld(self.search.best(allowed, history) if fit else None, trials))

    def _allowed(self, progress: ProfilingProgress) -> tuple[Setting, ...]:
        return tuple(setting for setting in self.candidates if setting not in progress.refused)

    def _cached_best(self) -> Trial[Setting] | None:
        """Return the best setting of the earlier profile that is still a candidate."""
        known = tuple(trial for trial in self.cached if trial.choice in self.candidates)
        if not known:
            return None
        best = self.search.best(self.candidates, known)
        return next((trial for trial in known if trial.choice == best), None)


TOO_FAST, OTHER = 0.97, 0.03
"""A lower clock makes nothing faster; two windows at one setting that differ by more show that the program changed."""
MOST_RESTARTS = 3


def _is_too_fast(windows: History[Setting], highest: Setting) -> bool:
    """Return whether a lower setting was faster than the last window at the highest, since that was measured."""
    places = [place for place, window in enumerate(windows) if window.choice == highest]
    if not places:
        return False
    reference = windows[places[-1]].cost
    since = (window.cost for window in windows[places[-1] + 1 :])
    return any(cost.time_s + (cost.time_error_s or 0.0) < TOO_FAST * reference.time_s for cost in since)


def _without_old(progress: ProfilingProgress, highest: Setting) -> ProfilingProgress:
    """Drop the windows before the last one where that shows, at the highest setting, that the program became faster."""
    *earlier, last = progress.windows or (None,)
    before = next((one.cost for one in reversed(earlier) if one is not None and one.choice == highest), None)
    if last is None or before is None or last.choice != highest or progress.restarts >= MOST_RESTARTS:
        return progress
    if last.cost.time_s > (1.0 - OTHER) * before.time_s:
        return progress
    return replace(progress, windows=(last,), restarts=progress.restarts + 1)


def window_cost(intervals: tuple[Interval, ...], counter_period_s: float) -> Measurement:
    """Return the cost of an iteration from the intervals of a window, with the half-widths of its 95 % intervals."""
    steps = sum(interval.steps for interval in intervals)
    time_s, energy_j = (sum(getattr(interval, name) for interval in intervals) for name in ("time_s", "energy_j"))
    if not (steps and time_s > 0):
        raise ValueError("a window has iterations that take time")
    parts = 1 + sum(not interval.joined for interval in intervals[1:])
    counter = sqrt(parts / 6) * counter_period_s / time_s
    time_error = _scatter([interval.time_s / interval.steps for interval in intervals])
    powers = _scatter(
        [interval.energy_j / interval.time_s for interval in intervals],
        counter=sum((counter_period_s / interval.time_s) ** 2 / 6 for interval in intervals),
    )
    energy_error = hypot(counter, time_error, powers)
    return Measurement(
        time_s / steps,
        energy_j / steps,
        SIGMAS_95 * time_error * time_s / steps,
        SIGMAS_95 * energy_error * energy_j / steps,
    )


def standard_error(cost: Measurement) -> float:
    """Return the larger of the relative standard errors of time and energy; 1 where one is not known."""
    if cost.time_error_s is None or cost.energy_error_j is None or not (cost.time_s and cost.energy_j):
        return 1.0
    return max(cost.time_error_s / cost.time_s, cost.energy_error_j / cost.energy_j) / SIGMAS_95


def _scatter(rates: list[float], *, counter: float = 0.0) -> float:
    """Return the relative standard error of the mean of a rate over intervals of about equal length.

    `counter` is the sum of squares that the counter adds, which does not count.
    """
    mean = sum(rates) / len(rates)
    if mean <= 0:
        return 1.0
    squares = max(sum((rate / mean - 1.0) ** 2 for rate in rates) - counter, 0.0)
    total = squares + _PRIOR_INTERVALS * USUAL_SCATTER**2
    return sqrt(total / (len(rates) - 1 + _PRIOR_INTERVALS) / len(rates))


def rescaled(cost: Measurement, more_time: float, more_energy: float) -> Measurement:
    """Scale a cost and its errors."""
    return Measurement(
        cost.time_s * more_time,
        cost.energy_j * more_energy,
        None if cost.time_error_s is None else cost.time_error_s * more_time,
        None if cost.energy_error_j is None else cost.energy_error_j * more_energy,
    )
