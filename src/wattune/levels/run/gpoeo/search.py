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
class GpoeoPoint:
    """What a unit of work takes and spends above the floor, measured or expected."""

    time_s: float
    energy_j: float


UNSEEN = GpoeoPoint(inf, inf)
"""A gear at which no progress could be seen: worse than any other."""


@dataclass(frozen=True, slots=True)
class GpoeoRule:
    """The comparison of gears with the default and with each other."""

    base: GpoeoPoint
    limit: float

    def slowdown(self, point: GpoeoPoint) -> float:
        """By how much a gear is slower than the default."""
        return point.time_s / self.base.time_s - 1.0

    def reward(self, point: GpoeoPoint) -> float:
        """E·T²: the less, the better."""
        return point.energy_j * point.time_s**2

    def allows(self, point: GpoeoPoint) -> bool:
        """Whether a gear is fast enough."""
        return self.slowdown(point) <= self.limit

    def better(self, first: GpoeoPoint, second: GpoeoPoint, *, factor: float = 1.0) -> bool:
        """Whether the first of two gears is to be preferred, though the reward of the second be cut to a share."""
        if self.allows(first) and self.allows(second):
            return self.reward(first) < factor * self.reward(second)
        return self.rank(first) < self.rank(second)

    def rank(self, point: GpoeoPoint) -> tuple[bool, float]:
        """What gears are sorted by, the best first."""
        return (False, self.reward(point)) if self.allows(point) else (True, self.slowdown(point))

    def best(self, points: Sequence[GpoeoPoint]) -> int:
        """The place of the best gear; the last of them, the highest, where none is fast enough."""
        place = min(range(len(points)), key=lambda place: self.rank(points[place]))
        return place if self.allows(points[place]) else len(points) - 1


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

    def setting(self, point: int, mem_mhz: int | None) -> Setting:
        """The setting of a gear."""
        return Setting(self.sm_mhz[point], mem_mhz)

    def settings(self, mem_mhz: int | None) -> tuple[Setting, ...]:
        """All gears at a memory clock."""
        return tuple(Setting(mhz, mem_mhz) for mhz in self.sm_mhz)

    def allows(self, point: int, mem_mhz: int) -> bool:
        """Whether the part has this core clock at that memory clock; low memory clocks allow only low ones."""
        return any(table.mem_mhz == mem_mhz and self.sm_mhz[point] in table.sm_mhz for table in self.spec.clocks)

    def at(self, mem_mhz: int | None) -> Ladder:
        """The gears that the part has at a memory clock."""
        tables = [table for table in self.spec.clocks if table.mem_mhz == mem_mhz]
        clocks = tuple(mhz for mhz in self.sm_mhz if mhz in tables[0].sm_mhz) if tables else self.sm_mhz
        return replace(self, sm_mhz=clocks or self.sm_mhz)

    def nearest(self, sm_mhz: int) -> int:
        """The gear whose clock is nearest."""
        return min(range(len(self.sm_mhz)), key=lambda point: abs(self.sm_mhz[point] - sm_mhz))


def ladder_of(spec: GpuSpec) -> Ladder:
    """The gears of a part."""
    clocks = spec.sm_clocks_mhz
    lowest = bisect_left(clocks, _LOWEST_SHARE * clocks[-1] - 1e-9)
    mem_mhz = tuple(sorted(spec.mem_clocks_mhz)) if spec.can_lock_mem and len(spec.mem_clocks_mhz) > 1 else ()
    return Ladder(spec, clocks[lowest:], mem_mhz, len(clocks))


Measure = Callable[[Setting, str], Procedure[GpoeoPoint]]
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


def search_memory(measure: Measure, rule: GpoeoRule, ladder: Ladder, *, point: int, predicted: int) -> Procedure[int]:
    """The memory clock to stay with, in MHz, at a core gear."""
    place = ladder.mem_mhz.index(predicted)
    first = yield from measure(ladder.setting(point, predicted), "the memory clock that was predicted")
    found = {place: first}
    near = rule.slowdown(first) < _CLEARLY_ABOVE * rule.limit
    for other in _neighbours(place, len(ladder.mem_mhz) - 1, near=near):
        if not ladder.allows(point, ladder.mem_mhz[other]):
            continue
        found[other] = yield from measure(ladder.setting(point, ladder.mem_mhz[other]), "a memory clock beside it")
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

    def __init__(self, measure: Measure, rule: GpoeoRule, ladder: Ladder, *, mem_mhz: int | None, wide: bool) -> None:
        self._measure, self._rule, self._ladder, self._mem_mhz = measure, rule, ladder, mem_mhz
        self._radius = max(int((_WIDE_RADIUS if wide else _RADIUS) * ladder.count), 1)
        self._found: dict[int, GpoeoPoint] = {}

    def run(self, predicted: int) -> Procedure[int]:
        """The gear to hold."""
        low, centre, high = yield from self._bracket(predicted)
        yield from self._narrow(low, centre, high)
        return self._fitted()

    def _look(self, point: int, why: str) -> Procedure[GpoeoPoint]:
        if point not in self._found:
            self._found[point] = yield from self._measure(self._ladder.setting(point, self._mem_mhz), why)
        return self._found[point]

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
        rule, point, top = self._rule, centre, self._ladder.top
        while True:
            point = min(point + self._radius, top)
            there, best = (yield from self._look(point, "a step up")), self._found[centre]
            if point == top or not rule.better(there, best):
                return point, centre, low
            if rule.better(there, best, factor=_MUCH_BETTER):
                low, centre = centre, point

    def _downward(self, centre: int, high: int) -> Procedure[tuple[int, int, int]]:
        """The low side, and the centre and the high side as they are then."""
        rule, point = self._rule, centre
        while True:
            point = max(point - self._radius, 0)
            there, best = (yield from self._look(point, "a step down")), self._found[centre]
            if point == 0 or not rule.better(there, best):
                return point, centre, high
            if rule.better(there, best, factor=_MUCH_BETTER):
                high, centre = centre, point
            if not rule.allows(there) or rule.reward(there) < _GOOD_ENOUGH * rule.reward(rule.base):
                return point, centre, high

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
        points = sorted(point for point, found in self._found.items() if found != UNSEEN)
        if not points:
            return self._ladder.top
        between = range(points[0], points[-1] + 1)
        times_s = cubic(points, [self._found[point].time_s for point in points], between)
        energies_j = cubic(points, [self._found[point].energy_j for point in points], between)
        expected = [GpoeoPoint(time_s, energy_j) for time_s, energy_j in zip(times_s, energies_j, strict=True)]
        return between[self._rule.best(expected)]


def cubic(points: list[int], values: list[float], at: range) -> list[float]:
    """A cubic through values, at other gears; with fewer than four of them the one of the least coefficients."""
    powers = np.vander(np.array(points, dtype=np.float64), _DEGREE + 1)
    scale = np.sqrt((powers * powers).sum(axis=0))
    scale[scale == 0] = 1.0
    coefficients, *_ = np.linalg.lstsq(powers / scale, np.array(values), rcond=len(points) * np.finfo(np.float64).eps)
    found = np.vander(np.array(at, dtype=np.float64), _DEGREE + 1) @ (coefficients / scale)
    return [float(value) for value in found]
