"""The relaxed problem: durations anywhere between the options, a linear programme for each iteration time.

Notation: operation i starts at s_i, lasts d_i = D_i − Σ_k δ_ik with D_i its slowest time and δ_ik ≤ the length of hull
segment k, whose slope c_k is the cost of saving a second; operation j waits for i: s_j ≥ s_i + d_i; the iteration ends
at T ≥ s_i + d_i. Minimise Σ c_k δ_ik for a given T. The hull is convex, so cheap segments fill first. Effective energy
is ê = e − P·t with P the blocking power. Lowering T keeps the last basis dual feasible: the dual simplex method
continues from it (HiGHS, Huangfu and Hall 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import highspy
import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import PlanError
from wattune.core.frontier import C, Trial
from wattune.plans.plan import WorkGraph

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Options(Generic[C]):
    """The options worth choosing, fastest first, and which of them are corners of the lower convex hull."""

    trials: tuple[Trial[C], ...]
    times_s: Floats
    effective_j: Floats
    """ê, falling."""
    corners: tuple[int, ...]
    """Places of the hull's corners, which include the fastest and the slowest option."""

    @classmethod
    def of(cls, trials: Iterable[Trial[C]], *, blocking_power_w: float, kind: str) -> Options[C]:
        """Select the options of a kind that are worth choosing; refuse none at all and one that takes no time."""
        found = tuple(trials)
        if not found:
            raise PlanError(f"{kind} has no options", hint="give the profile at least one row for it")
        for trial in found:
            if not trial.cost.time_s > 0:
                raise PlanError(f"{kind} takes {trial.cost.time_s:g} s at {trial.choice}, which is impossible")
        worth = _worth_choosing(found, blocking_power_w)
        times_s = np.array([trial.cost.time_s for trial in worth])
        effective_j = np.array([effective(trial, blocking_power_w) for trial in worth])
        return cls(worth, times_s, effective_j, lower_hull(times_s, effective_j))

    @property
    def hull_times_s(self) -> Floats:
        """Times of the hull's corners, rising."""
        return self.times_s[list(self.corners)]

    @property
    def hull_effective_j(self) -> Floats:
        """ê of the hull's corners, falling ever more slowly."""
        return self.effective_j[list(self.corners)]

    @property
    def segments(self) -> tuple[Floats, Floats]:
        """Lengths δ of the hull's segments in seconds, and the cost c of saving a second on each."""
        lengths_s = np.diff(self.hull_times_s)
        return lengths_s, -np.diff(self.hull_effective_j) / lengths_s


def effective(trial: Trial[C], blocking_power_w: float) -> float:
    """Compute ê of an option."""
    return trial.cost.energy_j - blocking_power_w * trial.cost.time_s


def _worth_choosing(trials: tuple[Trial[C], ...], blocking_power_w: float) -> tuple[Trial[C], ...]:
    """The Pareto frontier of (t, ê), fastest first."""
    worth: list[Trial[C]] = []
    for trial in sorted(trials, key=lambda trial: (trial.cost.time_s, trial.cost.energy_j)):
        if not worth or effective(trial, blocking_power_w) < effective(worth[-1], blocking_power_w) - 1e-9:
            worth.append(trial)
    return tuple(worth)


def lower_hull(times_s: Floats, effective_j: Floats) -> tuple[int, ...]:
    """Places of the corners of the lower convex hull (Andrew's monotone chain)."""
    hull: list[int] = []
    for place in range(len(times_s)):
        while len(hull) >= 2 and not _turns_up(times_s, effective_j, hull[-2], hull[-1], place):
            hull.pop()
        hull.append(place)
    return tuple(hull)


def _turns_up(times_s: Floats, effective_j: Floats, one: int, two: int, three: int) -> bool:
    first = (effective_j[two] - effective_j[one]) * (times_s[three] - times_s[one])
    return bool(first < (effective_j[three] - effective_j[one]) * (times_s[two] - times_s[one]))


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """The best relaxed plan for one time: durations, effective energy, and the slope of the frontier."""

    time_s: float
    durations_s: Floats
    effective_j: float
    slope_w: float
    """dE/dT at this time: not positive."""


