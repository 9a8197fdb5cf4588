"""The history of a GPU in closed form: a million iterations cost as much to evaluate as one.

A timeline is a few segments, in each of which one load plays at one clock. It is immutable: a change makes another.
Segments are dropped once no sensor window reaches back to them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import exp
from typing import NamedTuple

import numpy as np

from wattune.physics.gpu_parts import Floats, Thermal
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import OperatingPoint


class EnergyTotals(NamedTuple):
    """Energy and busy time since a common start."""

    energy_j: float
    busy_s: float
    """Time in which kernels ran."""
    mem_busy_s: float
    """Time in which the memory was busy, counted in full-bandwidth seconds."""

    def plus(self, other: EnergyTotals, sign: float = 1.0) -> EnergyTotals:
        """Add; with sign -1 subtract."""
        return EnergyTotals(
            self.energy_j + sign * other.energy_j,
            self.busy_s + sign * other.busy_s,
            self.mem_busy_s + sign * other.mem_busy_s,
        )


NOTHING = EnergyTotals(0.0, 0.0, 0.0)


class Position(NamedTuple):
    """Progress of a load, independent of the clock."""

    whole: float
    """Iterations done."""
    phase: int
    fraction: float
    """Share of the phase that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """End time and totals of each phase of an iteration; both begin with zero."""

    ends_s: tuple[float, ...]
    totals: tuple[EnergyTotals, ...]

    @classmethod
    def of(cls, table: LoadTable, column: int) -> Cycle:
        """Make the cycle of a load at one of its core clocks."""
        duration_s = table.duration_s[:, column]
        energy_j = _ends(duration_s * table.power_w[:, column])
        busy_s = _ends(duration_s * table.sm_util)
        mem_busy_s = _ends(duration_s * table.mem_util[:, column])
        return cls(tuple(_ends(duration_s)), tuple(map(EnergyTotals, energy_j, busy_s, mem_busy_s)))

    @classmethod
    def steady(cls, power_w: float) -> Cycle:
        """Make the cycle of an idle GPU at constant power: iterations of one second."""
        return cls((0.0, 1.0), (NOTHING, EnergyTotals(power_w, 0.0, 0.0)))

    @property
    def iteration_s(self) -> float:
        return self.ends_s[-1]

    def position(self, time_s: float) -> Position:
        """Return the progress after `time_s`."""
        whole = time_s // self.iteration_s
        rest_s = min(max(time_s - whole * self.iteration_s, 0.0), self.iteration_s)
        phase = min(bisect_right(self.ends_s, rest_s), len(self.ends_s) - 1) - 1
        start_s, end_s = self.ends_s[phase], self.ends_s[phase + 1]
        return Position(whole, phase, min((rest_s - start_s) / (end_s - start_s), 1.0))

    def offset_s(self, position: Position) -> float:
        """Return the time at this clock from the start of the iteration to `position`."""
        start_s, end_s = self.ends_s[position.phase], self.ends_s[position.phase + 1]
        return start_s + (end_s - start_s) * position.fraction

    def spent(self, time_s: float) -> EnergyTotals:
        """Return the totals of the first `time_s` from the start of an iteration."""
        whole, phase, fraction = self.position(time_s)
        start, end, all_ = self.totals[phase], self.totals[phase + 1], self.totals[-1]
        return EnergyTotals(
            whole * all_.energy_j + start.energy_j + (end.energy_j - start.energy_j) * fraction,
            whole * all_.busy_s + start.busy_s + (end.busy_s - start.busy_s) * fraction,
            whole * all_.mem_busy_s + start.mem_busy_s + (end.mem_busy_s - start.mem_busy_s) * fraction,
        )


def _ends(values: Floats) -> list[float]:
    return [0.0, *np.cumsum(values).tolist()]


# How far back any sensor window reaches: averages over one second, up to one refresh old.
MEMORY_S = 1.5


@dataclass(frozen=True, slots=True)
class Stall:
    """A short time in which no kernel runs, as when a new clock takes effect, and the power meanwhile."""

    seconds: float = 0.0
    power_w: float = 0.0


