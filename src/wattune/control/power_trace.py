"""The power of a run since its beginning, for charts: the last minute in full, all before in steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite

from wattune.core.reading import Reading

RECENT_S = 60.0
"""Age up to which the trace keeps all readings."""
MOST_RECENT = 6000
"""Most readings in memory, for more than a hundred a second."""
MOST_STEPS = 720
"""More than a chart can show; beyond it neighbours are joined."""
FIRST_STEP_S = 0.25


@dataclass(frozen=True, slots=True)
class PowerStep:
    """An interval of a run: its start, and the power of its readings."""

    start_s: float
    sum_w: float
    count: int
    low_w: float
    high_w: float

    @property
    def mean_w(self) -> float:
        return self.sum_w / self.count

    def joined(self, later: PowerStep) -> PowerStep:
        return PowerStep(
            self.start_s,
            self.sum_w + later.sum_w,
            self.count + later.count,
            min(self.low_w, later.low_w),
            max(self.high_w, later.high_w),
        )


@dataclass(frozen=True, slots=True)
class PowerTrace:
    """The readings of a run; times count from the first one."""

    first_s: float | None = None
    """The GPU's time of the first reading."""
    recent: tuple[Reading, ...] = ()
    """The last minute, with the GPU's own times."""
    steps: tuple[PowerStep, ...] = ()
    step_s: float = FIRST_STEP_S

    def add(self, readings: Iterable[Reading]) -> PowerTrace:
        """Add readings that are later than all before; others are ignored."""
        fresh = _later(tuple(readings), self.recent[-1].time_s if self.recent else None)
        if not fresh:
            return self
        first_s = fresh[0].time_s if self.first_s is None else self.first_s
        recent = (*self.recent, *fresh)[-MOST_RECENT:]
        old = bisect_left(recent, fresh[-1].time_s - RECENT_S, key=lambda reading: reading.time_s)
        return _bounded(replace(self, first_s=first_s, recent=recent[old:], steps=_stepped(self, first_s, fresh)))

    @property
    def latest(self) -> Reading | None:
        return self.recent[-1] if self.recent else None

    @property
    def duration_s(self) -> float:
        return self.recent[-1].time_s - self.first_s if self.recent and self.first_s is not None else 0.0


def _later(readings: Sequence[Reading], last_s: float | None) -> tuple[Reading, ...]:
    kept: list[Reading] = []
    for reading in readings:
        if isfinite(reading.time_s) and (last_s is None or reading.time_s > last_s):
            kept.append(reading)
            last_s = reading.time_s
    return tuple(kept)


def _stepped(trace: PowerTrace, first_s: float, fresh: Sequence[Reading]) -> tuple[PowerStep, ...]:
    new = [
        PowerStep(floor((reading.time_s - first_s) / trace.step_s) * trace.step_s, power_w, 1, power_w, power_w)
        for reading in fresh
        if (power_w := reading.power_w) is not None and isfinite(power_w)
    ]
    return (*trace.steps[:-1], *_joined([*trace.steps[-1:], *new]))


def _bounded(trace: PowerTrace) -> PowerTrace:
    while len(trace.steps) > MOST_STEPS:
        step_s = 2 * trace.step_s
        coarser = [replace(step, start_s=floor(step.start_s / step_s) * step_s) for step in trace.steps]
        trace = replace(trace, steps=tuple(_joined(coarser)), step_s=step_s)
    return trace


def _joined(steps: Sequence[PowerStep]) -> list[PowerStep]:
    """Join neighbours that start at the same time."""
    found: list[PowerStep] = []
    for step in steps:
        if found and found[-1].start_s == step.start_s:
            found[-1] = found[-1].joined(step)
        else:
            found.append(step)
    return found
