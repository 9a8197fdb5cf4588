"""The best settings for a chain of layers when changing clocks costs time: dynamic programming over segments.

Notation
    λ           price of a second, in watts: a plan of cost E + λ·T is sought
    i, j        places between layers, 0 to n; b a setting; C(j,b) the cost of the first j layers at b
    D, p(j,b)   least dwell; the last place from which a segment at b that ends at j lasts at least D
    A(j,b)      least cost of the first j layers whose last segment, at b, has lasted at least D
    N(i,b)      the same where a segment at b begins at i: min over a of A(i,a) + the stall of a change from a to b
    A(j,b) = C(j,b) + min over i ≤ p(j,b) of N(i,b) − C(i,b)

The stall depends on whether the core clock, the memory clock or both change, so N takes two minima, over all settings
and over those that share a clock. Many prices are solved at once.

The layers form a ring: the last setting of a step is followed by the first of the next. Cut open, with a free first
setting, free ends and no stall at the cut, the problem is easier; V(f), its cost with f as the first setting, is a
lower bound (computed backwards). Settings f are tried in the order of V until no V is below the best ring found:
`joined`, where the segment at the cut goes on, and strict, where a change happens at the cut. The least cost g(λ) of
any ring bounds every plan: none of time T spends less than max over λ of g(λ) − λ·T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from wattune.levels.layer.costs import Floats, LayerCosts
from wattune.levels.layer.switching import SwitchCost, segment_times_s

Ints = NDArray[np.intp]

BATCH = 16
"""Problems solved at once: few enough that a row of all settings stays in the cache."""

MOST_CUTS = 64
"""Ends of a first segment that are tried where the segment at the cut turned out too short."""

TRIED, TRIED_IN_LARGE = 12, 1
"""First settings tried per price; where more would be needed to prove the optimum, the bound says so."""

LARGE, TOLERANCE = 4_000, 1e-4
"""From so many layers times settings on fewer are tried, and a ring that is proven to be this close is good enough."""

_CLOSE = 1e-12


@dataclass(frozen=True, slots=True)
class Ring:
    """A setting per layer that is best at a price, and the least cost that any plan could have at that price."""

    columns: Ints
    price_w: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Problem:
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


class SegmentSolver:
    """Finds the best ring at any price, for plans that change both clocks or, with `core_only`, the core clock."""

    def __init__(self, costs: LayerCosts, switching: SwitchCost, *, core_only: bool) -> None:
        self._waiting_w = costs.waiting_w
        by_memory = core_only or switching.mem_stall_s >= switching.sm_stall_s
        clocks = [(setting.mem_mhz if by_memory else setting.sm_mhz) or inf for setting in costs.settings]
        self._order = np.argsort(np.array(clocks), kind="stable")
        ordered = np.array(clocks)[self._order]
        begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self._starts, self._group = np.flatnonzero(begins), np.cumsum(begins) - 1
        self._near_s = switching.sm_stall_s if by_memory else switching.mem_stall_s
        self._far_s = inf if core_only else max(switching.sm_stall_s, switching.mem_stall_s)
        self._dwell_s = switching.dwell_s(changes_memory=not core_only)
        self._time_s = costs.time_s[:, self._order]
        forward = _Way.of(self._time_s, costs.energy_j[:, self._order], self._dwell_s)
        backward = _Way.of(self._time_s[::-1], costs.energy_j[::-1, self._order], self._dwell_s)
        self._ways = (forward, backward)
        self._is_large = self._time_s.size >= LARGE
        self._tolerance = TOLERANCE if self._is_large else _CLOSE

    def rings(self, prices_w: Sequence[float]) -> list[Ring]:
        """Return the best ring at each price."""
        return [ring for place in range(0, len(prices_w), BATCH) for ring in self._rings(prices_w[place:][:BATCH])]

    def _rings(self, prices_w: Sequence[float]) -> list[Ring]:
        relaxed = _Table(self, [_Problem(price_w) for price_w in prices_w], self._ways[1])
        values = relaxed.ends()
        states = []
        for number, price_w in enumerate(prices_w):
            state = _Search(price_w, values[:, number], np.argsort(values[:, number]))
            # Where the easier problem has a ring as its answer, that is the best one.
            first = int(state.order[0])
            state.offer(self, relaxed.path(number, first)[::-1])
            states.append(state)
        for _ in range(TRIED_IN_LARGE if self._is_large else TRIED):
            open_ = [state for state in states if not state.is_closed(self._tolerance)]
            if not open_:
                break
            self._try(open_)
        return [Ring(self._order[state.best], state.price_w, state.bound) for state in states]

    def _try(self, states: list[_Search]) -> None:
        """Solve each open search with its next first setting."""
        firsts = [state.next_first() for state in states]
        for joined in (True, False):
            problems = [_Problem(state.price_w, first, joined) for state, first in zip(states, firsts, strict=True)]
            table = _Table(self, problems, self._ways[0])
            for number, (state, first) in enumerate(zip(states, firsts, strict=True)):
                end, cost = table.closing(number, first)
                if cost < state.cost and not state.offer(self, table.path(number, end)):
                    state.unproven = min(state.unproven, self._try_cuts(state, first, cost))

    def _try_cuts(self, state: _Search, first: int, cost: float) -> float:
        """Solve for each place where a first segment shorter than D may end; return the cost that remains unproven.

        The segment at the cut was too short in the ring of this cost.
        """
        sums_s = self._ways[0].time_sum_s[:, first]
        long_enough = int(np.searchsorted(sums_s, self._dwell_s * (1 - _CLOSE)))
        if long_enough > MOST_CUTS or self._is_large:
            return cost
        places = [(end, end, self._dwell_s - float(sums_s[end])) for end in range(1, min(long_enough, len(sums_s) - 1))]
        problems = [_Problem(state.price_w, first, True, *place) for place in places]
        problems.append(_Problem(state.price_w, first, True, long_enough))
        table = _Table(self, problems, self._ways[0])
        for number in range(len(problems)):
            end, found = table.closing(number, first)
            if found < state.cost:
                state.offer(self, table.path(number, end))
        return inf

    def ring_cost(self, columns: Ints, price_w: float) -> float:
        """Return the cost of a ring at a price; infinite where a segment is too short or a change not allowed."""
        rows = np.arange(len(columns))
        time_s = self._time_s[rows, columns]
        cost = float((self._ways[0].energy_j[rows, columns] + price_w * time_s).sum())
        starts = np.flatnonzero(columns != np.roll(columns, 1))
        if not len(starts):
            return cost
        if min(segment_times_s(time_s, starts)) < self._dwell_s * (1 - _CLOSE):
            return inf
        settings = columns[starts]
        same = self._group[settings] == self._group[np.roll(settings, 1)]
        stalls_s = float(np.where(same, self._near_s, self._far_s).sum())
        return cost + stalls_s * (price_w + self._waiting_w)

    def stalls(self, prices_w: Floats) -> tuple[Floats, Floats]:
        """Return the cost of a change within a group, and of any other."""
        per_s = prices_w + self._waiting_w
        return self._near_s * per_s, np.full_like(per_s, inf) if self._far_s == inf else self._far_s * per_s

    @property
    def groups(self) -> tuple[Ints, Ints]:
        """The first setting of each group, and the group of each setting."""
        return self._starts, self._group


@dataclass(slots=True)
class _Search:
    """What is known of the best ring at one price."""

    price_w: float
    lower: Floats
    """(settings,): V"""
    order: Ints
    tried: int = 0
    cost: float = inf
    unproven: float = inf
    """Least cost of a joined ring that turned out too short at the cut: a bound, not a plan."""
    best: Ints = None  # type: ignore[assignment]  # the first offer sets it

    def is_closed(self, tolerance: float) -> bool:
        return self.tried >= len(self.order) or self.lower[self.order[self.tried]] >= self.cost * (1 - tolerance)

    @property
    def bound(self) -> float:
        left = inf if self.tried >= len(self.order) else float(self.lower[self.order[self.tried]])
        return min(self.cost, left, self.unproven)

    def next_first(self) -> int:
        self.tried += 1
        return int(self.order[self.tried - 1])

    def offer(self, solver: SegmentSolver, columns: Ints) -> bool:
        """Keep a ring if it is the best so far; return whether it is a plan at all."""
        cost = solver.ring_cost(columns, self.price_w)
        if cost < self.cost or self.best is None:
            self.best = columns
            self.cost = min(cost, self.cost)
        return cost < inf


@dataclass(frozen=True, slots=True)
class _Way:
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
    def of(cls, time_s: Floats, energy_j: Floats, dwell_s: float) -> _Way:
        zero = np.zeros((1, time_s.shape[1]))
        time_sum_s = np.vstack([zero, np.cumsum(time_s, axis=0)])
        places = np.arange(len(time_sum_s))
        if dwell_s > 0:
            wanted = time_sum_s - dwell_s * (1 - _CLOSE)
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


class _Table:
    """The tables of the recursion for several problems at once."""

    def __init__(self, solver: SegmentSolver, problems: list[_Problem], way: _Way) -> None:
        self._way = way
        self._prices_w = np.array([problem.price_w for problem in problems])
        self._near, self._far = solver.stalls(self._prices_w)
        self._group_starts, self._group = solver.groups
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
        enough = int(np.searchsorted(sums_s, sums_s[-1] - problem.rest_s * (1 - _CLOSE), side="right"))
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


MOST_SEGMENTS, MOST_COMBINATIONS = 10, 80
"""Rings of more segments have close neighbours on the hull; so many combinations of fewer segments are kept."""


def resettled(costs: LayerCosts, columns: Ints) -> list[Ints]:
    """Return rings with the segments of this ring and any core clocks that no other combination beats.

    Between the corners of the hull lie plans that are best for their time at no price. With few segments they are found
    by adding up the time-energy frontiers of the segments, at each memory clock of the ring.
    """
    starts = np.flatnonzero(columns != np.roll(columns, 1))
    if not 2 <= len(starts) <= MOST_SEGMENTS:
        return []
    number = np.searchsorted(starts, np.arange(len(columns)), side="right") - 1
    number[number < 0] = len(starts) - 1
    time_s = np.stack([costs.time_s[number == segment].sum(axis=0) for segment in range(len(starts))])
    energy_j = np.stack([costs.energy_j[number == segment].sum(axis=0) for segment in range(len(starts))])
    memories = np.array([setting.mem_mhz or inf for setting in costs.settings])
    return [
        chosen[number]
        for memory in dict.fromkeys(memories[columns].tolist())
        for chosen in _combinations(time_s, energy_j, np.flatnonzero(memories == memory))
    ]


def _combinations(time_s: Floats, energy_j: Floats, allowed: Ints) -> list[Ints]:
    """Return the settings per segment of all sums that no other sum beats, thinned where there are too many."""
    total_s, total_j = np.zeros(1), np.zeros(1)
    chosen = np.empty((1, 0), dtype=np.intp)
    for own_s, own_j in zip(time_s, energy_j, strict=True):
        best = allowed[undominated(own_s[allowed], own_j[allowed])]
        sums_s = (total_s[:, None] + own_s[best]).ravel()
        sums_j = (total_j[:, None] + own_j[best]).ravel()
        kept = undominated(sums_s, sums_j)
        kept = kept[np.unique(np.linspace(0, len(kept) - 1, MOST_COMBINATIONS).astype(int))]
        chosen = np.column_stack([chosen[kept // len(best)], best[kept % len(best)]])
        total_s, total_j = sums_s[kept], sums_j[kept]
    return list(chosen)


def undominated(time_s: Floats, energy_j: Floats) -> Ints:
    """Return the places of the points on the frontier, fastest first."""
    order = np.lexsort((energy_j, time_s))
    least = np.minimum.accumulate(energy_j[order])
    return np.asarray(order[np.concatenate([[True], energy_j[order][1:] < least[:-1]])])
