"""The relaxed problem of graphs too large for one linear programme: operations in groups, paths as constraints.

Thousands of microbatches make thousands of similar operations. Operations of one group share one duration d_g, which
restricts the problem. Only paths that turn out too long become constraints Σ_{i∈π} d_g(i) ≤ T; the loop ends when the
longest path is short enough, so leaving out the others restricts nothing. The multipliers λ_π of these constraints give
a flow x_i = Σ_{π∋i} λ_π through every operation and, by weak duality, a bound for the whole, ungrouped problem:

    Σ_i min_d (ê_i(d) + x_i·d) − T·Σ λ_π ≤ the least effective energy at T.

After the path formulation of the time-cost trade-off problem (Fulkerson 1961; Kelley 1961).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import highspy
import numpy as np

from wattune.core.plan import WorkGraph
from wattune.levels.kernel.solver.relaxation import Floats, Ints, Options, Relaxed, successors

CLOSE = 3e-4
"""Share of the time by which a path may be too long; the plan is then one for that longer time."""


class Aggregation:
    """Groups of operations and the constraining paths, reused from one time to the next."""

    def __init__(self, graph: WorkGraph, options: Mapping[str, Options[Any]]) -> None:
        kinds = list(options)
        self._options = [options[kind] for kind in kinds]
        self._predecessors = graph.predecessors
        self._kind = np.array([kinds.index(operation.kind) for operation in graph.operations], dtype=np.int64)
        self._rank = np.array([operation.rank for operation in graph.operations], dtype=np.int64)
        self._successors = successors(graph)
        self._group = _grouped_by_place(self._kind)
        self._paths: list[Ints] = []
        self._flows_w = np.zeros(len(self._kind))

    def cheapest(self, waiting_w: float) -> Relaxed:
        """Solve for the plan of least energy where each second of the iteration costs `waiting_w`."""
        return self._solve(None, waiting_w)

    def at(self, time_s: float) -> Relaxed:
        """Solve for a plan that ends in time, with a bound on the effective energy of every such plan."""
        return self._solve(time_s, 0.0)

    def _solve(self, time_s: float | None, waiting_w: float) -> Relaxed:
        taken_s, durations_s, weights_w = self._grouped(time_s, waiting_w)
        total_w = float(weights_w.sum())
        self._flows_w = self._flow(weights_w)
        return Relaxed(taken_s, durations_s, self._bound_j(self._flows_w, taken_s, total_w), -total_w)

    def flows_w(self) -> Floats:
        """Return for each operation what a second of it costs in the last solution: x_i."""
        return self._flows_w

    def _grouped(self, time_s: float | None, waiting_w: float) -> tuple[float, Floats, Floats]:
        """The time, durations and path multipliers of the best grouped plan; adds paths that are too long."""
        master = _Master(self._options, self._kind, self._group, time_s=time_s, waiting_w=waiting_w)
        for path in self._paths:
            master.add(path)
        while True:
            found_s, durations_s = master.solve()
            length_s, paths = self._longest_paths(durations_s)
            if length_s <= found_s * (1 + CLOSE):
                return length_s, durations_s, master.multipliers_w()
            for path in paths:
                self._paths.append(path)
                master.add(path)

    def _longest_paths(self, durations_s: Floats) -> tuple[float, list[Ints]]:
        """The length of the longest path, and the longest path through each rank."""
        lasts_s = durations_s.tolist()
        heads_s, came_from = _longest(range(len(lasts_s)), self._predecessors, lasts_s)
        tails_s, goes_to = _longest(reversed(range(len(lasts_s))), self._successors, lasts_s)
        through_s = np.array(heads_s) + np.array(tails_s) - durations_s
        paths = {}
        for rank in range(int(self._rank.max()) + 1):
            members = np.flatnonzero(self._rank == rank)
            path = _path(int(members[np.argmax(through_s[members])]), came_from, goes_to)
            paths[path.tobytes()] = path
        return float(through_s.max()), list(paths.values())

    def _flow(self, weights_w: Floats) -> Floats:
        """x_i: the multipliers of all paths through each operation."""
        flow_w = np.zeros(len(self._kind))
        for path, weight_w in zip(self._paths, weights_w, strict=True):
            if weight_w > 0:
                flow_w[path] += weight_w
        return flow_w

    def _bound_j(self, flow_w: Floats, time_s: float, total_w: float) -> float:
        bound_j = -time_s * total_w
        for kind, own in enumerate(self._options):
            flows_w, counts = np.unique(flow_w[self._kind == kind], return_counts=True)
            least_j = (own.hull_effective_j[None, :] + flows_w[:, None] * own.hull_times_s[None, :]).min(axis=1)
            bound_j += float(least_j @ counts)
        return bound_j


class _Master:
    """The linear programme over groups, with a row for each constraining path."""

    def __init__(
        self, options: list[Options[Any]], kind: Ints, group: Ints, *, time_s: float | None, waiting_w: float
    ) -> None:
        groups, first_member, counts = np.unique(group, return_index=True, return_counts=True)
        own = [options[kind[place]] for place in first_member]
        self._group = group
        self._slowest_s = np.array([one.times_s[-1] for one in own])
        self._segments = np.array([len(one.corners) - 1 for one in own], dtype=np.int64)
        self._first = np.concatenate(([0], np.cumsum(self._segments)))
        lengths_s, costs_w = (np.concatenate(parts) for parts in zip(*(one.segments for one in own), strict=True))
        self._model = highspy.Highs()
        self._model.setOptionValue("output_flag", False)
        columns = len(lengths_s)
        low_s, high_s = (0.0, highspy.kHighsInf) if time_s is None else (time_s, time_s)
        self._model.addVars(columns + 1, np.append(np.zeros(columns), low_s), np.append(lengths_s, high_s))
        weights = np.append(costs_w * np.repeat(counts, self._segments), waiting_w)
        self._model.changeColsCost(columns + 1, np.arange(columns + 1, dtype=np.int32), weights)
        self._time = columns
        self._groups = len(groups)

    def add(self, path: Ints) -> None:
        """Constrain a path to end in time: T + Σ n_g Σ_k δ_gk ≥ Σ n_g D_g."""
        members = np.bincount(self._group[path], minlength=self._groups)
        per_segment = np.repeat(members, self._segments)
        columns = np.flatnonzero(per_segment)
        self._model.addRow(
            float(members @ self._slowest_s),
            highspy.kHighsInf,
            len(columns) + 1,
            np.append(columns, self._time).astype(np.int32),
            np.append(per_segment[columns], 1).astype(np.float64),
        )

    def solve(self) -> tuple[float, Floats]:
        """The time, and the duration of every operation."""
        self._model.run()
        values = np.asarray(self._model.getSolution().col_value)
        sums = np.concatenate(([0.0], np.cumsum(values[: self._time])))
        durations_s = self._slowest_s - (sums[self._first[1:]] - sums[self._first[:-1]])
        return float(values[self._time]), durations_s[self._group]

    def multipliers_w(self) -> Floats:
        """λ of every path."""
        multipliers_w: Floats = np.maximum(np.asarray(self._model.getSolution().row_dual, dtype=np.float64), 0.0)
        return multipliers_w


def _grouped_by_place(kind: Ints) -> Ints:
    """Group operations by their distance from the first and the last of their kind, in powers of two.

    Operations differ while the pipeline fills and drains, and are alike between.
    """
    group = np.empty_like(kind)
    groups = 0
    for one in np.unique(kind):
        members = np.flatnonzero(kind == one)
        place = np.arange(len(members))
        from_first, from_last = np.minimum(np.log2(place + 1), 5).astype(int), np.minimum(np.log2(place[::-1] + 1), 5)
        _, own = np.unique(from_first + 6 * from_last.astype(int), return_inverse=True)
        group[members] = groups + own
        groups += int(own.max()) + 1
    return group


def _longest(
    places: Iterable[int], needed: Sequence[Sequence[int]], lasts_s: list[float]
) -> tuple[list[float], list[int]]:
    """The longest time of a chain of needed operations up to each place, itself included, and the next on that chain.

    With predecessors that is the earliest end of each operation; backwards, with successors, the rest from its start.
    """
    longest_s, comes_from = [0.0] * len(lasts_s), [-1] * len(lasts_s)
    for place in places:
        before_s, source = 0.0, -1
        for other in needed[place]:
            if longest_s[other] > before_s:
                before_s, source = longest_s[other], other
        longest_s[place], comes_from[place] = before_s + lasts_s[place], source
    return longest_s, comes_from


def _path(place: int, came_from: list[int], goes_to: list[int]) -> Ints:
    """The operations of a longest path through a place."""
    before = list(_followed(came_from[place], came_from))
    return np.array([*reversed(before), place, *_followed(goes_to[place], goes_to)], dtype=np.int64)


def _followed(place: int, links: list[int]) -> Iterator[int]:
    while place >= 0:
        yield place
        place = links[place]
