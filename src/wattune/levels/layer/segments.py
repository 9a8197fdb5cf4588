"""The best settings for a chain of layers when changing clocks costs time: dynamic programming over segments.

Notation and recursion are in `segment_table`: λ is the price of a second in watts, f the first setting of a step.

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

from wattune.levels.layer.costs import Floats, Ints, LayerCosts
from wattune.levels.layer.segment_table import CLOSE, ChainSums, RingProblem, RingTable, SettingGroups
from wattune.levels.layer.switching import SwitchCost, segment_times_s

BATCH = 32
"""Problems solved at once: few enough that a row of all settings stays in the cache."""

MOST_CUTS = 64
"""Ends of a first segment that are tried where the segment at the cut turned out too short."""

TRIED, TRIED_IN_LARGE = 12, 1
"""First settings tried per price; where more would be needed to prove the optimum, the bound says so."""

LARGE, TOLERANCE = 4_000, 1e-4
"""From so many layers times settings on fewer are tried, and a ring that is proven to be this close is good enough."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A setting per layer that is best at a price, and the least cost that any plan could have at that price."""

    columns: Ints
    price_w: float
    bound: float


class SegmentSolver:
    """Finds the best ring at any price, for plans that change both clocks or, with `core_only`, the core clock."""

    def __init__(self, costs: LayerCosts, switching: SwitchCost, *, core_only: bool) -> None:
        by_memory = core_only or switching.mem_stall_s >= switching.sm_stall_s
        clocks = [(setting.mem_mhz if by_memory else setting.sm_mhz) or inf for setting in costs.settings]
        self._order = np.argsort(np.array(clocks), kind="stable")
        ordered = np.array(clocks)[self._order]
        begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self._groups = SettingGroups(
            np.flatnonzero(begins),
            np.cumsum(begins) - 1,
            near_s=switching.sm_stall_s if by_memory else switching.mem_stall_s,
            far_s=inf if core_only else max(switching.sm_stall_s, switching.mem_stall_s),
            waiting_w=costs.waiting_w,
        )
        self._dwell_s = switching.dwell_s(changes_memory=not core_only)
        self._time_s = costs.time_s[:, self._order]
        forward = ChainSums.of(self._time_s, costs.energy_j[:, self._order], self._dwell_s)
        backward = ChainSums.of(self._time_s[::-1], costs.energy_j[::-1, self._order], self._dwell_s)
        self._ways = (forward, backward)
        self._is_large = self._time_s.size >= LARGE
        self._tolerance = TOLERANCE if self._is_large else CLOSE

    def rings(self, prices_w: Sequence[float]) -> list[Ring]:
        """Return the best ring at each price."""
        return [ring for place in range(0, len(prices_w), BATCH) for ring in self._rings(prices_w[place:][:BATCH])]

    def _rings(self, prices_w: Sequence[float]) -> list[Ring]:
        relaxed = RingTable(self._groups, [RingProblem(price_w) for price_w in prices_w], self._ways[1])
        values = relaxed.ends()
        states = []
        for number, price_w in enumerate(prices_w):
            state = _RingSearch(price_w, values[:, number], np.argsort(values[:, number]))
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

    def _try(self, states: list[_RingSearch]) -> None:
        """Solve each open search with its next first setting."""
        firsts = [state.next_first() for state in states]
        ways = [(state, first, joined) for joined in (True, False) for state, first in zip(states, firsts, strict=True)]
        problems = [RingProblem(state.price_w, first, joined) for state, first, joined in ways]
        table = RingTable(self._groups, problems, self._ways[0])
        for number, (state, first, _) in enumerate(ways):
            end, cost = table.closing(number, first)
            if cost < state.cost and not state.offer(self, table.path(number, end)):
                state.unproven = min(state.unproven, self._try_cuts(state, first, cost))

    def _try_cuts(self, state: _RingSearch, first: int, cost: float) -> float:
        """Solve for each place where a first segment shorter than D may end; return the cost that remains unproven.

        The segment at the cut was too short in the ring of this cost.
        """
        sums_s = self._ways[0].time_sum_s[:, first]
        long_enough = int(np.searchsorted(sums_s, self._dwell_s * (1 - CLOSE)))
        if long_enough > MOST_CUTS or self._is_large:
            return cost
        places = [(end, end, self._dwell_s - float(sums_s[end])) for end in range(1, min(long_enough, len(sums_s) - 1))]
        problems = [RingProblem(state.price_w, first, True, *place) for place in places]
        problems.append(RingProblem(state.price_w, first, True, long_enough))
        table = RingTable(self._groups, problems, self._ways[0])
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
        if min(segment_times_s(time_s, starts)) < self._dwell_s * (1 - CLOSE):
            return inf
        group = self._groups.group[columns[starts]]
        stalls_s = float(np.where(group == np.roll(group, 1), self._groups.near_s, self._groups.far_s).sum())
        return cost + stalls_s * (price_w + self._groups.waiting_w)


@dataclass(slots=True)
class _RingSearch:
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
