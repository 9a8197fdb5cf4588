"""The search of GPOEO: the memory clock around the prediction, then the core clock by bracket and golden section.

Source: the program that the authors of GPOEO (IEEE TPDS 2022) released. It counts steps in core
clocks of the RTX 3080 Ti, which has 121; here steps are shares of the clocks of the GPU. A point is the index of a
core clock, ascending.
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

# The released search starts at 450 of 2055 MHz.
_LOWEST_SHARE = 450 / 2055


@dataclass(frozen=True, slots=True)
class GpoeoPoint:
    """Time and energy above the floor of a unit of work, measured or predicted."""

    time_s: float
    energy_j: float


UNMEASURED = GpoeoPoint(inf, inf)
"""A setting without measurable progress: worse than any other."""


@dataclass(frozen=True, slots=True)
class GpoeoRule:
    """The comparison of settings with the default and with each other."""

    base: GpoeoPoint
    limit: float

    def slowdown(self, point: GpoeoPoint) -> float:
        return point.time_s / self.base.time_s - 1.0

    def reward(self, point: GpoeoPoint) -> float:
        """Return E·T²; less is better."""
        return point.energy_j * point.time_s**2

    def allows(self, point: GpoeoPoint) -> bool:
        return self.slowdown(point) <= self.limit

    def better(self, first: GpoeoPoint, second: GpoeoPoint, *, factor: float = 1.0) -> bool:
        """Return whether the first setting is better; a factor below 1 asks for a clear difference."""
        if self.allows(first) and self.allows(second):
            return self.reward(first) < factor * self.reward(second)
        return self.rank(first) < self.rank(second)

    def rank(self, point: GpoeoPoint) -> tuple[bool, float]:
        """Return the sort key of settings, best first."""
        return (False, self.reward(point)) if self.allows(point) else (True, self.slowdown(point))

    def best(self, points: Sequence[GpoeoPoint]) -> int:
        """Return the index of the best setting; the last one, the highest, where none is fast enough."""
        place = min(range(len(points)), key=lambda place: self.rank(points[place]))
        return place if self.allows(points[place]) else len(points) - 1


@dataclass(frozen=True, slots=True)
class Ladder:
    """The core clocks that are searched, ascending, and the memory clocks, ascending; none where they stay."""

    spec: GpuSpec
    sm_mhz: tuple[int, ...]
    mem_mhz: tuple[int, ...]
    count: int
    """Number of all core clocks of the GPU: steps are shares of it."""

    @property
    def top(self) -> int:
        return len(self.sm_mhz) - 1

    def setting(self, point: int, mem_mhz: int | None) -> Setting:
        return Setting(self.sm_mhz[point], mem_mhz)

    def settings(self, mem_mhz: int | None) -> tuple[Setting, ...]:
        return tuple(Setting(mhz, mem_mhz) for mhz in self.sm_mhz)

    def allows(self, point: int, mem_mhz: int) -> bool:
        """Return whether the GPU has this core clock at that memory clock; low memory clocks allow only low ones."""
        return any(table.mem_mhz == mem_mhz and self.sm_mhz[point] in table.sm_mhz for table in self.spec.clocks)

    def at(self, mem_mhz: int | None) -> Ladder:
        """Restrict the core clocks to those available at a memory clock."""
        tables = [table for table in self.spec.clocks if table.mem_mhz == mem_mhz]
        clocks = tuple(mhz for mhz in self.sm_mhz if mhz in tables[0].sm_mhz) if tables else self.sm_mhz
        return replace(self, sm_mhz=clocks or self.sm_mhz)

    def nearest(self, sm_mhz: int) -> int:
        return min(range(len(self.sm_mhz)), key=lambda point: abs(self.sm_mhz[point] - sm_mhz))


def ladder_of(spec: GpuSpec) -> Ladder:
    """Return the clocks to search on a GPU."""
    clocks = spec.sm_clocks_mhz
    lowest = bisect_left(clocks, _LOWEST_SHARE * clocks[-1] - 1e-9)
    mem_mhz = tuple(sorted(spec.mem_clocks_mhz)) if spec.can_lock_mem and len(spec.mem_clocks_mhz) > 1 else ()
    return Ladder(spec, clocks[lowest:], mem_mhz, len(clocks))


Measure = Callable[[Setting, str], Procedure[GpoeoPoint]]
"""Measures a setting; the text is the reason, for the log."""

_RADIUS = 0.10
_WIDE_RADIUS = 0.15
"""The radius where the memory clock is below that of the reference."""
_CLEARLY_BELOW, _CLEARLY_ABOVE = 0.8, 1.2
"""Multiples of the slowdown limit beyond which it is clear on which side the best clock lies."""
_MUCH_BETTER = 0.85
_GOOD_ENOUGH = 0.75
"""Share of the default's reward at which the search stops going down."""
_HOPELESS = 0.9
_GOLDEN = (5**0.5 - 1) / 2
_NARROW = 7 / 121
_TRIES = 6
_DEGREE = 3


