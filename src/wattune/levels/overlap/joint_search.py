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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from wattune.levels.overlap.joint_plans import Remaining, composed_plans, missing, uncovered
from wattune.levels.overlap.joint_state import DIRECTIONS, JointPart, JointState
from wattune.levels.overlap.search import Floats, Places
from wattune.levels.overlap.space import PartitionChoice

_DESIGN_SCALE, _DESIGN_SCATTER = 0.1, 0.05
"""Slowness, against the best of a cell, that divides the worth of a first measurement by e, and its random part."""
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
        merit = _DESIGN_SCATTER * random.standard_normal(len(every)) - state.above_best / _DESIGN_SCALE
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
        cells, starts = state.cells
        shares = state.shares[state.grid.partition[starts]]
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


def _first_in_cell(marked: NDArray[np.bool_], starts: Places) -> Places:
    """Return the first marked setting of every cell, which has one."""
    places = np.where(marked, np.arange(len(marked)), len(marked))
    return np.asarray(np.minimum.reduceat(places, starts))


def _above(costs: Floats, waiting_w: float, shown: NDArray[np.bool_]) -> Floats:
    """Return seconds, and joules above those of a GPU that waits; infinite where they are not shown."""
    dynamic_j = np.maximum(costs[:, 1] - waiting_w * costs[:, 0], 1e-3 * costs[:, 1])
    return np.where(shown[:, None], np.stack([costs[:, 0], dynamic_j], axis=1), np.inf)
