"""Time and energy of the steps of a run: from step to step, without the start, pauses between steps, and the end.

The energy counters are read when they move, or with a known age (`control.counter_edges`), and the steps by then are
counted with the part of the one under way. A reading counts once a step has ended after it, so that none lies in a
pause. Windows at the default setting are those of `wattune run`: the step time by the scatter of steps, the power by
its variation and the moments at which the counters moved at both ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf
from statistics import median

from wattune.control.state import as_one, between
from wattune.control.step_time import STALL, StepMarks
from wattune.control.window_totals import Tally
from wattune.core.job import StepAccount
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.reading import Count, CountedReading
from wattune.core.setting import DRIVER_DEFAULT
from wattune.response.statistics import weighted_mean

_LATEST, _FEWEST = 64, 4
_MOST_LONG = 0.2
"""Share of the latest gaps between steps: where more of them are long, they are of the program's work and no pauses."""
LEAST_ERROR = 0.0005
"""Least relative standard error of a cost: counters and programs drift."""
UNSURE = 0.02
"""Relative error of the time of a step in a window of too few steps to show their scatter."""

_NONE_YET = Measurement(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CounterRead:
    """The counters beside the end of a step; None where one of them did not answer."""

    steps: int
    """Since the start of the run."""
    ended_s: float
    """When the last of them ended, by the time of the first GPU."""
    counts: tuple[Count, ...] | None


def spent_between(before: Sequence[Count] | None, after: Sequence[Count] | None) -> Measurement | None:
    """Return what several GPUs spent between two readings of their counters; None where a counter was set back."""
    if before is None or after is None:
        return None
    try:
        return Measurement.together(map(Measurement.between, before, after))
    except ValueError:
        return None


def cost_between(before: CounterRead, after: CounterRead) -> Measurement | None:
    """Return the cost of the steps between two reads, without energy where no counter has moved; None where a counter
    did not answer or was set back."""
    if before.counts is None or after.counts is None:
        return None
    try:
        each = tuple(map(Measurement.between, before.counts, after.counts))
    except ValueError:
        return None
    time_s = max(after.ended_s - before.ended_s, 0.0)
    return Measurement(time_s, time_s * sum(one.power_w for one in each))


def of_all(account: StepAccount, powers_w: Sequence[float]) -> StepAccount:
    """Return the account of all ranks, of this rank's: the sums of their mean powers, of all steps and the default."""
    default = account.default_cost and _at(account.default_cost, powers_w[1])
    return replace(account, cost=_at(account.cost, powers_w[0]), default_cost=default)


def _at(cost: Measurement, power_w: float) -> Measurement:
    energy_j = power_w * cost.time_s
    error_j = cost.energy_error_j
    if error_j is not None and cost.energy_j > 0:
        error_j *= energy_j / cost.energy_j
    return replace(cost, energy_j=energy_j, energy_error_j=error_j)


def pooled_cost(each: Sequence[Measurement]) -> Measurement:
    """Average the cost of a step over measurements, with an error that grows where they differ by more than theirs."""
    time_s, time_sd = weighted_mean([(one.time_s, _sd(one.time_s, one.time_error_s)) for one in each])
    energy_j, energy_sd = weighted_mean([(one.energy_j, _sd(one.energy_j, one.energy_error_j)) for one in each])
    return Measurement(time_s, energy_j, SIGMAS_95 * time_sd, SIGMAS_95 * energy_sd)


def _sd(value: float, half_width: float | None) -> float:
    own = (UNSURE * value if half_width is None else half_width) / SIGMAS_95
    return max(hypot(own, LEAST_ERROR * value), 1e-12)


class Pauses:
    """Finds the pauses between steps, such as evaluations and checkpoints."""

    def __init__(self) -> None:
        self._ended_s: float | None = None
        self._gaps_s: deque[float] = deque(maxlen=_LATEST)

    def is_pause(self, ended_s: float, count: int) -> bool:
        """Add steps, the last of which ended at this time; return whether a pause was before them."""
        before_s, self._ended_s = self._ended_s, ended_s
        if before_s is None:
            return True
        gap_s = (ended_s - before_s) / max(count, 1)
        gaps_s = tuple(self._gaps_s)
        self._gaps_s.append(gap_s)
        if len(gaps_s) < _FEWEST:
            return False
        long_s = STALL * median(gaps_s)
        return gap_s > long_s and sum(one > long_s for one in gaps_s) <= _MOST_LONG * len(gaps_s)


@dataclass(frozen=True, slots=True)
class _Unplaced:
    """Readings of all GPUs at about one moment, after which no step has ended yet."""

    each: tuple[CountedReading, ...]
    window: int | None

    @property
    def first_s(self) -> float:
        return min(one.exact_s for one in self.each)

    @property
    def last_s(self) -> float:
        return max(one.exact_s for one in self.each)


class StepTally:
    """The account of a run so far, for the GPUs of this process."""

    def __init__(self, gpus: int) -> None:
        self._gpus, self._marks = gpus, StepMarks()
        self._unplaced: deque[_Unplaced] = deque(maxlen=_LATEST)
        self._since_s = inf
        """The end of the first step since the last pause."""
        self._count, self._cost = 0.0, _NONE_YET
        """Of all segments between pauses but the present one."""
        self._first: CountedReading | None = None
        self._last: CountedReading | None = None
        self._default: Tally | None = None
        self._number: int | None = None
        """That of the present window at the default."""
        self._windows: list[tuple[float, Measurement]] = []
        """Steps, and the cost of a step, of the windows at the default that have ended."""

    def begin(self, time_s: float) -> None:
        """Note when the first step begins, where that is known."""
        self._marks.add(time_s, 0)
        self._since_s = time_s

    def step(self, ended_s: float, count: int) -> None:
        """Add steps, the last of which ended at this time."""
        self._marks.add(ended_s, count)
        self._since_s = min(self._since_s, ended_s)
        self._place()

    def read(self, each: tuple[CountedReading, ...], *, window: int | None) -> None:
        """Add a reading of each GPU; `window` is the number of a window at the default that has settled by now."""
        if each and self._since_s < inf:
            self._unplaced.append(_Unplaced(each, window))
            self._place()

    def pause(self) -> None:
        """Note that what follows the last step is a pause, until the end of the next one."""
        if self._first is not None and self._last is not None:
            more, cost = _between(self._first, self._last, self._gpus)
            self._count, self._cost = self._count + more, self._cost + cost
        self._end_window()
        self._unplaced.clear()
        self._first = self._last = None
        self._since_s = inf

    def begin_again(self) -> None:
        """Forget the steps until the last window at the default: the program had not got going before."""
        if self._default is not None and isinstance(self._default.first, CountedReading):
            self._windows, self._first = [], self._default.first
        else:
            self._windows, self._first = self._windows[-1:], self._last
        self._count = sum(steps for steps, _ in self._windows)
        self._cost = sum((replace(each / (1 / steps)) for steps, each in self._windows), _NONE_YET)

    def account(self, total: int, *, unit: str = "step") -> StepAccount:
        """Return the account of the steps until now, of which there were so many."""
        exact, cost = self._count, self._cost
        if self._first is not None and self._last is not None:
            more, open_cost = _between(self._first, self._last, self._gpus)
            exact, cost = exact + more, cost + open_cost
        count = round(exact)
        if not count:
            return StepAccount(total=total, unit=unit)
        account = StepAccount(total=total, count=count, cost=cost / (exact / count), unit=unit)
        windows = [*self._windows, *self._present_window()]
        steps = round(sum(one for one, _ in windows))
        if not steps:
            return account
        each = pooled_cost([each for _, each in windows])
        return replace(account, default_count=steps, default_cost=each / (1 / steps))

    def _place(self) -> None:
        """Add the readings before the end of the last step."""
        while self._unplaced and self._unplaced[0].last_s <= self._marks.ended_s:
            one = self._unplaced.popleft()
            reading = as_one(one.each)
            steps = self._marks.steps_at(reading.exact_s)
            if one.first_s >= self._since_s and steps is not None and isinstance(reading, CountedReading):
                self._add(replace(reading, steps=steps), one.window)

    def _add(self, reading: CountedReading, window: int | None) -> None:
        if self._last is not None and (reading.energy_j or 0.0) < (self._last.energy_j or 0.0):
            since_s = self._since_s
            self.pause()  # the counter was set back
            self._since_s = since_s
        self._first, self._last = self._first or reading, reading
        if window != self._number:
            self._end_window()
        self._number = window
        if window is None:
            return
        if self._default is None:
            self._default = Tally.begun(reading, step_s=self._marks.usual_s)
        else:
            self._default = self._default.add(reading, DRIVER_DEFAULT)

    def _end_window(self) -> None:
        self._windows += self._present_window()
        self._default = None

    def _present_window(self) -> tuple[tuple[float, Measurement], ...]:
        """Return the steps and the cost of a step in the present window at the default; nothing where it shows none."""
        window = self._default
        if window is None or window.last is None:
            return ()
        steps, cost = (window.last.steps or 0.0) - (window.first.steps or 0.0), window.cost
        if steps <= 0 or not cost.time_s or not cost.energy_j:
            return ()
        step_time = self._marks.between(window.first.exact_s, window.last.exact_s)
        share = UNSURE if step_time is None or step_time.relative_error is None else step_time.relative_error
        energy_share = hypot(share, (cost.energy_error_j or 0.0) / cost.energy_j)
        time_s, energy_j = cost.time_s / steps, self._gpus * cost.energy_j / steps
        return ((steps, Measurement(time_s, energy_j, share * time_s, energy_share * energy_j)),)


def _between(first: CountedReading, last: CountedReading, gpus: int) -> tuple[float, Measurement]:
    """Return the steps between two readings, and their cost: an error of the moment of a move is one of the energy."""
    mean = between(first, last)
    error_j = gpus * mean.power_w * hypot(first.exact_error_s, last.exact_error_s)
    steps = (last.steps or 0.0) - (first.steps or 0.0)
    return steps, Measurement(mean.time_s, gpus * mean.energy_j, 0.0, error_j)
