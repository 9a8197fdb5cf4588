"""The step time of a program between two instants, from steps that are counted, or as a period of its power.

The unit of work has to be the same at every setting. A program reports its steps; its power may have several periods,
one inside the other. So once one of them was chosen at the baseline, the same one is searched for at other settings,
within bounds that physics sets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot, log
from statistics import fmean, median
from threading import Lock

from wattune.control.state import StepsDone, StepTime
from wattune.control.window_totals import mean_error

STALL = 3.0
"""Times the usual duration of a step: jitter stays well below, evaluations and checkpoints lie well above."""
_MOST = 0.2
"""Share of intervals: where more of them are long, they belong to the program's work and are no stalls."""


def without_stalls(times_s: Sequence[float], counts: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """Return the times without stalls, each replaced by its usual time, and how long the stalls took.

    `counts` is how many steps were over by each time.
    """
    extra_s = _stalls_s(times_s, counts)
    moved, lost_s = list(times_s[:1]), 0.0
    for time_s, one in zip(times_s[1:], extra_s, strict=True):
        lost_s += one
        moved.append(time_s - lost_s)
    return tuple(moved), lost_s


def between_stalls(times_s: Sequence[float], counts: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """Return the places of the first and the last of these times in each part without a stall."""
    starts = [0, *(place + 1 for place, one in enumerate(_stalls_s(times_s, counts)) if one)]
    ends = [*(start - 1 for start in starts[1:]), len(times_s) - 1]
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if end > start)


def _stalls_s(times_s: Sequence[float], counts: Sequence[float]) -> list[float]:
    """Return for each interval between two times how much longer a stall made it; 0 where there was none."""
    pairs = zip(pairwise(times_s), pairwise(counts), strict=True)
    spans = [(late - early, after - before) for (early, late), (before, after) in pairs]
    usual_s = _usual_s(spans)
    if usual_s is None:
        return [0.0] * len(spans)
    extra_s = [span_s - usual_s * steps if span_s > STALL * usual_s * max(steps, 1) else 0.0 for span_s, steps in spans]
    return [0.0] * len(spans) if sum(one > 0 for one in extra_s) > _MOST * len(spans) else extra_s


def _usual_s(spans: Sequence[tuple[float, float]]) -> float | None:
    """Return the usual time of one step; None of too few."""
    each_s = [span_s / steps for span_s, steps in spans if steps > 0]
    usual_s = median(each_s) if len(each_s) >= 4 else 0.0
    return usual_s if usual_s > 0 else None


LEAST_MARKS = 5
"""Fewest marks for a step time: less show nothing of its scatter."""
GROUPS = 12
"""Intervals whose scatter gives the error; more of them would be too short to be independent."""
GROUP_STEPS, LEAST_GROUP_STEPS = 16, 6
"""Steps in a group: few enough that most groups have no delay of the host, and many enough that a step that ends late,
and the next one early, make no difference."""
_OUTLIER = 6.0
"""Times the median distance from the median: four standard deviations of a normal distribution."""
LEAST_ERROR = 5e-4
"""Smallest relative error of a step time: clocks drift, and steps are stamped a little late."""
LATEST = 20
"""Marks that show how long a step takes at present."""
KEPT = 200_000
"""Marks that are kept: an hour of fifty a second."""

FASTER, SLOWER = 0.93, 1.08
"""A lower clock makes nothing faster, and nothing slower than in proportion: bounds with room for errors."""
UNKNOWN = 1.6
"""The same where the clock is unknown: less than the ratio of two steps to one."""


class StepMarks:
    """The times at which steps were done; filled from the program's thread, read from ours."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._counts: list[int] = []
        self._lock = Lock()

    def add(self, time_s: float, count: int = 1) -> None:
        """Add steps that ended at this time; one before the last mark counts as at that."""
        with self._lock:
            self._times_s.append(max(time_s, self._times_s[-1]) if self._times_s else time_s)
            self._counts.append((self._counts[-1] if self._counts else 0) + count)
            if len(self._times_s) > KEPT:
                del self._times_s[: KEPT // 2], self._counts[: KEPT // 2]

    @property
    def total(self) -> int:
        return self._counts[-1] if self._counts else 0

    @property
    def latest(self) -> StepsDone | None:
        """The steps until now; None before the first."""
        step_s = self.usual_s
        with self._lock:
            return StepsDone(self._counts[-1], self._times_s[-1], step_s) if self._counts else None

    @property
    def ended_s(self) -> float:
        """The end of the last step; before all times where there was none."""
        with self._lock:
            return self._times_s[-1] if self._times_s else float("-inf")

    def steps_at(self, time_s: float) -> float | None:
        """Return the steps by a time, with the part of the one under way; None where no mark is before or after it."""
        with self._lock:
            place = bisect_right(self._times_s, time_s)
            if not place or time_s > self._times_s[-1]:
                return None
            if place == len(self._times_s):
                return float(self._counts[-1])
            (low_s, high_s), (low, high) = self._times_s[place - 1 : place + 1], self._counts[place - 1 : place + 1]
        return low + (high - low) * (time_s - low_s) / (high_s - low_s)

    @property
    def usual_s(self) -> float | None:
        """The mean time of the latest steps; None of fewer than two."""
        with self._lock:
            times_s, counts = self._times_s[-LATEST:], self._counts[-LATEST:]
        steps = counts[-1] - counts[0] if counts else 0
        return (times_s[-1] - times_s[0]) / steps if steps else None

    def between(self, start_s: float, end_s: float) -> StepTime | None:
        """Return the step time between two instants; None where there were too few steps."""
        with self._lock:
            low, high = bisect_left(self._times_s, start_s), bisect_right(self._times_s, end_s)
            times_s, counts = self._times_s[low:high], self._counts[low:high]
        moved_s, lost_s = without_stalls(times_s, counts)
        found = counted_step_time(moved_s, counts)
        if found is None or not lost_s:
            return found
        return replace(found, delayed=1.0 - (1.0 - found.delayed) * (1.0 - lost_s / (times_s[-1] - times_s[0])))

    @property
    def every(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """All times that are kept, and how many steps were done by each."""
        with self._lock:
            return tuple(self._times_s), tuple(self._counts)

    def restart(self) -> None:
        """Forget all marks but the last, since steps are others from there on."""
        with self._lock:
            del self._times_s[:-1], self._counts[:-1]


def counted_step_time(times_s: Sequence[float], counts: Sequence[float]) -> StepTime | None:
    """Return the step time from numbers and times of steps, with an error from the scatter of its intervals.

    A busy host delays a step now and then. Most short groups of steps have no delay, so that the others stand out; the
    step time is without those, since no setting made them. The error covers them: they could be work.
    """
    marks = len(times_s) - 1
    if len(times_s) < LEAST_MARKS or counts[-1] == counts[0] or times_s[-1] <= times_s[0]:
        return None
    mean_s = (times_s[-1] - times_s[0]) / (counts[-1] - counts[0])
    means_s = _group_means(times_s, counts, max(marks // GROUP_STEPS, GROUPS))
    usual_s = _usual(means_s) if marks >= GROUPS * LEAST_GROUP_STEPS else means_s
    step_time_s = mean_s if len(usual_s) == len(means_s) else fmean(usual_s)
    places = _places(len(usual_s), GROUPS)
    scatter_s = mean_error([fmean(usual_s[start:end]) for start, end in pairwise(places)])
    if scatter_s is None:
        return None
    error_s = max(hypot(scatter_s, mean_s - step_time_s), LEAST_ERROR * step_time_s)
    return StepTime(step_time_s, error_s, delayed=1.0 - step_time_s / mean_s)


def _group_means(times_s: Sequence[float], counts: Sequence[float], groups: int) -> list[float]:
    """Return the mean time of a step in each of so many groups of marks in order."""
    places = _places(len(times_s) - 1, groups)
    return [(times_s[b] - times_s[a]) / (counts[b] - counts[a]) for a, b in pairwise(places) if counts[b] > counts[a]]


def _places(length: int, parts: int) -> list[int]:
    """Return where so many parts of a list begin and end; fewer where it is shorter."""
    parts = min(parts, length)
    return [round(place * length / parts) for place in range(parts + 1)]


def _usual(values: Sequence[float]) -> list[float]:
    """Return the values that do not stand out from the others."""
    middle = median(values)
    spread = _OUTLIER * median(abs(value - middle) for value in values)
    return [value for value in values if abs(value - middle) <= max(spread, LEAST_ERROR * middle)]


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """The period of a program's power at known clocks."""

    period_s: float
    sm_mhz: float | None = None
    mem_mhz: float | None = None

    def bounds_s(self, *, sm_mhz: float | None, mem_mhz: float | None) -> tuple[float, float]:
        """Return the bounds of the period at other clocks."""
        ratios = (_ratio(self.sm_mhz, sm_mhz), _ratio(self.mem_mhz, mem_mhz))
        if ratios[0] is None:
            return self.period_s / UNKNOWN, self.period_s * UNKNOWN
        fastest = slowest = 1.0
        for ratio in ratios:
            fastest *= min(ratio or 1.0, 1.0)
            slowest *= max(ratio or 1.0, 1.0)
        return FASTER * self.period_s * fastest, SLOWER * self.period_s * slowest


def same_unit(
    unit: WorkUnit, found: Sequence[tuple[float, float | None]], *, sm_mhz: float | None, mem_mhz: float | None = None
) -> StepTime | None:
    """Return which of the periods found, each with its error, is the unit at these clocks; None where none can be."""
    low_s, high_s = unit.bounds_s(sm_mhz=sm_mhz, mem_mhz=mem_mhz)
    within = [(period_s, error_s) for period_s, error_s in found if low_s <= period_s <= high_s]
    if not within:
        return None
    middle = (log(low_s) + log(high_s)) / 2
    period_s, error_s = min(within, key=lambda one: abs(log(one[0]) - middle))
    return StepTime(period_s, error_s, "period")


def _ratio(first: float | None, second: float | None) -> float | None:
    return None if not first or not second else first / second
