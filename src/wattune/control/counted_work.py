"""The work of a program between the first and the last step that was counted, without pauses, and what lies before it.

Start-up (imports, data, compilation, warm-up) takes the same time at every clock or a random one, and its share depends
on how long the program runs. So do pauses between steps, such as evaluations. So settings are compared by steps
wherever steps are seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import hypot
from operator import add

from wattune.control.progress_estimator import PATTERN
from wattune.control.step_file import BAR, OPTIMIZER
from wattune.control.step_time import StepMarks, between_stalls, counted_step_time, without_stalls
from wattune.control.window_totals import IDLE
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.refresh import Refresh
from wattune.devices.counter_trace import edge_distance_s


@dataclass(frozen=True, slots=True)
class CountedWork:
    """Steps of a program, and their time and energy on all its GPUs."""

    source: str
    """What counted them: optimizer, progress bar, pattern, or the form of the program's output."""
    steps: int
    """Those after the first one that was seen."""
    cost: Measurement
    """From the moment of that one to the moment of the last, without pauses."""
    before_s: float
    """From the start of the program to the first one that was seen."""

    @property
    def per_step(self) -> Measurement:
        return self.cost / self.steps

    @property
    def counted_by(self) -> str:
        """What counted them, in words."""
        if self.source == PATTERN:
            return "the pattern"
        own = self.source if self.source in (OPTIMIZER, BAR) else f"output ({self.source})"
        return f"the program's {own}"

    def __add__(self, other: CountedWork) -> CountedWork:
        """Join the work of two runs of the program."""
        return CountedWork(
            self.source, self.steps + other.steps, self.cost + other.cost, self.before_s + other.before_s
        )


_TRIED_SHARE, _MOST_TRIED = 6, 20
"""One in so many marks, and at most so many, may be left out at either end."""


@dataclass(frozen=True, slots=True)
class CountedSpan:
    """The first and the last step that was counted, in the time of the GPU."""

    source: str
    steps: int
    parts: tuple[tuple[float, float], ...]
    """The start and the end of each part without a pause."""
    relative_error: float | None
    """Of the mean step time, by the scatter of steps."""

    @property
    def start_s(self) -> float:
        return self.parts[0][0]

    @property
    def end_s(self) -> float:
        return self.parts[-1][1]

    @classmethod
    def of(cls, marks: StepMarks, source: str, refreshes: Sequence[Refresh | None] = ()) -> CountedSpan | None:
        """Return the span of these marks; None where they are too few to compare anything.

        It may leave out some of the first and last steps, to begin and end when the counters of the GPUs move.
        """
        times_s, counts = marks.every
        few = min(len(times_s) // _TRIED_SHARE, _MOST_TRIED)

        def distance_s(place: int) -> float:
            return sum(edge_distance_s(refresh, times_s[place]) for refresh in refreshes)

        first = min(range(few + 1), key=distance_s) if times_s else 0
        last = min(range(len(times_s) - 1, len(times_s) - 2 - few, -1), key=distance_s) if times_s else 0
        times_s, counts = times_s[first : last + 1], counts[first : last + 1]
        step_time = counted_step_time(without_stalls(times_s, counts)[0], counts) if times_s else None
        if step_time is None or step_time.error_s is None:
            return None
        error = step_time.error_s / step_time.step_time_s
        places = between_stalls(times_s, counts)
        steps = sum(counts[end] - counts[start] for start, end in places)
        return cls(source, steps, tuple((times_s[start], times_s[end]) for start, end in places), error)

    def work(self, parts: Sequence[Measurement | None], *, began_s: float) -> CountedWork | None:
        """Return the work, of what each GPU spent within its parts; None where that is unknown of one.

        Energy scatters as the step time does, besides the error of its counter.
        """
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        cost, error = Measurement.together(known), self.relative_error
        if error is not None:
            energy_error_j = hypot(cost.energy_error_j or 0.0, error * cost.energy_j)
            cost = replace(cost, time_error_s=error * cost.time_s, energy_error_j=energy_error_j)
        return CountedWork(self.source, self.steps, cost, max(self.start_s - began_s, 0.0))


def joined(works: Iterable[CountedWork | None]) -> CountedWork | None:
    """Join the work of several runs; None where steps were not counted alike in all of them."""
    known = list(works)
    found = [work for work in known if work is not None]
    if not found or len(found) < len(known) or len({work.source for work in found}) > 1:
        return None
    return reduce(add, found)


def idle_before_s(readings: Sequence[Reading], start_s: float) -> float | None:
    """Return for how long from `start_s` on a GPU had not worked yet; None where it does not report its utilisation."""
    since = (one for one in readings if one.time_s >= start_s)
    first = next((one for one in since if one.sm_util is None or one.sm_util > IDLE), None)
    if first is None or first.sm_util is None:
        return None
    return max(first.time_s - start_s, 0.0)
