"""What GPOEO compares gears by, and the gears that it has.

Source: the program that the authors of GPOEO (IEEE TPDS 2022) released. With its objective "Energy" it minimises E·T²
among gears whose slowdown is at most nine tenths of what was promised (4.5 % for 5 %), E being the energy above an idle
floor. Of two gears that are both too slow, the faster is the better.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting

# The released search begins at 450 of 2055 MHz.
_LOWEST_SHARE = 450 / 2055


@dataclass(frozen=True, slots=True)
class Gear:
    """What a unit of work takes and spends above the floor, measured or expected."""

    time_s: float
    energy_j: float


UNSEEN = Gear(inf, inf)
"""A gear at which no progress could be seen: worse than any other."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The comparison of gears with the default and with each other."""

    base: Gear
    limit: float

    def slowdown(self, gear: Gear) -> float:
        """By how much a gear is slower than the default."""
        return gear.time_s / self.base.time_s - 1.0

    def reward(self, gear: Gear) -> float:
        """E·T²: the less, the better."""
        return gear.energy_j * gear.time_s**2

    def allows(self, gear: Gear) -> bool:
        """Whether a gear is fast enough."""
        return self.slowdown(gear) <= self.limit

    def better(self, first: Gear, second: Gear, *, factor: float = 1.0) -> bool:
        """Whether the first of two gears is to be preferred, though the reward of the second be cut to a share."""
        if self.allows(first) and self.allows(second):
            return self.reward(first) < factor * self.reward(second)
        return self.rank(first) < self.rank(second)

    def rank(self, gear: Gear) -> tuple[bool, float]:
        """What gears are sorted by, the best first."""
        return (False, self.reward(gear)) if self.allows(gear) else (True, self.slowdown(gear))

    def best(self, gears: Sequence[Gear]) -> int:
        """The place of the best gear; the last of them, the highest, where none is fast enough."""
        place = min(range(len(gears)), key=lambda place: self.rank(gears[place]))
        return place if self.allows(gears[place]) else len(gears) - 1


@dataclass(frozen=True, slots=True)
class Ladder:
    """The core clocks that are searched, ascending, and the memory clocks, ascending; none where they stay."""

    spec: GpuSpec
    sm_mhz: tuple[int, ...]
    mem_mhz: tuple[int, ...]
    count: int
    """All core clocks of the part: steps are shares of it."""

    @property
    def top(self) -> int:
        """The highest gear."""
        return len(self.sm_mhz) - 1

    def setting(self, gear: int, mem_mhz: int | None) -> Setting:
        """The setting of a gear."""
        return Setting(self.sm_mhz[gear], mem_mhz)

    def settings(self, mem_mhz: int | None) -> tuple[Setting, ...]:
        """All gears at a memory clock."""
        return tuple(Setting(mhz, mem_mhz) for mhz in self.sm_mhz)

    def allows(self, gear: int, mem_mhz: int) -> bool:
        """Whether the part has this core clock at that memory clock; low memory clocks allow only low ones."""
        return any(table.mem_mhz == mem_mhz and self.sm_mhz[gear] in table.sm_mhz for table in self.spec.clocks)

    def at(self, mem_mhz: int | None) -> Ladder:
        """The gears that the part has at a memory clock."""
        tables = [table for table in self.spec.clocks if table.mem_mhz == mem_mhz]
        clocks = tuple(mhz for mhz in self.sm_mhz if mhz in tables[0].sm_mhz) if tables else self.sm_mhz
        return replace(self, sm_mhz=clocks or self.sm_mhz)

    def nearest(self, sm_mhz: int) -> int:
        """The gear whose clock is nearest."""
        return min(range(len(self.sm_mhz)), key=lambda gear: abs(self.sm_mhz[gear] - sm_mhz))


def ladder_of(spec: GpuSpec) -> Ladder:
    """The gears of a part."""
    clocks = spec.sm_clocks_mhz
    lowest = bisect_left(clocks, _LOWEST_SHARE * clocks[-1] - 1e-9)
    mem_mhz = tuple(sorted(spec.mem_clocks_mhz)) if spec.can_lock_mem and len(spec.mem_clocks_mhz) > 1 else ()
    return Ladder(spec, clocks[lowest:], mem_mhz, len(clocks))