NO_STALL = Stall()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSegment:
    """A period in which load and clock do not change."""

    start_s: float
    at_start: EnergyTotals
    temperature_c: float
    """At the start."""
    load: Hashable
    """Identifies the load; a segment with an equal load continues the one before."""
    point: OperatingPoint
    cycle: Cycle
    offset_s: float = 0.0
    """Time into the iteration at the start, at this segment's clock."""
    whole: float = 0.0
    """Iterations of this load completed before the one in progress at the start."""
    before: EnergyTotals = NOTHING
    """Totals of the iteration in progress at the start, at this segment's clock."""

    def spent(self, time_s: float) -> EnergyTotals:
        """Return the totals since the start of the segment."""
        return self.cycle.spent(self.offset_s + time_s - self.start_s).plus(self.before, -1.0)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The most recent segments of a GPU; the newest is open-ended."""

    thermal: Thermal
    segments: tuple[TimelineSegment, ...]

    @classmethod
    def begin(cls, thermal: Thermal, point: OperatingPoint, power_w: float) -> Timeline:
        """Make the timeline of a GPU at time 0 that has been idle until its temperature settled."""
        temperature_c = thermal.steady_c(power_w)
        first = TimelineSegment(
            start_s=0.0,
            at_start=NOTHING,
            temperature_c=temperature_c,
            load=None,
            point=point,
            cycle=Cycle.steady(power_w),
        )
        return cls(thermal, (first,))

    @property
    def now(self) -> TimelineSegment:
        return self.segments[-1]

    def totals(self, time_s: float) -> EnergyTotals:
        """Return the totals at a time; before the oldest segment, as if it had begun earlier."""
        segment = self.now
        if time_s < segment.start_s:
            older = (other for other in reversed(self.segments) if other.start_s <= time_s)
            segment = next(older, self.segments[0])
        if time_s < segment.start_s:
            ahead_s = segment.start_s - time_s
            return segment.at_start.plus(segment.cycle.spent(ahead_s), -1.0)
        return segment.at_start.plus(segment.spent(time_s))

    def temperature_c(self, time_s: float) -> float:
        """Return the first-order response to the mean power of the segment so far; T' = (ambient + R·P − T)/τ."""
        segment, lasted_s = self.now, time_s - self.now.start_s
        if lasted_s <= 0:
            return segment.temperature_c
        power_w = segment.spent(time_s).energy_j / lasted_s
        steady_c = self.thermal.steady_c(power_w)
        return steady_c + (segment.temperature_c - steady_c) * exp(-lasted_s / self.thermal.tau_s)

    def iterations(self, time_s: float) -> float:
        """Return the iterations of the current load, with the fraction of the one in progress; none during a stall."""
        segment = self.now
        return segment.whole + (segment.offset_s + max(time_s - segment.start_s, 0.0)) / segment.cycle.iteration_s

    def time_of(self, iterations: float) -> float:
        """Return when the current load completes that many iterations, if nothing changes."""
        segment = self.now
        return segment.start_s + (iterations - segment.whole) * segment.cycle.iteration_s - segment.offset_s

    def changed(
        self, time_s: float, *, load: Hashable, point: OperatingPoint, cycle: Cycle, stall: Stall = NO_STALL
    ) -> Timeline:
        """Return the timeline in which this load plays from `time_s` on; a load that already plays continues."""
        old = self.now
        offset_s = whole = 0.0
        if load == old.load:
            if cycle == old.cycle and point == old.point:
                return self
            position = old.cycle.position(old.offset_s + max(time_s - old.start_s, 0.0))
            offset_s, whole = cycle.offset_s(position), old.whole + position.whole
        at_start, temperature_c = self.totals(time_s), self.temperature_c(time_s)
        waiting = TimelineSegment(
            start_s=time_s,
            at_start=at_start,
            temperature_c=temperature_c,
            load=load,
            point=point,
            cycle=Cycle.steady(stall.power_w),
        )
        new = replace(
            waiting,
            start_s=time_s + stall.seconds,
            at_start=at_start.plus(EnergyTotals(stall.power_w * stall.seconds, 0.0, 0.0)),
            cycle=cycle,
            offset_s=offset_s,
            whole=whole,
            before=cycle.spent(offset_s) if offset_s else NOTHING,
        )
        return Timeline(self.thermal, (*self._recent(time_s), *((waiting,) if stall.seconds else ()), new))

    def _recent(self, time_s: float) -> tuple[TimelineSegment, ...]:
        """Return the segments that a sensor window may reach after `time_s`."""
        ends_s = [segment.start_s for segment in self.segments[1:]] + [time_s]
        return tuple(
            segment
            for segment, end_s in zip(self.segments, ends_s, strict=True)
            if end_s > time_s - MEMORY_S and end_s > segment.start_s
        )
