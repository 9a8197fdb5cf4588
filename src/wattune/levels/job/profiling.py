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

from wattune.core.frontier import History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.response.setting_search import SettingSearch

USUAL_SCATTER = 0.01
"""Prior of the relative standard deviation of seconds of training, with the weight of two intervals."""

_PRIOR_INTERVALS = 2

EXTRA_WINDOWS = 3
"""Most windows that a run adds to an existing profile of its batch size."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Work of all GPUs of the job: a number of iterations, and their time and energy."""

    steps: int
    time_s: float
    energy_j: float
    joined: bool = False
    """Whether it follows directly on the previous interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How long a setting is measured."""

    counter_period_s: float = 0.1
    """Period of the energy counter; 100 ms is the slowest of data-centre GPUs (A100, H100)."""
    warm_steps: int = 3
    warm_s: float = 0.5
    """After a switch; clocks settle within 0.1 s, data loaders and power within a few more iterations."""
    interval_s: float = 1.0
    fewest: int = 4
    """Least number of intervals in a window."""
    good: float = 0.01
    """Relative standard error of time and energy at which a window ends."""
    longest_s: float = 15.0
    """A window ends here even if it still scatters; one iteration that takes longer is a window."""

    @property
    def shortest_interval_s(self) -> float:
        """Ten periods of the counter at least, so that the counter does not add to the scatter."""
        return max(self.interval_s, 10 * self.counter_period_s)


ONE_INTERVAL = Windows(warm_steps=0, warm_s=0.0, fewest=1, longest_s=0.0)
"""Every interval is a window: for programs that report epochs only, and for replays of tables, whose intervals are
whole epochs and whose energies come from no counter (`counter_period_s=0`)."""


@dataclass(frozen=True, slots=True)
class KnownProfile:
    """Results of this run: windows, whose costs are per iteration, and settings that the GPU refused."""

    windows: History[Setting] = ()
    refused: frozenset[Setting] = frozenset()
    again: bool = False
    """Whether an earlier profile is valid and gets extra windows; the first one is then at its best setting."""


@dataclass(frozen=True, slots=True)
class Checking:
    """The best setting of an earlier profile is held for an epoch, to check that profile."""

    known: KnownProfile
    setting: Setting


@dataclass(frozen=True, slots=True)
class Warming:
    """A setting was just applied; this work does not count."""

    known: KnownProfile
    setting: Setting
    steps: int = 0
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ProfileMeasuring:
    """A window at a setting is being measured."""

    known: KnownProfile
    setting: Setting
    step_s: float
    """Approximate time of an iteration."""
    intervals: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileHeld:
    """The search is over; None leaves the GPUs as they were found."""

    known: KnownProfile
    setting: Setting | None
    trials: History[Setting] = field(default=(), repr=False)
    """Per iteration, one for each setting that was measured; empty where an earlier profile is still valid."""


