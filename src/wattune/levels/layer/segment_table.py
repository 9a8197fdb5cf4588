"""Tables of the recursion of `segments`, for many prices at once.

Notation
    λ           price of a second, in watts: a plan of cost E + λ·T is sought
    i, j        places between layers, 0 to n; b a setting; C(j,b) the cost of the first j layers at b
    D, p(j,b)   least dwell; the last place from which a segment at b that ends at j lasts at least D
    A(j,b)      least cost of the first j layers whose last segment, at b, has lasted at least D
    N(i,b)      the same where a segment at b begins at i: min over a of A(i,a) + the stall of a change from a to b
    A(j,b) = C(j,b) + min over i ≤ p(j,b) of N(i,b) − C(i,b)

The stall depends on whether the core clock, the memory clock or both change, so N takes two minima: over all settings
(`far`), and over those of one group that share a clock (`near`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from wattune.levels.layer.costs import Floats, Ints

CLOSE = 1e-12
"""Relative difference of times or costs that count as equal."""


@dataclass(frozen=True, slots=True, eq=False)
class SettingGroups:
    """Settings ordered by group, and the seconds that a change takes within a group and between groups."""

    starts: Ints
    """(groups,): the first setting of each."""
    group: Ints
    """(settings,)"""
    near_s: float
    far_s: float
    """Infinite where such a change is not allowed."""
    waiting_w: float

    def stalls(self, prices_w: Floats) -> tuple[Floats, Floats]:
        """Return the cost of a change within a group, and of any other."""
        per_s = prices_w + self.waiting_w
        return self.near_s * per_s, np.full_like(per_s, inf) if self.far_s == inf else self.far_s * per_s


@dataclass(frozen=True, slots=True)
class RingProblem:
    """One price with a fixed first setting (None: any), and how the ring closes at the cut."""

    price_w: float
    first: int | None = None
    joined: bool = True
    """Whether the first segment continues the last one; then it ends at one of the places `ends_from` to `ends_to`."""
    ends_from: int = 1
    ends_to: int | None = None
    """None: anywhere"""
    rest_s: float = 0.0
    """Least length of the last segment, where the two have to last D together."""


@dataclass(frozen=True, slots=True)
class ChainSums:
    """The chain in one direction."""

    energy_j: Floats
    time_sum_s: Floats
    """(layers + 1, settings): Σ of the layers before each place."""
    energy_sum_j: Floats
    latest: Ints
    """(layers + 1, settings): p, or −1"""
    unripe: NDArray[np.bool_]
    """(layers + 1,): whether p is −1 for a setting."""

    @classmethod
    def of(cls, time_s: Floats, energy_j: Floats, dwell_s: float) -> ChainSums:
        zero = np.zeros((1, time_s.shape[1]))
        time_sum_s = np.vstack([zero, np.cumsum(time_s, axis=0)])
        places = np.arange(len(time_sum_s))
        if dwell_s > 0:
            wanted = time_sum_s - dwell_s * (1 - CLOSE)
            columns = [
                np.searchsorted(time_sum_s[:, column], wanted[:, column], side="right") - 1
                for column in range(time_s.shape[1])
            ]
            latest = np.minimum(np.stack(columns, axis=1), places[:, None] - 1)
        else:
            latest = np.repeat(places[:, None] - 1, time_s.shape[1], axis=1)
        return cls(
            energy_j,
            time_sum_s,
            np.vstack([zero, np.cumsum(energy_j, axis=0)]),
            latest,
            np.asarray((latest < 0).any(axis=1)),
        )


class RingTable:
    """The tables of the recursion for several problems at once."""

    def __init__(self, groups: SettingGroups, problems: list[RingProblem], way: ChainSums) -> None:
        self._way = way
        self._prices_w = np.array([problem.price_w for problem in problems])
        self._near, self._far = groups.stalls(self._prices_w)
        self._group_starts, self._group = groups.starts, groups.group
        settings = way.energy_j.shape[1]
        begin = np.zeros((settings, len(problems)))
        for number, problem in enumerate(problems):
            if problem.first is not None:
                begin[:, number] = inf
                begin[problem.first, number] = 0.0
        layers = len(way.energy_j)
        self._problems = problems
        # A first segment that continues the last one may be of any length.
        self._joined = np.where([problem.joined for problem in problems], begin, inf)
        self._from = np.array([problem.ends_from for problem in problems])
        self._to = np.array([layers if problem.ends_to is None else problem.ends_to for problem in problems])
        self._anywhere = bool((self._from <= 1).all() and (self._to == layers).all())
        fixed = [problem.ends_to is not None for problem in problems]
        begin[:, fixed] = inf
        self._rows = np.arange(len(begin))
        self._solve(begin)

    def _solve(self, begin: Floats) -> None:
        layers = len(self._way.energy_j)
        best = np.empty((layers, *begin.shape))
        best[0] = begin
        self._best = best
        for place in range(1, layers):
            sums = self._sums(place)
            groups = np.minimum.reduceat(self._mature(place, sums), self._group_starts, axis=0)
            entering = np.minimum(groups + self._near, groups.min(axis=0) + self._far)
            np.subtract(entering[self._group], sums, out=sums)
            np.minimum(sums, best[place - 1], out=best[place])

    def _sums(self, place: int) -> Floats:
        """C(place, ·): (settings, problems)"""
        sums = self._way.time_sum_s[place][:, None] * self._prices_w
        sums += self._way.energy_sum_j[place][:, None]
        return np.asarray(sums)

    def _mature(self, place: int, sums: Floats) -> Floats:
        """A(place, ·) from C(place, ·): (settings, problems)"""
        latest = self._way.latest[place]
        since = self._best[latest, self._rows]
        if self._way.unripe[place]:
            since[latest < 0] = inf
        np.minimum(since, self._first_segment(place), out=since)
        since += sums
        return np.asarray(since)

    def _first_segment(self, place: int) -> Floats:
        """(settings, problems): 0 where a first segment that continues the last one may end at this place."""
        if self._anywhere:
            return self._joined
        return np.where((self._from <= place) & (place <= self._to), self._joined, inf)

    def ends(self) -> Floats:
        """(settings, problems): cost with each last setting, whose segment may be of any length."""
        return np.asarray(self._best[-1] + self._sums(len(self._way.energy_j)))

    def closing(self, number: int, first: int) -> tuple[int, float]:
        """Return the last setting of the best ring that begins with `first`, and its cost."""
        layers = len(self._way.energy_j)
        if self._problems[number].joined:
            latest = self._last_start(number, first)
            value = self._best[latest, first, number] if latest >= 0 else inf
            return first, float(value + self._sums(layers)[first, number])
        ends = self._mature(layers, self._sums(layers))[:, number]
        same = self._group == self._group[first]
        ends = ends + np.where(same, self._near[number], self._far[number])
        ends[first] -= self._near[number]
        last = int(np.argmin(ends))
        return last, float(ends[last])

    def _last_start(self, number: int, last: int) -> int:
        """Return the last place at which a final segment may begin; −1 where there is none."""
        layers, problem = len(self._way.energy_j), self._problems[number]
        if not problem.joined:
            return int(self._way.latest[layers, last])
        sums_s = self._way.time_sum_s[:, last]
        enough = int(np.searchsorted(sums_s, sums_s[-1] - problem.rest_s * (1 - CLOSE), side="right"))
        return min(enough, layers) - 1

    def path(self, number: int, last: int) -> Ints:
        """Return the setting per layer of the best chain that ends at `last`."""
        end, setting = len(self._way.energy_j), last
        columns = np.full(end, last, dtype=np.intp)
        latest, may_be_first = self._last_start(number, last), not self._problems[number].joined
        while end > 0:
            value = self._best[latest, setting, number] if latest >= 0 else inf
            # The least value never rises from place to place: its first occurrence is the start of the segment.
            begin = int(np.argmax(self._best[: latest + 1, setting, number] <= value)) if value < inf else 0
            if may_be_first and self._first_segment(end)[setting, number] <= value:
                begin = 0
            columns[begin:end] = setting
            if begin == 0:
                break
            change = np.where(self._group == self._group[setting], self._near[number], self._far[number])
            end, setting = begin, int(np.argmin(self._mature(begin, self._sums(begin))[:, number] + change))
            latest, may_be_first = int(self._way.latest[end, setting]), True
        return columns
