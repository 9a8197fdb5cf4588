"""What a GPU did over time, in closed form: nothing ticks, and a million iterations cost as much as one.

A timeline is a few stretches of time in each of which one load plays at one clock; it is evaluated when asked and
changed by making another. Old stretches are dropped once no sensor can look back at them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

import numpy as np

from wattune.physics.gpu_model import Thermal
from wattune.physics.load_table import Floats, LoadTable
from wattune.physics.operating_point import OperatingPoint


class EnergyTotals(NamedTuple):
    """What has been spent since some beginning."""

    energy_j: float
    busy_s: float
    """Time in which kernels ran."""
    mem_busy_s: float
    """Time in which the memory was busy, counted in full-bandwidth seconds."""

    def plus(self, other: EnergyTotals, sign: float = 1.0) -> EnergyTotals:
        """The sum, or with sign -1 the difference."""
        return EnergyTotals(
            self.energy_j + sign * other.energy_j,
            self.busy_s + sign * other.busy_s,
            self.mem_busy_s + sign * other.mem_busy_s,
        )


NOTHING = EnergyTotals(0.0, 0.0, 0.0)


class Position(NamedTuple):
    """A place in a load that does not depend on the clock."""

    whole: float
    """Iterations done."""
    phase: int
    part: float
    """Of the phase, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """When each phase of an iteration ends, and the totals at that moment; both begin with zero."""

    ends_s: tuple[float, ...]
    totals: tuple[EnergyTotals, ...]

    @classmethod
    def of(cls, table: LoadTable, column: int) -> Cycle:
        """An iteration of a load at one of its core clocks."""
        duration_s = table.duration_s[:, column]
        energy_j = _ends(duration_s * table.power_w[:, column])
        busy_s = _ends(duration_s * table.sm_util)
        mem_busy_s = _ends(duration_s * table.mem_util[:, column])
        return cls(tuple(_ends(duration_s)), tuple(map(EnergyTotals, energy_j, busy_s, mem_busy_s)))

    @classmethod
    def steady(cls, power_w: float) -> Cycle:
        """An idle GPU at constant power, as an endless row of seconds."""
        return cls((0.0, 1.0), (NOTHING, EnergyTotals(power_w, 0.0, 0.0)))

    @property
    def iteration_s(self) -> float:
        """How long an iteration takes."""
        return self.ends_s[-1]

    def position(self, time_s: float) -> Position:
        """Where the load stands after `time_s`."""
        whole = time_s // self.iteration_s
        rest_s = min(max(time_s - whole * self.iteration_s, 0.0), self.iteration_s)
        phase = min(bisect_right(self.ends_s, rest_s), len(self.ends_s) - 1) - 1
        start_s, end_s = self.ends_s[phase], self.ends_s[phase + 1]
        return Position(whole, phase, min((rest_s - start_s) / (end_s - start_s), 1.0))

    def offset_s(self, position: Position) -> float:
        """How long this clock would have taken from the beginning of the iteration to `position`."""
        start_s, end_s = self.ends_s[position.phase], self.ends_s[position.phase + 1]
        return start_s + (end_s - start_s) * position.part

    def spent(self, time_s: float) -> EnergyTotals:
        """What `time_s` from the beginning of an iteration spend."""
        whole, phase, part = self.position(time_s)
        start, end, all_ = self.totals[phase], self.totals[phase + 1], self.totals[-1]
        return EnergyTotals(
            whole * all_.energy_j + start.energy_j + (end.energy_j - start.energy_j) * part,
            whole * all_.busy_s + start.busy_s + (end.busy_s - start.busy_s) * part,
            whole * all_.mem_busy_s + start.mem_busy_s + (end.mem_busy_s - start.mem_busy_s) * part,
        )


def _ends(parts: Floats) -> list[float]:
    return [0.0, *np.cumsum(parts).tolist()]


# The longest that any sensor looks back: averages over one second, of values that are up to one refresh old.
MEMORY_S = 1.5


@dataclass(frozen=True, slots=True)
class Stall:
    """A moment in which nothing runs, as while a new clock takes over, and what is drawn meanwhile."""

    seconds: float = 0.0
    power_w: float = 0.0


