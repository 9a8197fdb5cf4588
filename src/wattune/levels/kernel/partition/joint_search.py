"""Our search of all partitions of a model together: what counts is the frontier of the instructions they compose to.

Notation
    cell    all settings of one partition at one clock
    regret  what the setting that is chosen in a cell costs more than the best one, in logarithms, if a draw is true
    share   of a partition in the time of a layer
    ε       factor, minus 1, by which composed plans of measured settings miss the composed frontier

The first settings are those that tell most about the constants that all partitions share (`stream_form`). Then settings
are measured that would be better than those chosen, by whole functions drawn from the posterior, as long as the sum of
expected regrets times shares is above a limit; a setting that no plan would use costs no measurement. At last the cells
of the fewest sufficient plans are measured, so that plans are composed of measured settings alone. The search ends when
the ε that it expects of the composed plans is small enough. A GPU that waits for others draws power, so slower plans
than those of least energy have a use: plans are compared by energy above that power too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from wattune.core.frontier import History
from wattune.levels.kernel.partition.joint_surrogate import JointSurrogate, SettingGrid, fit_joint
from wattune.levels.kernel.partition.partitions import KernelPartition
from wattune.levels.kernel.partition.physics_search import Remaining, reference
from wattune.levels.kernel.partition.search import Floats, PartitionSpace, Places, observed
from wattune.levels.kernel.partition.space import PartitionChoice
from wattune.levels.kernel.partition.stream_terms import StreamTerms, model_terms
from wattune.levels.kernel.schedules import BACKWARD, FORWARD
from wattune.search.hypervolume import distances, epsilon, front_places, hypervolume

_DESIGN_SCALE, _DESIGN_SCATTER = 0.1, 0.05
"""Slowness, against the best of a cell, that halves the worth of a first measurement (by e), and its random part."""
_WEIGHTS = ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
"""Of the logarithms of time and energy by which settings of a cell are compared."""
_DRAWS, _PLAN_DRAWS = 48, 24
_KEPT = 0.0003
"""Share by which a setting must be better than a measured one to replace it."""
_NEVER = 1e3
"""Logarithm of the cost of settings that cannot be measured any more."""
_WAITING_TOLERANCE = 0.006
"""ε of measured plans by energy above the power of a GPU that waits: these serve operations that others wait for."""
_NEAR = 0.0002
"""ε of composed plans that is not told apart while searching."""

DIRECTIONS = (FORWARD, BACKWARD)


@dataclass(frozen=True, slots=True, eq=False)
class JointPart:
    """A partition, its space, what a model expects of its streams, and what was measured."""

    partition: KernelPartition
    space: PartitionSpace[PartitionChoice]
    terms: StreamTerms
    history: History[PartitionChoice] = ()
    most: int | None = None
    """Trials that it may have."""

    @property
    def open(self) -> bool:
        """Whether it may be measured further."""
        return self.most is None or len(self.history) < self.most


@dataclass(frozen=True, slots=True, eq=False)
class ComposedPlans:
    """Settings of all partitions at a common clock, a row per plan."""

    costs: Floats
    """(plans, 2): seconds and joules of a layer."""
    places: Places
    """(plans, partitions): of the settings in their spaces; −1 where a partition does not run."""


@dataclass(frozen=True, slots=True, eq=False)
class JointState:
    """All partitions with what is expected of them; arrays have the settings of one partition after another."""

    parts: Sequence[JointPart]
    surrogate: JointSurrogate
    grid: SettingGrid
    measured: NDArray[np.bool_]
    logs: Floats
    """(settings, 2): measured where there is a measurement, expected elsewhere."""
    starts: Places = field(init=False)
    """Of the settings of each partition."""

    def __post_init__(self) -> None:
        sizes = [len(part.space) for part in self.parts]
        object.__setattr__(self, "starts", np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64))

    @classmethod
    def of(cls, parts: Sequence[JointPart]) -> JointState:
        """Fit the surrogate to all histories."""
        seen = [observed(part.space, part.history) for part in parts]
        terms = model_terms([part.terms for part in parts])
        grid = SettingGrid.of(terms, [choice for part in parts for choice in part.space.choices])
        starts = np.concatenate([[0], terms.ends[:-1]])
        places = np.concatenate([start + own.places for start, own in zip(starts, seen, strict=True)]).astype(np.int64)
        values, noise = (np.concatenate(own) for own in zip(*((one.logs, one.variance) for one in seen), strict=True))
        surrogate = fit_joint(terms, grid, places, values, noise)
        logs, measured = surrogate.logs.copy(), np.zeros(len(grid.clock), dtype=bool)
        logs[places], measured[places] = values, True
        return cls(parts, surrogate, grid, measured, logs)

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Settings that are measured or can be."""
        closed = np.array([not part.open for part in self.parts])
        return np.asarray(self.measured | ~closed[self.grid.partition])

    def by_part(self, values: Floats) -> list[Floats]:
        return np.split(values, self.starts[1:])

    def choices(self, places: Sequence[int]) -> tuple[tuple[PartitionChoice, ...], ...]:
        """Return settings by partition, in their order."""
        found: list[list[PartitionChoice]] = [[] for _ in self.parts]
        for place in places:
            own = int(self.grid.partition[place])
            found[own].append(self.parts[own].space.choices[place - self.starts[own]])
        return tuple(tuple(own) for own in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSearch:
    """Proposes settings of all partitions; what it proposes follows from the histories and the seed."""

    seed: int
    first: int = 3
    """Measurements of a partition that are chosen by what is known least."""
    batch: int = 3
    """Most measurements of a partition between two fits."""
    explored: float = 0.0015
    """Sum of expected regrets times shares at which settings are good enough to be measured in all cells."""
    covered: float = 0.001
    """ε of the plans that are measured to all expected plans."""
    enough: float = 0.003
    """Expected ε of the composed plans at which the search ends."""
    waiting_w: float = 0.0
    """Power of a GPU that waits for others."""

    @classmethod
    def within(cls, wanted: float, *, seed: int, waiting_w: float) -> JointSearch:
        """Aim at an ε of the composed plans: what is expected is not exact, so less of it is left to chance."""
        return cls(seed=seed, explored=0.3 * wanted, covered=0.2 * wanted, enough=0.6 * wanted, waiting_w=waiting_w)

    def propose(self, parts: Sequence[JointPart]) -> tuple[tuple[PartitionChoice, ...], ...]:
        """Return the settings to measure next of every partition; all empty when the plans are good enough."""
        state = JointState.of(parts)
        if any(part.open and len(part.history) < min(self.first, len(part.space)) for part in parts):
            return state.choices(self._designed(state))
        better = self._better(state, self.explored)
        lacking = better or self._lacking(state, 0.0, self.covered)
        if not lacking and self.waiting_w:
            lacking = self._lacking(state, self.waiting_w, _WAITING_TOLERANCE)
        if not lacking and self.remaining(parts).epsilon > self.enough:
            lacking = self._better(state, 0.0)
        return state.choices(lacking)

    def remaining(self, parts: Sequence[JointPart]) -> Remaining:
        """Expect what the plans of measured settings lack: the larger of forward and backward, by drawn functions."""
        state = JointState.of(parts)
        random = self._random(state)
        draws = np.exp(state.surrogate.draws(_PLAN_DRAWS, random))
        draws[:, state.measured] = np.exp(state.logs[state.measured])
        known = np.where(state.measured[:, None], np.exp(state.logs), np.inf)
        found = []
        for direction in DIRECTIONS:
            if not any(part.partition.per_layer(direction) for part in parts):
                continue
            have = composed_plans(parts, direction, state.by_part(known)).costs
            if not len(have):
                return Remaining(1.0, float("inf"))
            every = (composed_plans(parts, direction, state.by_part(draw), tolerance=_NEAR).costs for draw in draws)
            found.append(np.mean([missing(have, own) for own in every], axis=0))
        share, distance = np.max(found, axis=0)
        return Remaining(float(share), float(distance))

    def _random(self, state: JointState) -> np.random.Generator:
        return np.random.default_rng((self.seed, int(state.measured.sum())))

    def _designed(self, state: JointState) -> list[int]:
        """Choose settings about whose time least is known, discounted by slowness within their cells."""
        random, process, every = self._random(state), state.surrogate.time, np.arange(len(state.logs))
        left = np.array([self.first - len(part.history) if part.open else 0 for part in state.parts])
        merit = _DESIGN_SCATTER * random.standard_normal(len(every)) - _above_best(state) / _DESIGN_SCALE
        known = solve_triangular(process.lower, process.across(process.places, every), lower=True)
        variance, chosen = process.variance, list[int]()
        while (left > 0).any():
            open_ = (left > 0)[state.grid.partition] & ~state.measured
            open_[chosen] = False
            if not open_.any():
                break
            place = int(np.where(open_, np.log(np.maximum(variance, 1e-18)) / 2 + merit, -np.inf).argmax())
            across = process.across(np.array([place]), every)[0] - known[:, place] @ known
            column = across / np.sqrt(max(variance[place], 1e-18))
            known, variance = np.vstack([known, column]), np.maximum(variance - column**2, 0.0)
            chosen.append(place)
            left[state.grid.partition[place]] -= 1
        return chosen

    def _better(self, state: JointState, limit: float) -> list[int]:
        """Choose settings that are better than those chosen in some draws, one of a partition; none below the limit."""
        regrets = _Regrets.of(state, state.surrogate.draws(_DRAWS, self._random(state)))
        if regrets.largest <= limit:
            return []
        found = []
        for number, part in enumerate(state.parts):
            own = (state.grid.partition == number) & ~state.measured
            if not part.open or regrets.of_partition[number] <= limit / len(state.parts) or not own.any():
                continue
            # The launch and the SMs by what they save at all clocks, then the clock that is known least.
            kind = state.grid.launch * len(state.grid.sm_kernel) + state.grid.sms
            saved = np.bincount(kind[own], regrets.saved[own])
            at = np.flatnonzero(own & (kind == int(saved.argmax())))
            if saved.max() > 0:
                found.append(int(at[regrets.spread[at].argmax()]))
        return found

    def _lacking(self, state: JointState, waiting_w: float, tolerance: float) -> list[int]:
        """Choose what is not measured of the fewest plans that suffice, by energy above a waiting power."""
        expected = np.exp(state.logs + _KEPT * ~state.measured[:, None])
        wanted: list[int] = []
        for direction in DIRECTIONS:
            known, every = (
                composed_plans(
                    state.parts, direction, state.by_part(_above(costs, waiting_w, shown)), tolerance=tolerance / 2
                )
                for costs, shown in ((expected, state.measured), (expected, state.allowed))
            )
            for row in uncovered(every.costs, known.costs, tolerance):
                picks = zip(state.starts, every.places[row], strict=True)
                wanted += [int(start + place) for start, place in picks if place >= 0]
        fresh = [place for place in dict.fromkeys(wanted) if not state.measured[place]]
        return self._spaced(state, fresh)

    def _spaced(self, state: JointState, places: list[int]) -> list[int]:
        """Keep a batch of each partition, at clocks far from those that it was measured at and from one another."""
        kept: list[int] = []
        for number in range(len(state.parts)):
            own = [place for place in places if state.grid.partition[place] == number]
            near = list(state.grid.clock[state.measured & (state.grid.partition == number)])
            for _ in range(min(self.batch, len(own))):
                far = max(own, key=lambda place: min((abs(state.grid.clock[place] - o) for o in near), default=0))
                near.append(state.grid.clock[far])
                own.remove(far)
                kept.append(far)
        return kept


@dataclass(frozen=True, slots=True, eq=False)
class _Regrets:
    """What chosen settings are expected to cost more than the best."""

    largest: float
    """Of all clocks: the sum over partitions, by their shares."""
    of_partition: Floats
    """Largest of all clocks."""
    saved: Floats
    """(settings,): by each setting, in the draws in which it is the best."""
    spread: Floats
    """(settings,): standard deviation of what is drawn."""

    @classmethod
    def of(cls, state: JointState, draws: Floats) -> _Regrets:
        cells, starts = _cells(state)
        shares = _shares(state)[state.grid.partition[starts]]
        allowed = state.allowed
        mean, saved = [], np.zeros(len(cells))
        for weights in _WEIGHTS:
            # Where nothing of a cell is allowed all are equal, and nothing is to be regretted.
            drawn = np.where(allowed, draws @ np.array(weights), _NEVER)
            expected = np.where(allowed, (state.logs + _KEPT * ~state.measured[:, None]) @ np.array(weights), _NEVER)
            least = np.minimum.reduceat(expected, starts)
            chosen = _first_in_cell(expected == least[cells], starts)
            best = np.minimum.reduceat(drawn, starts, axis=1)
            regret = np.maximum(drawn[:, chosen] - best, 0.0) * shares
            mean.append(regret.mean(axis=0))
            saved += (regret[:, cells] * (drawn == best[:, cells])).mean(axis=0)
        each = np.max(mean, axis=0)
        clock, partition = state.grid.clock[starts], state.grid.partition[starts]
        sums = np.bincount(clock, each)
        of_partition = np.zeros(len(state.parts))
        np.maximum.at(of_partition, partition, each)
        return cls(float(sums.max()), of_partition, saved, draws.std(axis=0).sum(axis=1))


def _cells(state: JointState) -> tuple[Places, Places]:
    """Return the cell of every setting, and where cells start; settings are in the order of their clocks."""
    changes = np.diff(state.grid.clock) != 0
    changes |= np.diff(state.grid.partition) != 0
    return np.concatenate([[0], np.cumsum(changes)]), np.concatenate([[0], np.flatnonzero(changes) + 1])


def _first_in_cell(marked: NDArray[np.bool_], starts: Places) -> Places:
    """Return the first marked setting of every cell, which has one."""
    places = np.where(marked, np.arange(len(marked)), len(marked))
    return np.asarray(np.minimum.reduceat(places, starts))


def _above_best(state: JointState) -> Floats:
    """(settings,): logarithm of expected time over the least of the cell."""
    cells, starts = _cells(state)
    return np.asarray(state.logs[:, 0] - np.minimum.reduceat(state.logs[:, 0], starts)[cells])


def _shares(state: JointState) -> Floats:
    """(partitions,): of the time of a layer, the larger of forward and backward."""
    fastest_s = np.array([np.exp(own[:, 0].min()) for own in state.by_part(state.logs)])
    found = np.zeros(len(state.parts))
    for direction in DIRECTIONS:
        times_s = fastest_s * [part.partition.per_layer(direction) for part in state.parts]
        found = np.maximum(found, times_s / max(float(times_s.sum()), 1e-30))
    return found


def _above(costs: Floats, waiting_w: float, shown: NDArray[np.bool_]) -> Floats:
    """Return seconds, and joules above those of a GPU that waits; infinite where they are not shown."""
    dynamic_j = np.maximum(costs[:, 1] - waiting_w * costs[:, 0], 1e-3 * costs[:, 1])
    return np.where(shown[:, None], np.stack([costs[:, 0], dynamic_j], axis=1), np.inf)


def missing(have: Floats, every: Floats) -> tuple[float, float]:
    """Return the share of hypervolume and the ε that plans lack, if all of these exist."""
    both = np.concatenate([have, every])
    front = both[front_places(both)]
    limit = reference(np.log(have), np.log(front))
    return 1.0 - hypervolume(np.log(have), limit) / hypervolume(np.log(front), limit), epsilon(have, front)


def composed_plans(
    parts: Sequence[JointPart], direction: str, costs: Sequence[Floats], *, tolerance: float = 0.0
) -> ComposedPlans:
    """Compose a layer of one direction by these costs of settings; where a cost is infinite, there is no plan.

    Above a tolerance of 0 settings, and sums of them, are left out that others come so near to.
    """
    clocks = [np.array([choice.sm_mhz for choice in part.space.choices]) for part in parts]
    found = []
    for clock in np.unique(clocks[0]):
        total, picks = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
        for part, own, cost in zip(parts, clocks, costs, strict=True):
            count = part.partition.per_layer(direction)
            if not count:
                picks = np.column_stack([picks, np.full(len(picks), -1)])
                continue
            at = np.flatnonzero((own == clock) & np.isfinite(cost[:, 0]))
            kept = at[sufficient(cost[at], tolerance)]
            sums = (total[:, None] + count * cost[kept][None]).reshape(-1, 2)
            rows = np.array(sufficient(sums, tolerance / len(parts)), dtype=np.int64)
            before, added = np.divmod(rows, max(len(kept), 1))
            total, picks = sums[rows], np.column_stack([picks[before], kept[added]])
        found.append(ComposedPlans(total, picks))
    return ComposedPlans(np.concatenate([own.costs for own in found]), np.concatenate([own.places for own in found]))


def uncovered(points: Floats, known: Floats, tolerance: float) -> list[int]:
    """Return few rows of points that, beside known ones, have an ε to all points of at most the tolerance."""
    front = front_places(points)
    left = front[distances(known, points[front]) > tolerance]
    return [int(left[row]) for row in sufficient(points[left], tolerance)] if len(left) else []


def sufficient(points: Floats, tolerance: float) -> list[int]:
    """Return few rows whose ε to all points is at most the tolerance: from the fastest on, the furthest that do."""
    front = front_places(points)
    if not tolerance:
        return [int(row) for row in front]
    ordered, kept, at = points[front], [], 0
    while at < len(front):
        within = np.flatnonzero(ordered[:, 0] <= ordered[at, 0] * (1.0 + tolerance))
        kept.append(int(front[within[-1]]))
        done = ordered[:, 1] * (1.0 + tolerance) >= ordered[within[-1], 1]
        at = int(np.flatnonzero(done)[-1]) + 1
    return kept
