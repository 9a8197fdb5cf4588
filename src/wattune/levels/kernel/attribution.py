"""Attribute energy to kinds of instructions that last less than the refresh period of the energy counter.

Notation: the counter is refreshed every τ (100 ms on many GPUs) and an instruction may last less. At the instant e of a
refresh the counter is exact: E(e) = c + Σ_k P_k·T_k(e), with T_k the time that kind k has run until then; waiting is a
kind too. Every refresh between two boundaries of instructions gives one such equation; e is known to a fraction w of τ,
so the error of the equation is P̄·w/√12. The powers P_k are the least-squares solution over all refreshes, with a normal
prior of mean P̄ (the mean power) and standard deviation P̄/2 for kinds that the refreshes cannot separate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from wattune.core.measurement import Measurement
from wattune.core.refresh import READ_S, RESOLUTION_J, UNKNOWN_PERIOD_S, Refresh
from wattune.levels.kernel.relaxation import Floats

WAITING = "waiting"
"""Between two instructions of an iteration."""

OUTSIDE = "outside"
"""Between two iterations: the optimizer's step, loading data."""

PAUSED = "paused"
"""Between two iterations, idle."""

PRIOR = 0.5
"""Standard deviation of the prior of a kind's power, as a share of mean power."""

LEAST_W = 1.0
"""Least power of any GPU that is switched on."""

LEAST_SHARE = 0.02
"""Of the time: the power of a kind that runs for less is not reported."""


class Boundary(NamedTuple):
    """An instant between two intervals of work: the counter there, and the kind of work that ended."""

    time_s: float
    energy_j: float
    kind: str


@dataclass(frozen=True, slots=True)
class Attribution:
    """Time and energy of one instruction of each kind, and the number of counter refreshes used."""

    costs: Mapping[str, Measurement]
    """By kind of instruction, with the error of the energy."""
    waiting_w: float | None
    """None where the rank hardly ever waited."""
    moves: int

    @property
    def error(self) -> float:
        """The largest error of an energy as a share of it."""
        return max(
            (cost.energy_error_j or 0.0) / cost.energy_j if cost.energy_j > 0 else inf for cost in self.costs.values()
        )


def attribute(boundaries: Sequence[Boundary], *, refresh: Refresh | None, period_s: float | None) -> Attribution | None:
    """Estimate time and energy of each kind of instruction; None where the counter was refreshed less than twice.

    The first boundary is the beginning; its kind is ignored. `period_s` is the nominal refresh period of the GPU, used
    where none was observed.
    """
    moves = list(_moves(boundaries, refresh, period_s or UNKNOWN_PERIOD_S))
    if len(moves) < 2:
        return None
    kinds = sorted({boundary.kind for boundary in boundaries[1:]})
    spent_s = _cumulated(boundaries, kinds)
    powers = dict(zip(kinds, _powers(boundaries, moves, spent_s), strict=True))
    total_s = dict(zip(kinds, spent_s[-1].tolist(), strict=True))
    counts = Counter(boundary.kind for boundary in boundaries[1:])
    costs = {
        kind: powers[kind].over(total_s[kind]) / counts[kind]
        for kind in kinds
        if kind not in (WAITING, OUTSIDE, PAUSED)
    }
    waited = total_s.get(WAITING, 0.0) > LEAST_SHARE * sum(total_s.values())
    return Attribution(costs, powers[WAITING].power_w if waited else None, len(moves))


class _Power(NamedTuple):
    power_w: float
    error_w: float

    def over(self, time_s: float) -> Measurement:
        return Measurement(time_s, time_s * self.power_w, None, time_s * self.error_w)


class _Move(NamedTuple):
    time_s: float
    width_s: float
    energy_j: float


def _moves(boundaries: Sequence[Boundary], refresh: Refresh | None, period_s: float) -> Iterator[_Move]:
    """The last refresh of the counter before each boundary at which its value is new.

    Refreshes between iterations are left out, because power is not constant there.
    """
    for before, after in pairwise(boundaries):
        if after.energy_j == before.energy_j or after.kind == OUTSIDE:
            continue
        earliest_s = max(before.time_s, after.time_s - period_s)
        if refresh is None:
            yield _Move((earliest_s + after.time_s) / 2, after.time_s - earliest_s + READ_S, after.energy_j)
        else:
            time_s = max(after.time_s - refresh.age_s(after.time_s), before.time_s)
            width_s = min(2 * refresh.age_error_s(after.time_s), after.time_s - earliest_s + READ_S)
            yield _Move(time_s, width_s, after.energy_j)


def _cumulated(boundaries: Sequence[Boundary], kinds: list[str]) -> Floats:
    """(boundaries, kinds): how long each kind has run until each boundary."""
    own_s = np.zeros((len(boundaries), len(kinds)))
    place = {kind: column for column, kind in enumerate(kinds)}
    for row in range(1, len(boundaries)):
        own_s[row, place[boundaries[row].kind]] = boundaries[row].time_s - boundaries[row - 1].time_s
    return np.cumsum(own_s, axis=0)


def _powers(boundaries: Sequence[Boundary], moves: list[_Move], spent_s: Floats) -> list[_Power]:
    times_s = [boundary.time_s for boundary in boundaries]
    at_s = [move.time_s for move in moves]
    mean_w = max((moves[-1].energy_j - moves[0].energy_j) / max(at_s[-1] - at_s[0], READ_S), LEAST_W)
    own_s = np.column_stack([np.interp(at_s, times_s, column) for column in spent_s.T])
    # As differences from the mean power, so that the prior is zero.
    energy_j = np.array([move.energy_j - moves[0].energy_j for move in moves]) - mean_w * own_s.sum(axis=1)
    weight = 1 / np.maximum([mean_w * move.width_s / sqrt(12) for move in moves], RESOLUTION_J)
    rows = np.column_stack([own_s, np.ones(len(moves))]) * weight[:, None]
    prior = np.eye(own_s.shape[1], own_s.shape[1] + 1) / (PRIOR * mean_w)
    known = np.concatenate([energy_j * weight, np.zeros(own_s.shape[1])])
    inverse = np.linalg.pinv(np.vstack([rows, prior]))
    found = inverse @ known
    # Rows have unit variance, or more where the counter does not see all that is drawn, as on an A100; 2 σ is 95 %.
    scatter = max(float(np.sqrt(np.mean((rows @ found - energy_j * weight) ** 2))), 1.0)
    errors_w = 2 * scatter * np.sqrt((inverse**2).sum(axis=1))
    return [
        _Power(float(max(mean_w + power_w, 0.0)), float(error_w))
        for power_w, error_w in zip(found[:-1], errors_w[:-1], strict=True)
    ]