def search_memory(measure: Measure, rule: GpoeoRule, ladder: Ladder, *, point: int, predicted: int) -> Procedure[int]:
    """Return the best memory clock in MHz at a core clock."""
    place = ladder.mem_mhz.index(predicted)
    first = yield from measure(ladder.setting(point, predicted), "the memory clock that was predicted")
    found = {place: first}
    near = rule.slowdown(first) < _CLEARLY_ABOVE * rule.limit
    for other in _neighbours(place, len(ladder.mem_mhz) - 1, near=near):
        if not ladder.allows(point, ladder.mem_mhz[other]):
            continue
        found[other] = yield from measure(ladder.setting(point, ladder.mem_mhz[other]), "a memory clock near it")
        if _HOPELESS * (1 + rule.slowdown(found[other])) - 1 > rule.limit:
            break
    places = sorted(found)
    return ladder.mem_mhz[places[rule.best([found[place] for place in places])]]


def _neighbours(place: int, top: int, *, near: bool) -> list[int]:
    """Return the memory clocks to try near one: on both sides, or only faster ones where it is too slow."""
    if not near:
        return [other for other in (place + 2, place + 1) if other <= top]
    if place == 0:
        return [other for other in (2, 1) if other <= top]
    around = (place + 1, place - 1) if place < top else (place - 1, place - 2)
    return [other for other in around if other >= 0]


class CoreSearch:
    """One search of the core clock at a memory clock; each clock is measured once."""

    def __init__(self, measure: Measure, rule: GpoeoRule, ladder: Ladder, *, mem_mhz: int | None, wide: bool) -> None:
        self._measure, self._rule, self._ladder, self._mem_mhz = measure, rule, ladder, mem_mhz
        self._radius = max(int((_WIDE_RADIUS if wide else _RADIUS) * ladder.count), 1)
        self._found: dict[int, GpoeoPoint] = {}

    def run(self, predicted: int) -> Procedure[int]:
        low, centre, high = yield from self._bracket(predicted)
        yield from self._narrow(low, centre, high)
        return self._fitted()

    def _measured(self, point: int, why: str) -> Procedure[GpoeoPoint]:
        if point not in self._found:
            self._found[point] = yield from self._measure(self._ladder.setting(point, self._mem_mhz), why)
        return self._found[point]

    def _bracket(self, predicted: int) -> Procedure[tuple[int, int, int]]:
        """Return the clocks between which the best one lies, with the best so far in the middle."""
        rule = self._rule
        slowdown = rule.slowdown((yield from self._measured(predicted, "the core clock that was predicted")))
        low = predicted if slowdown > _CLEARLY_ABOVE * rule.limit else None
        high, centre = predicted, predicted
        if slowdown >= _CLEARLY_BELOW * rule.limit:
            high, centre, low = yield from self._stepped(centre, low, step=self._radius)
        if low is None:
            low, centre, behind = yield from self._stepped(centre, high, step=-self._radius)
            high = high if behind is None else behind
        return low, centre, high

    def _stepped(self, centre: int, behind: int | None, *, step: int) -> Procedure[tuple[int, int, int | None]]:
        """Step up or down until it gets worse; return the last clock, the centre, and the end behind the centre."""
        rule, point = self._rule, centre
        end, why = (self._ladder.top, "a step up") if step > 0 else (0, "a step down")
        while True:
            point = min(max(point + step, 0), self._ladder.top)
            there, best = (yield from self._measured(point, why)), self._found[centre]
            if point == end or not rule.better(there, best):
                return point, centre, behind
            if rule.better(there, best, factor=_MUCH_BETTER):
                behind, centre = centre, point
            if step < 0 and (not rule.allows(there) or rule.reward(there) < _GOOD_ENOUGH * rule.reward(rule.base)):
                return point, centre, behind

    def _narrow(self, low: int, centre: int, high: int) -> Procedure[None]:
        """Narrow the bracket by golden section, starting on the larger side of the centre."""
        share = _GOLDEN if high - centre > centre - low else 1 - _GOLDEN
        middle = round(low + share * (high - low))
        best = yield from self._measured(middle, "golden section")
        narrow = max(round(_NARROW * self._ladder.count), 2)
        for _ in range(_TRIES):
            if high - low < narrow:
                return
            above = high - middle > middle - low
            tried = round(middle + (1 - _GOLDEN) * ((high - middle) if above else (low - middle)))
            there = yield from self._measured(tried, "golden section")
            if self._rule.better(there, best):
                low, high = (middle, high) if above else (low, middle)
                middle, best = tried, there
            else:
                low, high = (low, tried) if above else (tried, high)

    def _fitted(self) -> int:
        """Return the best clock by cubics through all measurements, within the measured range."""
        points = sorted(point for point, found in self._found.items() if found != UNMEASURED)
        if not points:
            return self._ladder.top
        between = range(points[0], points[-1] + 1)
        times_s = cubic(points, [self._found[point].time_s for point in points], between)
        energies_j = cubic(points, [self._found[point].energy_j for point in points], between)
        expected = [GpoeoPoint(time_s, energy_j) for time_s, energy_j in zip(times_s, energies_j, strict=True)]
        return between[self._rule.best(expected)]


def cubic(points: list[int], values: list[float], at: range) -> list[float]:
    """Evaluate the cubic through some values elsewhere; below four values the one with least coefficients."""
    powers = np.vander(np.array(points, dtype=np.float64), _DEGREE + 1)
    scale = np.sqrt((powers * powers).sum(axis=0))
    scale[scale == 0] = 1.0
    coefficients, *_ = np.linalg.lstsq(powers / scale, np.array(values), rcond=len(points) * np.finfo(np.float64).eps)
    found = np.vander(np.array(at, dtype=np.float64), _DEGREE + 1) @ (coefficients / scale)
    return [float(value) for value in found]