class Relaxation:
    """The linear programme of a graph, solved for one time after another, each from the last solution."""

    def __init__(self, graph: WorkGraph, options: Mapping[str, Options[Any]]) -> None:
        # The column of T; columns of starts come before it, those of segments after.
        self._end = len(graph.operations)
        kinds = [options[operation.kind] for operation in graph.operations]
        self._slowest_s = np.array([kind.times_s[-1] for kind in kinds])
        self._slowest_j = float(sum(kind.effective_j[-1] for kind in kinds))
        segments = {kind: own.segments for kind, own in options.items()}
        lengths_s, costs_w = zip(*(segments[operation.kind] for operation in graph.operations), strict=True)
        self._lengths_s, self._costs_w = np.concatenate(lengths_s), np.concatenate(costs_w)
        counts = np.array([len(own) for own in lengths_s], dtype=np.int64)
        self._first = np.concatenate(([0], np.cumsum(counts)))
        self._model = self._make(graph, counts)

    def cheapest(self, waiting_w: float) -> Relaxed:
        """Solve for the plan of least energy where each second of the iteration costs `waiting_w`."""
        self._model.changeColCost(self._end, waiting_w)
        self._model.changeColBounds(self._end, 0.0, highspy.kHighsInf)
        solved = self._solve()
        self._model.changeColCost(self._end, 0.0)
        return solved

    def at(self, time_s: float) -> Relaxed:
        """Solve for the plan of least effective energy that ends in time."""
        self._model.changeColBounds(self._end, 0.0, time_s)
        return self._solve()

    def flows_w(self) -> Floats:
        """Return for each operation what a second of it costs in the last solution: its multipliers, summed."""
        duals_w = np.maximum(np.asarray(self._model.getSolution().row_dual), 0.0)
        return np.bincount(self._before, weights=duals_w, minlength=self._end).astype(np.float64)

    def fix(self, corners: Mapping[int, int]) -> None:
        """Fix the duration of each of these operations at this corner of its hull."""
        columns, values = [], []
        for place, corner in corners.items():
            for segment in range(self._first[place], self._first[place + 1]):
                columns.append(self._end + 1 + segment)
                values.append(self._lengths_s[segment] if segment - self._first[place] >= corner else 0.0)
        self._bound(columns, values, values)

    def free(self, places: Iterable[int]) -> None:
        """Undo `fix` for these operations."""
        segments = [segment for place in places for segment in range(self._first[place], self._first[place + 1])]
        columns = [self._end + 1 + segment for segment in segments]
        self._bound(columns, [0.0] * len(columns), [self._lengths_s[segment] for segment in segments])

    def _bound(self, columns: list[int], lower: list[float], upper: list[float]) -> None:
        self._model.changeColsBounds(len(columns), np.array(columns, dtype=np.int32), np.array(lower), np.array(upper))

    def _solve(self) -> Relaxed:
        self._model.run()
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise PlanError("no plan ends in that time", hint="ask for at least the time of the fastest options")
        solution = self._model.getSolution()
        columns = np.asarray(solution.col_value)
        shortened_s = columns[self._end + 1 :]
        sums = np.concatenate(([0.0], np.cumsum(shortened_s)))
        durations_s = self._slowest_s - (sums[self._first[1:]] - sums[self._first[:-1]])
        return Relaxed(
            float(columns[self._end]),
            durations_s,
            self._slowest_j + float(self._costs_w @ shortened_s),
            min(float(solution.col_dual[self._end]), 0.0),
        )

    def _make(self, graph: WorkGraph, segments: Ints) -> highspy.Highs:
        before, after = _edges(graph)
        self._before = before
        rows = np.arange(len(before), dtype=np.int64)
        spread = segments[before]
        total = self._end + 1 + len(self._lengths_s)
        # Row: s_after − s_before + Σ δ_before ≥ D_before.
        own = np.repeat(self._end + 1 + self._first[before] - np.concatenate(([0], np.cumsum(spread)))[:-1], spread)
        index = np.concatenate((after, before, own + np.arange(len(own))))
        value = np.concatenate((np.ones(len(rows)), -np.ones(len(rows)), np.ones(len(own))))
        place = np.argsort(np.concatenate((rows, rows, np.repeat(rows, spread))), kind="stable")
        programme = highspy.HighsLp()
        programme.num_col_, programme.num_row_ = total, len(rows)
        programme.col_cost_ = np.concatenate((np.zeros(self._end + 1), self._costs_w))
        programme.col_lower_ = np.zeros(total)
        programme.col_upper_ = np.concatenate((np.full(self._end + 1, highspy.kHighsInf), self._lengths_s))
        programme.row_lower_ = self._slowest_s[before]
        programme.row_upper_ = np.full(len(rows), highspy.kHighsInf)
        programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        programme.a_matrix_.start_ = np.concatenate(([0], np.cumsum(2 + spread)))
        programme.a_matrix_.index_, programme.a_matrix_.value_ = index[place], value[place]
        model = highspy.Highs()
        model.setOptionValue("output_flag", False)
        model.setOptionValue("presolve", "off")
        model.setOptionValue("threads", 1)
        model.passModel(programme)
        return model


def successors(graph: WorkGraph) -> tuple[list[int], ...]:
    """The operations that wait for each operation of a graph."""
    after: tuple[list[int], ...] = tuple([] for _ in graph.operations)
    for place, before in enumerate(graph.predecessors):
        for other in before:
            after[other].append(place)
    return after


def _edges(graph: WorkGraph) -> tuple[Ints, Ints]:
    """Dependencies as two columns (before, after); the end waits for operations that nothing else waits for."""
    pairs = [(other, index) for index, others in enumerate(graph.predecessors) for other in others]
    waited = {other for other, _ in pairs}
    pairs += [(index, len(graph.operations)) for index in range(len(graph.operations)) if index not in waited]
    before, after = np.array(pairs, dtype=np.int64).T
    return before, after
