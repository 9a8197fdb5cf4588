"""MicrobatchSeries of alike operations in a long pipeline, and the dependencies between them.

Notation: a series is every operation of one kind, or every p-th of them in a schedule that repeats after p microbatches
(interleaved 1F1B); an operation's index is its place in its series. Indices below a limit, and as many at the other
end, are near an end; those between are the middle. A family is all dependencies from one series to another with the
same shift of the index: it connects every period with the next in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.levels.pipeline.solver.relaxation import Ints
from wattune.plans.plan import WorkGraph

Bools = NDArray[np.bool_]

NEAR = 5000
"""Operations near both ends, at most; a linear programme of more takes minutes."""

NEAREST, DEPTHS = 4, 2
"""Least length of an end in indices, and its usual length in ranks: two round trips of a microbatch."""

END = -1
"""The series of the end of the iteration."""


@dataclass(frozen=True, slots=True, eq=False)
class MicrobatchSeries:
    """The series and index of every operation, and every dependency as before and after; the end comes last."""

    series: Ints
    index: Ints
    middle: Bools
    """Whether each operation is in the middle."""
    before: Ints
    after: Ints

    @classmethod
    def of(cls, graph: WorkGraph, kinds: list[str]) -> MicrobatchSeries:
        """Find the series of a graph, with the period whose families have fewer holes."""
        number = {kind: place for place, kind in enumerate(kinds)}
        kind = np.array([number[operation.kind] for operation in graph.operations], dtype=np.int64)
        place, count = _places(kind, len(kinds))
        before, after = _needed(graph)
        ranks = len(graph.by_rank)
        period = min((1, ranks), key=lambda period: _holes(kind, place, before, after, period))
        series, index = kind * period + place % period, place // period
        near = min(max(DEPTHS * ranks, NEAREST), max(NEAR // (2 * len(kinds)), NEAREST))
        near = -(-near // period)
        last = (count[kind] - 1 - place) // period
        middle = (index >= near) & (last >= near)
        return cls(np.append(series, END), np.append(index, 0), np.append(middle, False), before, after)

    @property
    def families(self) -> Ints:
        """(dependencies, 3): the two series, and the shift between the indices."""
        shift = np.where(self.after < len(self.series) - 1, self.index[self.after] - self.index[self.before], 0)
        return np.stack((self.series[self.before], self.series[self.after], shift), axis=1)


def _places(kind: Ints, kinds: int) -> tuple[Ints, Ints]:
    """The place of each operation among those of its kind, and how many of each kind there are."""
    count = np.bincount(kind, minlength=kinds)
    order = np.argsort(kind, kind="stable")
    place = np.empty_like(kind)
    place[order] = np.arange(len(kind)) - np.repeat(np.cumsum(count) - count, count)
    return place, count


def _needed(graph: WorkGraph) -> tuple[Ints, Ints]:
    """Dependencies without those that follow from the order of a rank; the end waits for the last of each rank."""
    pairs, last = [], dict[int, int]()
    for place, (operation, others) in enumerate(zip(graph.operations, graph.predecessors, strict=True)):
        previous = last.get(operation.rank)
        chained = previous in others
        ranks = (graph.operations[other].rank for other in others)
        pairs += [
            (other, place)
            for other, rank in zip(others, ranks, strict=True)
            if other == previous or rank != operation.rank or not chained
        ]
        last[operation.rank] = place
    pairs += [(place, len(graph.operations)) for place in last.values()]
    before, after = np.array(pairs, dtype=np.int64).T
    return before, after


def _holes(kind: Ints, place: Ints, before: Ints, after: Ints, period: int) -> int:
    """Count the indices that families leave out between their first and last dependency; none with the right period."""
    inner = after < len(kind)
    one, two = before[inner], after[inner]
    index = place[two] // period
    ends = (kind[own] * period + place[own] % period for own in (one, two))
    found = np.stack((*ends, index - place[one] // period), axis=1)
    _, family, counts = np.unique(found, axis=0, return_inverse=True, return_counts=True)
    first, last = np.full(len(counts), np.iinfo(np.int64).max), np.full(len(counts), -1)
    np.minimum.at(first, family.ravel(), index)
    np.maximum.at(last, family.ravel(), index)
    return int((last - first + 1 - counts).sum())