Progress = Checking | Warming | ProfileMeasuring | ProfileHeld


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProfiling:
    """Finds the best setting. `cached` is an earlier profile of the same job, batch size and GPU model, per epoch."""

    search: SettingSearch
    candidates: tuple[Setting, ...]
    windows: Windows = Windows()
    cached: History[Setting] = ()
    most_windows: int = 30
    """A search that has not ended after so many windows ends with the best setting so far."""
    extra_windows: int = EXTRA_WINDOWS
    """Most windows that a run adds to an earlier profile that is still valid."""
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

    def start(self) -> Progress:
        """Return the state at the start: a check of the earlier best setting where there is one, else the first
        setting."""
        best = self._cached_best()
        return self._next(KnownProfile()) if best is None else Checking(KnownProfile(), best.choice)

    def step(self, progress: Progress, interval: Interval) -> Progress:
        """Return the state after one more interval of work at the current setting; while checking, after an epoch."""
        match progress:
            case Checking():
                return self._checked(progress, interval)
            case Warming():
                return self._warmed(progress, interval)
            case ProfileMeasuring():
                return self._measured(progress, interval)
            case ProfileHeld():
                return progress

    def refused(self, progress: Progress) -> Progress:
        """Return the state after the GPU refused the current setting."""
        setting, known = progress.setting, progress.known
        if setting is None:
            return progress
        # Where the earlier best itself is refused there is nothing to compare with: the search begins afresh.
        again = known.again and bool(known.windows)
        known = replace(known, refused=known.refused | {setting}, again=again)
        return self._held(known) if isinstance(progress, ProfileHeld) else self._next(known)

    def given_up(self, progress: Progress) -> ProfileHeld:
        """Return the state where nothing can be set: the GPUs stay as they were found."""
        return ProfileHeld(progress.known, None)

    def steps(self, progress: Progress) -> int | None:
        """Return the number of iterations after which the counters are to be read: 0 after the epoch, None never."""
        match progress:
            case Checking():
                return 0
            case Warming(steps=0):
                return max(self.windows.warm_steps, 1)
            case Warming(steps=done, time_s=time_s):
                return max(ceil((self.windows.warm_s - time_s) / max(time_s / done, 1e-9)), 1)
            case ProfileMeasuring(step_s=step_s):
                return max(ceil(self.windows.shortest_interval_s / max(step_s, 1e-9)), 1)
            case ProfileHeld():
                return None

    def _checked(self, progress: Checking, epoch: Interval) -> Progress:
        """Hold the setting if its epoch agrees with the earlier profile, else start the search.

        Under a binding limit any job draws the limit, so power alone is not enough.
        """
        best = self._cached_best()
        if best is None:
            return self._next(progress.known)
        hotter = epoch.energy_j / epoch.time_s / best.cost.power_w - 1.0
        slower = epoch.time_s / best.cost.time_s - 1.0
        if abs(hotter) > self.power_distance or abs(slower) > self.time_distance:
            return self._next(progress.known)
        if self.extra_windows and self.search.propose(self._allowed(progress.known), self.cached) is not None:
            return Warming(replace(progress.known, again=True), progress.setting)
        return ProfileHeld(progress.known, progress.setting)

    def _warmed(self, progress: Warming, interval: Interval) -> Progress:
        steps, time_s = progress.steps + interval.steps, progress.time_s + interval.time_s
        if self.windows.warm_steps == 0:
            return self._measured(
                ProfileMeasuring(progress.known, progress.setting, interval.time_s / interval.steps), interval
            )
        if steps >= self.windows.warm_steps and time_s >= self.windows.warm_s:
            return ProfileMeasuring(progress.known, progress.setting, interval.time_s / interval.steps)
        return replace(progress, steps=steps, time_s=time_s)

    def _measured(self, progress: ProfileMeasuring, interval: Interval) -> Progress:
        intervals = (*progress.intervals, interval)
        cost = window_cost(intervals, self.windows.counter_period_s)
        if not self._is_enough(intervals, cost):
            return replace(progress, intervals=intervals)
        known = replace(progress.known, windows=(*progress.known.windows, Trial(progress.setting, cost)))
        return self._held(known) if len(known.windows) >= self.most_windows else self._next(known)

    def _is_enough(self, intervals: tuple[Interval, ...], cost: Measurement) -> bool:
        if sum(interval.time_s for interval in intervals) >= self.windows.longest_s:
            return True
        return len(intervals) >= self.windows.fewest and standard_error(cost) <= self.windows.good

    def _next(self, known: KnownProfile) -> Progress:
        """Return the warm-up of the setting to measure next, or hold the best one."""
        allowed = self._allowed(known)
        enough = known.again and len(known.windows) > self.extra_windows
        wanted = self.search.propose(allowed, self._history(known)) if allowed and not enough else None
        return self._held(known) if wanted is None else Warming(known, wanted)

    def _history(self, known: KnownProfile) -> History[Setting]:
        """Return the cost of an iteration at each setting: the windows, and an earlier profile that is still valid.

        That profile is per epoch; its best setting was measured again in the first window, which gives the scale.
        """
        if not known.again or not known.windows:
            return known.windows
        now = known.windows[0]
        then = next(trial.cost for trial in self.cached if trial.choice == now.choice)
        shorter, cheaper = now.cost.time_s / then.time_s, now.cost.energy_j / then.energy_j
        earlier = tuple(Trial(trial.choice, rescaled(trial.cost, shorter, cheaper)) for trial in self.cached)
        return (*earlier, *known.windows[1:])

    def _held(self, known: KnownProfile) -> ProfileHeld:
        allowed = self._allowed(known)
        history = self._history(known)
        if not history or not allowed:
            best = self._cached_best()
            usable = best is not None and best.choice in allowed
            return ProfileHeld(known, best.choice if usable and best else None)
        trials = self.search.settled(allowed, history)
        fit = tuple(trial for trial in trials if trial.choice in allowed)
        best_setting = self.search.best(allowed, history) if fit else None
        return ProfileHeld(known, best_setting, trials)

    def _allowed(self, known: KnownProfile) -> tuple[Setting, ...]:
        return tuple(setting for setting in self.candidates if setting not in known.refused)

    def _cached_best(self) -> Trial[Setting] | None:
        """Return the best setting of the earlier profile that is still a candidate."""
        known = tuple(trial for trial in self.cached if trial.choice in self.candidates)
        if not known:
            return None
        best = self.search.best(self.candidates, known)
        return next((trial for trial in known if trial.choice == best), None)


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
