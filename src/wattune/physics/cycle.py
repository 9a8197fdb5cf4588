"""One iteration at one clock, ready to be asked what had been spent at any moment of it or after many of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattune.physics.load_table import Floats, LoadTable


class Totals(NamedTuple):
    """What has been spent since some beginning."""

    energy_j: float
    busy_s: float
    """Time in which kernels ran."""
    mem_busy_s: float
    """Time in which the memory was busy, counted in full-bandwidth seconds."""

    def plus(self, other: Totals, sign: float = 1.0) -> Totals:
        """The sum, or with sign -1 the difference."""
        return Totals(
            self.energy_j + sign * other.energy_j,
            self.busy_s + sign * other.busy_s,
            self.mem_busy_s + sign * other.mem_busy_s,
        )


NOTHING = Totals(0.0, 0.0, 0.0)


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
    totals: tuple[Totals, ...]

    @classmethod
    def of(cls, table: LoadTable, column: int) -> Cycle:
        """An iteration of a load at one of its core clocks."""
        duration_s = table.duration_s[:, column]
        energy_j = _ends(duration_s * table.power_w[:, column])
        busy_s = _ends(duration_s * table.sm_util)
        mem_busy_s = _ends(duration_s * table.mem_util[:, column])
        return cls(tuple(_ends(duration_s)), tuple(map(Totals, energy_j, busy_s, mem_busy_s)))

    @classmethod
    def steady(cls, power_w: float) -> Cycle:
        """An idle GPU at constant power, as an endless row of seconds."""
        return cls((0.0, 1.0), (NOTHING, Totals(power_w, 0.0, 0.0)))

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

    def spent(self, time_s: float) -> Totals:
        """What `time_s` from the beginning of an iteration spend."""
        whole, phase, part = self.position(time_s)
        start, end, all_ = self.totals[phase], self.totals[phase + 1], self.totals[-1]
        return Totals(
            whole * all_.energy_j + start.energy_j + (end.energy_j - start.energy_j) * part,
            whole * all_.busy_s + start.busy_s + (end.busy_s - start.busy_s) * part,
            whole * all_.mem_busy_s + start.mem_busy_s + (end.mem_busy_s - start.mem_busy_s) * part,
        )


def _ends(parts: Floats) -> list[float]:
    return [0.0, *np.cumsum(parts).tolist()]