NO_STALL = Stall()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSegment:
    """A stretch of time in which load and clock do not change."""

    start_s: float
    at_start: EnergyTotals
    temperature_c: float
    """At the start."""
    load: Hashable
    """What plays; two stretches with equal loads continue one another."""
    point: OperatingPoint
    cycle: Cycle
    offset_s: float = 0.0
    """Time into the iteration at the start, at this stretch's clock."""
    whole: float = 0.0
    """Iterations of this load done when the iteration of the start began."""

    def spent(self, time_s: float) -> EnergyTotals:
        """What had been spent since the start of the stretch."""
        before = self.cycle.spent(self.offset_s) if self.offset_s else NOTHING
        return self.cycle.spent(self.offset_s + time_s - self.start_s).plus(before, -1.0)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The last stretches of a GPU's life, the newest open to the future."""

    thermal: Thermal
    intervals: tuple[TimelineSegment, ...]

    @classmethod
    def begin(cls, thermal: Thermal, point: OperatingPoint, power_w: float) -> Timeline:
        """A GPU at time 0 that has been idle for as long as its temperature remembers."""
        temperature_c = thermal.ambient_c + thermal.resistance_k_per_w * power_w
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
        """The stretch that lasts."""
        return self.intervals[-1]

    def totals(self, time_s: float) -> EnergyTotals:
        """What had been spent at a time; before everything known, as if the oldest stretch had begun earlier."""
        interval = self.now
        if time_s < interval.start_s:
            older = (other for other in reversed(self.intervals) if other.start_s <= time_s)
            interval = next(older, self.intervals[0])
        if time_s < interval.start_s:
            ahead_s = interval.start_s - time_s
            return interval.at_start.plus(interval.cycle.spent(ahead_s), -1.0)
        return interval.at_start.plus(interval.spent(time_s))

    def temperature_c(self, time_s: float) -> float:
        """First-order response to the mean power of the stretch so far; T' = (ambient + R·P − T)/τ."""
        interval, lasted_s = self.now, time_s - self.now.start_s
        if lasted_s <= 0:
            return interval.temperature_c
        power_w = interval.spent(time_s).energy_j / lasted_s
        steady_c = self.thermal.ambient_c + self.thermal.resistance_k_per_w * power_w
        return steady_c + (interval.temperature_c - steady_c) * exp(-lasted_s / self.thermal.tau_s)

    def iterations(self, time_s: float) -> float:
        """Iterations that the present load has done, the one that runs in parts of its time."""
        interval = self.now
        return interval.whole + (interval.offset_s + time_s - interval.start_s) / interval.cycle.iteration_s

    def time_of(self, iterations: float) -> float:
        """When the present load will have done that many iterations, if nothing changes."""
        interval = self.now
        return interval.start_s + (iterations - interval.whole) * interval.cycle.iteration_s - interval.offset_s

    def changed(
        self, time_s: float, *, load: Hashable, point: OperatingPoint, cycle: Cycle, stall: Stall = NO_STALL
    ) -> Timeline:
        """The timeline in which this load plays from `time_s` on, taken up where it stands if it plays already."""
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
        new = TimelineSegment(
            start_s=time_s + stall.seconds,
            at_start=at_start.plus(EnergyTotals(stall.power_w * stall.seconds, 0.0, 0.0)),
            temperature_c=temperature_c,
            load=load,
            point=point,
            cycle=cycle,
            offset_s=offset_s,
            whole=whole,
        )
        return Timeline(self.thermal, (*self._recent(time_s), *((waiting,) if stall.seconds else ()), new))

    def _recent(self, time_s: float) -> tuple[TimelineSegment, ...]:
        """The stretches that a sensor may still see after `time_s`."""
        ends_s = [interval.start_s for interval in self.intervals[1:]] + [time_s]
        return tuple(
            interval
            for interval, end_s in zip(self.intervals, ends_s, strict=True)
            if end_s > time_s - MEMORY_S and end_s > interval.start_s
        )
