"""GPOEO's search: the memory clock around what was predicted, then the core clock by bracket and golden section.

Source: the program that the authors of GPOEO (IEEE TPDS 2022) released. Steps that it counts in gears of the RTX 3080
Ti, which has 121, are shares of the gears here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting
from wattune.levels.run.procedure import Procedure

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


Measure = Callable[[Setting, str], Procedure[Gear]]
"""Looks at a setting, for a reason."""

_RADIUS = 0.10
_WIDE_RADIUS = 0.15
"""Where the memory clock is below that of the reference."""
_CLEARLY_BELOW, _CLEARLY_ABOVE = 0.8, 1.2
"""A slowdown of so many times the limit says on which side the best gear lies."""
_MUCH_BETTER = 0.85
_GOOD_ENOUGH = 0.75
"""Of the default's reward: going down ends there."""
_HOPELESS = 0.9
_GOLDEN = (5**0.5 - 1) / 2
_NARROW = 7 / 121
_TRIES = 6
_DEGREE = 3


def search_memory(measure: Measure, rule: Rule, ladder: Ladder, *, gear: int, predicted: int) -> Procedure[int]:
    """The memory clock to stay with, in MHz, at a core gear."""
    place = ladder.mem_mhz.index(predicted)
    first = yield from measure(ladder.setting(gear, predicted), "the memory clock that was predicted")
    found = {place: first}
    near = rule.slowdown(first) < _CLEARLY_ABOVE * rule.limit
    for other in _neighbours(place, len(ladder.mem_mhz) - 1, near=near):
        if not ladder.allows(gear, ladder.mem_mhz[other]):
            continue
        found[other] = yield from measure(ladder.setting(gear, ladder.mem_mhz[other]), "a memory clock beside it")
        if _HOPELESS * (1 + rule.slowdown(found[other])) - 1 > rule.limit:
            break
    places = sorted(found)
    return ladder.mem_mhz[places[rule.best([found[place] for place in places])]]


def _neighbours(place: int, top: int, *, near: bool) -> list[int]:
    """Memory gears to try beside one: around it, or only faster ones where it is too slow."""
    if not near:
        return [other for other in (place + 2, place + 1) if other <= top]
    if place == 0:
        return [other for other in (2, 1) if other <= top]
    around = (place + 1, place - 1) if place < top else (place - 1, place - 2)
    return [other for other in around if other >= 0]


class CoreSearch:
    """One search of the core clock at a memory clock; gears that were measured are kept."""

    def __init__(self, measure: Measure, rule: Rule, ladder: Ladder, *, mem_mhz: int | None, wide: bool) -> None:
        self._measure, self._rule, self._ladder, self._mem_mhz = measure, rule, ladder, mem_mhz
        self._radius = max(int((_WIDE_RADIUS if wide else _RADIUS) * ladder.count), 1)
        self._found: dict[int, Gear] = {}

    def run(self, predicted: int) -> Procedure[int]:
        """The gear to hold."""
        low, centre, high = yield from self._bracket(predicted)
        yield from self._narrow(low, centre, high)
        return self._fitted()

    def _look(self, gear: int, why: str) -> Procedure[Gear]:
        if gear not in self._found:
            self._found[gear] = yield from self._measure(self._ladder.setting(gear, self._mem_mhz), why)
        return self._found[gear]

    def _bracket(self, predicted: int) -> Procedure[tuple[int, int, int]]:
        """The gears between which the best one lies, and the best so far."""
        rule = self._rule
        slowdown = rule.slowdown((yield from self._look(predicted, "the core clock that was predicted")))
        low = predicted if slowdown > _CLEARLY_ABOVE * rule.limit else None
        high, centre = predicted, predicted
        if slowdown >= _CLEARLY_BELOW * rule.limit:
            high, centre, low = yield from self._upward(predicted, low)
        if low is None:
            low, centre, high = yield from self._downward(centre, high)
        return low, centre, high

    def _upward(self, centre: int, low: int | None) -> Procedure[tuple[int, int, int | None]]:
        """The high side, and the centre and the low side as they are then."""
        rule, gear, top = self._rule, centre, self._ladder.top
        while True:
            gear = min(gear + self._radius, top)
            there, best = (yield from self._look(gear, "a step up")), self._found[centre]
            if gear == top or not rule.better(there, best):
                return gear, centre, low
            if rule.better(there, best, factor=_MUCH_BETTER):
                low, centre = centre, gear

    def _downward(self, centre: int, high: int) -> Procedure[tuple[int, int, int]]:
        """The low side, and the centre and the high side as they are then."""
        rule, gear = self._rule, centre
        while True:
            gear = max(gear - self._radius, 0)
            there, best = (yield from self._look(gear, "a step down")), self._found[centre]
            if gear == 0 or not rule.better(there, best):
                return gear, centre, high
            if rule.better(there, best, factor=_MUCH_BETTER):
                high, centre = centre, gear
            if not rule.allows(there) or rule.reward(there) < _GOOD_ENOUGH * rule.reward(rule.base):
                return gear, centre, high

    def _narrow(self, low: int, centre: int, high: int) -> Procedure[None]:
        """Golden section from the larger side of the centre on."""
        share = _GOLDEN if high - centre > centre - low else 1 - _GOLDEN
        middle = round(low + share * (high - low))
        best = yield from self._look(middle, "golden section")
        narrow = max(round(_NARROW * self._ladder.count), 2)
        for _ in range(_TRIES):
            if high - low < narrow:
                return
            above = high - middle > middle - low
            tried = round(middle + (1 - _GOLDEN) * ((high - middle) if above else (low - middle)))
            there = yield from self._look(tried, "golden section")
            if self._rule.better(there, best):
                low, high = (middle, high) if above else (low, middle)
                middle, best = tried, there
            else:
                low, high = (low, tried) if above else (tried, high)

    def _fitted(self) -> int:
        """The best gear by cubics through all that was measured, between the lowest and the highest gear of it."""
        gears = sorted(gear for gear, found in self._found.items() if found != UNSEEN)
        if not gears:
            return self._ladder.top
        between = range(gears[0], gears[-1] + 1)
        times_s = cubic(gears, [self._found[gear].time_s for gear in gears], between)
        energies_j = cubic(gears, [self._found[gear].energy_j for gear in gears], between)
        expected = [Gear(time_s, energy_j) for time_s, energy_j in zip(times_s, energies_j, strict=True)]
        return between[self._rule.best(expected)]


def cubic(gears: list[int], values: list[float], at: range) -> list[float]:
    """A cubic through values, at other gears; with fewer than four of them the one of the least coefficients."""
    powers = np.vander(np.array(gears, dtype=np.float64), _DEGREE + 1)
    scale = np.sqrt((powers * powers).sum(axis=0))
    scale[scale == 0] = 1.0
    coefficients, *_ = np.linalg.lstsq(powers / scale, np.array(values), rcond=len(gears) * np.finfo(np.float64).eps)
    found = np.vander(np.array(at, dtype=np.float64), _DEGREE + 1) @ (coefficients / scale)
    return [float(value) for value in found]
