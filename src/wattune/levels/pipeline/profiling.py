"""Time and power of instructions from what a running pipeline measures: attribution of energy, and fitted curves.

Attribution. The energy counter is refreshed every τ (100 ms on many GPUs) and an instruction may last less. At the
instant e of a refresh the counter is exact: E(e) = c + Σ_k P_k·T_k(e), with T_k the time that kind k has run until
then; waiting is a kind too. Every refresh between two boundaries of instructions gives one such equation; e is known to
a fraction w of τ, so the error of the equation is P̄·w/√12. The powers P_k are the least-squares solution over all
refreshes, with a normal prior of mean P̄ (the mean power) and standard deviation P̄/2 for kinds that the refreshes
cannot separate.

Curves over the core clock.

Notation
    x       core clock over the highest
    T(x)    a + b·‖(1/x, μ)‖_p: a constant part, and arithmetic overlapped with memory traffic that takes μ times as
            long as the arithmetic at the highest clock
    P(x)    P0 + c·s(x): constant power and switching power, s = x·v(x)² with a voltage v that is constant up to a
            knee and then rises (`wattune.physics.fit.clock_curves`)

Given μ, T is linear in a and b; given knee and rise, P is linear in P0 and c. So both are non-negative least squares on
a small grid. The voltage belongs to the GPU: knee and rise are the same for all its instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from wattune.core.errors import PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.refresh import READ_S, RESOLUTION_J, UNKNOWN_PERIOD_S, Refresh
from wattune.core.setting import Setting
from wattune.core.voltage import switching
from wattune.levels.pipeline.solver.relaxation import Floats
from wattune.physics.timing import smooth_maximum
from wattune.plans.plan import StageChoice

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
    costs = {}
    for kind in kinds:
        if kind not in (WAITING, OUTSIDE, PAUSED):
            time_s, (power_w, error_w) = total_s[kind], powers[kind]
            costs[kind] = Measurement(time_s, time_s * power_w, None, time_s * error_w) / counts[kind]
    waited = total_s.get(WAITING, 0.0) > LEAST_SHARE * sum(total_s.values())
    return Attribution(costs, powers[WAITING][0] if waited else None, len(moves))


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


def _powers(boundaries: Sequence[Boundary], moves: list[_Move], spent_s: Floats) -> list[tuple[float, float]]:
    """The power of each kind of work, and its error."""
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
        (float(max(mean_w + power_w, 0.0)), float(error_w))
        for power_w, error_w in zip(found[:-1], errors_w[:-1], strict=True)
    ]


SMOOTHNESS = 4.0
"""p: the best norm over 33 workloads of a V100 (docs/explanation/physics.md)."""

MEMORY = tuple(np.round(np.arange(0.0, 2.01, 0.1), 2))
KNEES = tuple(np.round(np.arange(0.4, 0.91, 0.02), 2))
RISES = tuple(np.round(np.arange(0.05, 0.81, 0.05), 2))


@dataclass(frozen=True, slots=True)
class Curve:
    """One kind of instruction on one GPU, at any clock."""

    highest_mhz: int
    fixed_s: float
    work_s: float
    memory: float
    """μ."""
    static_w: float
    switching_w: float
    knee: float
    rise: float

    def cost(self, sm_mhz: int) -> Measurement:
        """Predict time and energy of one instruction at a clock."""
        clock = np.array([sm_mhz / self.highest_mhz])
        time_s = float(self.fixed_s + self.work_s * _work(clock, self.memory)[0])
        power_w = float(self.static_w + self.switching_w * switching(clock, knee=self.knee, rise=self.rise)[0])
        return Measurement(time_s, power_w * time_s)

    def options(self, clocks_mhz: Iterable[int]) -> tuple[Trial[StageChoice], ...]:
        """The instruction at each of these clocks, as options for the planner."""
        return tuple(Trial(StageChoice(Setting(mhz)), self.cost(mhz)) for mhz in clocks_mhz)


def fit_curves(measured: Mapping[str, Sequence[Trial[Setting]]], *, highest_mhz: int) -> dict[str, Curve]:
    """Fit a curve for each kind of instruction of one GPU."""
    for kind, trials in measured.items():
        if len({trial.choice.sm_mhz for trial in trials}) < 2 or any(trial.choice.sm_mhz is None for trial in trials):
            raise PlanError(
                f"{kind} was not measured at two clocks or more", hint="profile every instruction at several clocks"
            )
    clocks = {
        kind: np.array([(trial.choice.sm_mhz or 0) / highest_mhz for trial in trials])
        for kind, trials in measured.items()
    }
    powers = {kind: np.array([trial.cost.power_w for trial in trials]) for kind, trials in measured.items()}
    knee, rise = min(
        ((knee, rise) for knee in KNEES for rise in RISES),
        key=lambda voltage: sum(
            _linear(switching(clocks[kind], knee=voltage[0], rise=voltage[1]), powers[kind])[1] for kind in measured
        ),
    )
    curves = {}
    for kind, trials in measured.items():
        memory, fixed_s, work_s = _time(clocks[kind], np.array([trial.cost.time_s for trial in trials]))
        (static_w, switching_w), _ = _linear(switching(clocks[kind], knee=knee, rise=rise), powers[kind])
        curves[kind] = Curve(highest_mhz, fixed_s, work_s, memory, static_w, switching_w, float(knee), float(rise))
    return curves


def _time(clock: Floats, time_s: Floats) -> tuple[float, float, float]:
    """μ, a and b."""
    memory = min(MEMORY, key=lambda memory: _linear(_work(clock, memory), time_s)[1])
    (fixed_s, work_s), _ = _linear(_work(clock, memory), time_s)
    return float(memory), fixed_s, work_s


def _work(clock: Floats, memory: float) -> Floats:
    """‖(1/x, μ)‖_p."""
    return smooth_maximum(1 / clock, np.full_like(clock, memory), SMOOTHNESS)


def _linear(shape: Floats, values: Floats) -> tuple[tuple[float, float], float]:
    """Fit offset and factor, neither negative, of a shape to the values; with the squared relative error."""
    rows = np.column_stack([np.ones_like(shape), shape]) / values[:, None]
    (offset, factor), distance = nnls(rows, np.ones_like(values))
    return (float(offset), float(factor)), float(distance**2)
