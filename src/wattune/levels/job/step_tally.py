"""Time and energy of the steps of a run: from step to step, without the start, pauses between steps, and the end.

A read of the energy counters stands beside the end of a step. Between two reads the steps took the time from end to
end, at the mean power between the counts, whose own times may differ from those of the steps. A counter with a period
of τ seconds is off by up to τ·P at both ends of a segment without a pause: a standard error of τ·P/√6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from statistics import median

from wattune.control.step_time import STALL
from wattune.core.job import StepAccount
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.reading import Count
from wattune.levels.job.profiling import Interval, window_cost
from wattune.response.evidence import LEAST_ERROR, USUAL_ERROR
from wattune.response.statistics import weighted_mean

INTERVAL_S = 1.0
"""Least length of an interval at the default, whose scatter shows the error of its mean."""
MOST_INTERVALS = 128
"""Of more intervals, two become one."""
_LATEST, _FEWEST = 64, 4
_MOST_LONG = 0.2
"""Share of the latest gaps between steps: where more of them are long, they are of the program's work and no pauses."""


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
    own = USUAL_ERROR * value if half_width is None else half_width / SIGMAS_95
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


class StepTally:
    """The account of a run so far, for the GPUs of this process."""

    def __init__(self, *, counter_period_s: float, interval_s: float = INTERVAL_S) -> None:
        self._period_s, self._interval_s = counter_period_s, interval_s
        self._count, self._cost = 0, Measurement(0.0, 0.0, 0.0, 0.0)
        self._from: CounterRead | None = None
        self._to: CounterRead | None = None
        self._default_from: CounterRead | None = None
        self._joined = False
        self._default: list[Interval] = []

    @property
    def latest_s(self) -> float | None:
        """When the last step that was read ended; None after a pause."""
        return None if self._to is None else self._to.ended_s

    def read(self, read: CounterRead, *, is_default: bool) -> None:
        """Add the steps since the last read; `is_default` where the default setting has settled by now."""
        if read.counts is None:
            self.pause()
            return
        self._from, self._to = self._from or read, read
        if not is_default:
            return
        if self._default_from is None:
            self._default_from, self._joined = read, False
        elif read.ended_s - self._default_from.ended_s >= self._interval_s:
            self._add_default(self._default_from, read)

    def begin_again(self) -> None:
        """Forget the steps until the last window at the default: the program had not got going before."""
        windows = _windows(self._default)
        self._default = list(windows[-1]) if windows else []
        kept = self._default
        cost = Measurement(sum(one.time_s for one in kept), sum(one.energy_j for one in kept), 0.0, 0.0)
        self._count, self._cost, self._from = sum(one.steps for one in kept), cost, self._to

    def change(self) -> None:
        """Note that another setting is held from now on."""
        self._default_from = None

    def pause(self) -> None:
        """Note that the next read is not to be compared with the last one."""
        if self._from is not None and self._to is not None and self._to.steps > self._from.steps:
            self._count, self._cost = self._with_open()
        self._from = self._to = self._default_from = None

    def account(self, total: int, *, unit: str = "step") -> StepAccount:
        """Return the account of the steps until now, of which there were so many."""
        count, cost = self._with_open()
        steps = sum(interval.steps for interval in self._default)
        account = StepAccount(total=total, count=count, cost=cost, unit=unit)
        if not steps:
            return account
        each = pooled_cost([window_cost(window, self._period_s) for window in _windows(self._default)])
        return replace(account, default_count=steps, default_cost=each / (1 / steps))

    def _with_open(self) -> tuple[int, Measurement]:
        if self._from is None or self._to is None:
            return self._count, self._cost
        cost = cost_between(self._from, self._to)
        if cost is None or not cost.energy_j:
            return self._count, self._cost
        error_j = SIGMAS_95 * self._period_s * cost.power_w / sqrt(6)
        known = Measurement(cost.time_s, cost.energy_j, 0.0, error_j)
        return self._count + self._to.steps - self._from.steps, self._cost + known

    def _add_default(self, before: CounterRead, after: CounterRead) -> None:
        cost, steps = cost_between(before, after), after.steps - before.steps
        if cost is not None and cost.energy_j > 0 and steps:
            self._default.append(Interval(steps, cost.time_s, cost.energy_j, self._joined))
        self._default_from, self._joined = after, True
        if len(self._default) > MOST_INTERVALS:
            self._default = [_both(*pair) for pair in zip(self._default[::2], self._default[1::2], strict=False)]
            self._interval_s *= 2


def _windows(intervals: Sequence[Interval]) -> list[tuple[Interval, ...]]:
    """Split intervals where one does not follow directly on the last."""
    starts = [place for place, one in enumerate(intervals) if not place or not one.joined]
    ends = (*starts[1:], len(intervals))
    return [tuple(intervals[start:end]) for start, end in zip(starts, ends, strict=True)]


def _both(first: Interval, second: Interval) -> Interval:
    steps, time_s, energy_j = (
        first.steps + second.steps,
        first.time_s + second.time_s,
        first.energy_j + second.energy_j,
    )
    return Interval(steps, time_s, energy_j, first.joined and second.joined)
