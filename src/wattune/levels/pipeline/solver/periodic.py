"""The relaxed problem of long pipelines: the operations near both ends, and one period for all between.

Thousands of microbatches make thousands of operations that differ only by a shift in time. Two small linear programmes
with the variables of `relaxation` replace the large one. Their values are nearly equal, so both are nearly exact. The
words series, index, middle and family are those of `series`.

    plan    Starts and durations of the middle lie on the straight line between those of its first and last operation.
            A dependency of a family is then linear in the index: it holds for all of them if it holds for the first and
            the last. The durations found are those of a plan that ends in time.
    bound   Dependencies of one family that touch the middle have one multiplier. That restricts the dual problem, so
            its value is a bound for every plan. In the programme their rows are summed; operations whose columns are
            then equal become one, and a middle of a thousand operations is a single one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import highspy
import numpy as np
from scipy import sparse

from wattune.core.errors import PlanError
from wattune.levels.pipeline.solver.relaxation import Floats, Ints, Options, Relaxed
from wattune.levels.pipeline.solver.series import NEAR, MicrobatchSeries
from wattune.plans.plan import WorkGraph

Matrix = Any
"""A sparse matrix of scipy."""


class Periodic:
    """The two programmes of one graph, solved for one time after another, each from the last solution."""

    def __init__(self, series: MicrobatchSeries, options: list[Options[Any]]) -> None:
        self.series = series
        self._plan = _interpolated(series, options)
        self._sums = _summed_rows(series)
        self._bound = _summed(series, self._sums, options)
        self._least_s = self._plan.least_s()

    @classmethod
    def of(cls, graph: WorkGraph, options: Mapping[str, Options[Any]]) -> Periodic | None:
        """Make the programmes of a graph; None where its schedule does not repeat, so that they would be large."""
        series = MicrobatchSeries.of(graph, list(options))
        if len(_classes(series, _summed_rows(series))[0]) > 2 * NEAR:
            return None
        try:
            return cls(series, [options[operation.kind] for operation in graph.operations])
        except PlanError:  # its starts cannot lie on a line
            return None

    def cheapest(self, waiting_w: float) -> Relaxed:
        """Solve for the plan of least energy where each second of the iteration costs `waiting_w`."""
        return self.at(self._plan.cheapest_s(waiting_w))

    def at(self, time_s: float) -> Relaxed:
        """Solve for a plan that ends in time, or soon after, with a bound on the effective energy of all in time."""
        durations_s, _, _ = self._plan.at(max(time_s, self._least_s))
        _, bound_j, slope_w = self._bound.at(time_s)
        return Relaxed(time_s, durations_s, bound_j, slope_w)

    def flows_w(self) -> Floats:
        """Return for each operation what a second of it costs in the last solution: its multipliers, summed."""
        duals_w: Floats = self._sums.T @ self._bound.duals_w()
        count = len(self.series.series)
        return np.bincount(self.series.before, weights=duals_w, minlength=count).astype(np.float64)[:-1]


def _interpolated(series: MicrobatchSeries, options: list[Options[Any]]) -> _Programme:
    """The programme of a plan: the middle of each series on a line between its first and last operation."""
    weights, kept = _weights(series)
    both = series.middle[series.before] & series.middle[series.after]
    rows = np.flatnonzero(~both)
    inner = np.flatnonzero(both)
    inner = inner[np.lexsort((series.index[series.after[inner]], *series.families[inner].T))]
    changes = np.any(np.diff(series.families[inner], axis=0) != 0, axis=1)
    ends = np.append(changes, True) | np.insert(changes, 0, True) if len(inner) else np.zeros(0, dtype=bool)
    rows = np.concatenate((rows, inner[ends]))
    count = len(series.series)
    before, after = (_ones(own[rows], count) for own in (series.before, series.after))
    slowest_s = np.array([own.times_s[-1] for own in options])
    return _Programme(
        (after - before) @ weights,
        before @ weights,
        lower_s=slowest_s[series.before[rows]],
        options=[options[place] for place in kept[:-1]],
        counts=np.asarray(weights[:-1].sum(axis=0)).ravel()[:-1],
        most=np.ones(len(kept) - 1),
        spread=weights[:-1, :-1],
        slowest=(slowest_s, float(sum(own.effective_j[-1] for own in options))),
    )


def _weights(series: MicrobatchSeries) -> tuple[Matrix, Ints]:
    """(operations and end, kept): each as a mean of those kept, and the places of these; the end is the last."""
    places = np.flatnonzero(series.middle)
    numbers, first, last = np.unique(series.series[places]), {}, {}
    order = places[np.lexsort((series.index[places], series.series[places]))]
    bounds = np.searchsorted(series.series[order], numbers, side="right")
    for number, start, stop in zip(numbers.tolist(), [0, *bounds[:-1].tolist()], bounds.tolist(), strict=True):
        first[number], last[number] = order[start], order[stop - 1]
    ends = np.array([*first.values(), *last.values()], dtype=np.int64)
    kept = np.union1d(np.flatnonzero(~series.middle), ends)
    start = np.array([first[number] for number in series.series[places].tolist()], dtype=np.int64)
    stop = np.array([last[number] for number in series.series[places].tolist()], dtype=np.int64)
    length = np.maximum(series.index[stop] - series.index[start], 1)
    share = (series.index[places] - series.index[start]) / length
    outer = np.flatnonzero(~series.middle)
    rows = np.concatenate((outer, places, places))
    columns = np.searchsorted(kept, np.concatenate((outer, start, stop)))
    values = np.concatenate((np.ones(len(outer)), 1 - share, share))
    found = sparse.coo_matrix((values, (rows, columns)), shape=(len(series.series), len(kept))).tocsr()
    found.eliminate_zeros()
    return found, kept


def _summed(series: MicrobatchSeries, sums: Matrix, options: list[Options[Any]]) -> _Programme:
    """The programme of the bound: rows of a family summed, and operations with equal columns as one."""
    kept, one_of, counts = _classes(series, sums)
    count = len(series.series)
    before, after = (sums @ _ones(own, count) for own in (series.before, series.after))
    slowest_s = np.array([own.times_s[-1] for own in options])
    spread = sparse.csr_matrix((1 / counts[one_of], (np.arange(count - 1), one_of)), shape=(count - 1, len(kept)))
    columns = np.append(kept, count - 1)
    return _Programme(
        (after - before).tocsc()[:, columns].tocsr(),
        before.tocsc()[:, columns].tocsr(),
        lower_s=sums @ slowest_s[series.before],
        options=[options[place] for place in kept],
        counts=np.ones(len(kept)),
        most=counts.astype(np.float64),
        spread=spread,
        slowest=(slowest_s, float(sum(own.effective_j[-1] for own in options))),
    )


def _summed_rows(series: MicrobatchSeries) -> Matrix:
    """(rows, dependencies): which dependencies each row sums."""
    touches = series.middle[series.before] | series.middle[series.after]
    single = np.stack((series.before, series.after, np.full_like(series.before, -1)), axis=1)
    keys = np.concatenate((touches[:, None], np.where(touches[:, None], series.families, single)), axis=1)
    _, row = np.unique(keys, axis=0, return_inverse=True)
    row = row.ravel()
    return sparse.csr_matrix((np.ones(len(row)), (row, np.arange(len(row)))))


def _classes(series: MicrobatchSeries, sums: Matrix) -> tuple[Ints, Ints, Ints]:
    """Classes of operations with equal columns: one operation of each, the class of each operation, and the counts."""
    count = len(series.series)
    # Columns are compared by two random sums of their entries, which are small integers: a chance of 2⁻⁶⁰ to be wrong.
    random = np.random.default_rng(0).integers(1, 2**40, size=(sums.shape[0], 2)).astype(np.float64)
    before, after = (_ones(own, count).T @ (sums.T @ random) for own in (series.before, series.after))
    marks = np.concatenate((after - before, before, series.series[:, None]), axis=1)[:-1]
    _, kept, one_of, counts = np.unique(marks, axis=0, return_index=True, return_inverse=True, return_counts=True)
    return kept, one_of.ravel(), counts


def _ones(columns: Ints, count: int) -> Matrix:
    """A matrix with a one in this column of each row."""
    return sparse.csr_matrix((np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), count))


class _Programme:
    """A linear programme: columns of starts, the end last, then columns of the shortened segments of each operation."""

    def __init__(
        self,
        starts: Matrix,
        durations: Matrix,
        *,
        lower_s: Floats,
        options: list[Options[Any]],
        counts: Floats,
        most: Floats,
        spread: Matrix,
        slowest: tuple[Floats, float],
    ) -> None:
        self._end = len(options)
        self._slowest_s, self._slowest_j = slowest
        lengths_s, costs_w = zip(*(own.segments for own in options), strict=True)
        own = np.repeat(np.arange(len(options)), [len(lengths) for lengths in lengths_s])
        self._costs_w = np.concatenate(costs_w) * counts[own]
        self._spread = spread @ _ones(own, len(options)).T
        rows = sparse.hstack((starts, durations.tocsc()[:, own])).tocsr()
        rows.eliminate_zeros()
        programme = highspy.HighsLp()
        programme.num_row_, programme.num_col_ = rows.shape
        programme.col_cost_ = np.concatenate((np.zeros(self._end + 1), self._costs_w))
        programme.col_lower_ = np.zeros(rows.shape[1])
        upper_s = np.concatenate(lengths_s) * most[own]
        programme.col_upper_ = np.concatenate((np.full(self._end + 1, highspy.kHighsInf), upper_s))
        programme.row_lower_, programme.row_upper_ = lower_s, np.full(len(lower_s), highspy.kHighsInf)
        programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        programme.a_matrix_.start_, programme.a_matrix_.index_ = rows.indptr, rows.indices
        programme.a_matrix_.value_ = rows.data
        self._model = highspy.Highs()
        for option, value in (("output_flag", False), ("presolve", "off"), ("threads", 1)):
            self._model.setOptionValue(option, value)
        self._model.passModel(programme)

    def at(self, time_s: float) -> tuple[Floats, float, float]:
        """Durations of all operations, least effective energy and its slope, for a plan that ends in time."""
        self._model.changeColBounds(self._end, 0.0, time_s)
        columns, duals = self._solve()
        shortened_s = columns[self._end + 1 :]
        durations_s: Floats = self._slowest_s - self._spread @ shortened_s
        effective_j = self._slowest_j + float(self._costs_w @ shortened_s)
        return durations_s, effective_j, min(float(duals[self._end]), 0.0)

    def duals_w(self) -> Floats:
        """The multipliers of the rows in the last solution."""
        duals_w: Floats = np.maximum(np.asarray(self._model.getSolution().row_dual, dtype=np.float64), 0.0)
        return duals_w

    def cheapest_s(self, waiting_w: float) -> float:
        """The time of least energy."""
        self._model.changeColCost(self._end, waiting_w)
        self._model.changeColBounds(self._end, 0.0, highspy.kHighsInf)
        columns, _ = self._solve()
        self._model.changeColCost(self._end, 0.0)
        return float(columns[self._end])

    def least_s(self) -> float:
        """The least time of any plan."""
        places = np.arange(len(self._costs_w), dtype=np.int32) + self._end + 1
        self._model.changeColsCost(len(places), places, np.zeros(len(places)))
        found_s = self.cheapest_s(1.0)
        self._model.changeColsCost(len(places), places, self._costs_w)
        return found_s * (1 + 1e-9)

    def _solve(self) -> tuple[Floats, Floats]:
        self._model.run()
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise PlanError("no plan ends in that time", hint="ask for at least the time of the fastest options")
        solution = self._model.getSolution()
        return np.asarray(solution.col_value), np.asarray(solution.col_dual)
