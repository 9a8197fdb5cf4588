"""Joint fit of a GPU and of the workloads that were measured on it under power limits.

The firmware holds the highest clock at which the busy GPU draws no more than the limit. So everything is a function of
a clock that is not measured but follows from the limit.

Notation (powers over the highest limit of the GPU, clocks over its highest clock)
    x       clock in effect
    g(x)    time of the GPU's work over that at x = 1: p-norm of compute (1/x) and memory (m), over the same at x = 1
    B(x)    busy power: idle + core·s(x) + dram/g(x), with s of `voltage`
    L       limit; B(x) = (1 + excess)·L, at least B(floor clock), at most B(1), with rounded corners, because the
            phases of an epoch meet the limit at different clocks
    T       epoch: q-norm of the GPU's time and the host's that runs beside it, plus a stall that nothing hides
    W       mean power: B while the GPU works, idle for the rest of T

Six parameters belong to a curve (one workload at one batch size), eight to the GPU. All are logarithms, except
the knee (a logit) and the excess.

Parameters of the GPU are fitted to all curves, those of a curve to its own points and to the other batch sizes of its
workload, its family. The solution is the most likely one under the priors, found by the method of Levenberg and
Marquardt. Finite differences move one parameter of every curve at a time, fourteen evaluations for any number of
curves.

Means and standard deviations of the priors were searched for (some 260 tries, then rounded) by the error at limits left
out of the V100 and A40 tables (ml-energy/zeus, traces of the NSDI 2023 paper). Errors on these two tables are therefore
optimistic; tables of other GPUs are the stricter test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csc_array
from scipy.sparse.linalg import spsolve

from wattune.core.voltage import switching
from wattune.physics.fit.prior import Prior, logistic, logit
from wattune.physics.gpu_parts import Floats
from wattune.physics.timing import smooth_maximum
from wattune_bench.datasets.zeus_tables import LimitCurve
from wattune_bench.physics.clock_curves import soft_minimum

_CLOCKS = np.linspace(0.04, 1.0, 300)
_BEND = 1.4
# How sharply the lowest clock ends what a limit can do; the top is rounder because phases differ.
_FLOOR_SHARPNESS = 25.0


class Board(NamedTuple):
    """Parameters that all curves of one GPU share, as fitted."""

    log_idle: float
    logit_knee: float
    log_rise: float
    log_floor: float
    """Lowest clock to which a limit lowers the core."""
    excess: float
    """Power of the busy GPU beyond the limit, as a share of it."""
    log_beside: float
    """Exponent of the norm that joins GPU and host."""
    log_sharpness: float
    """Sharpness of the corner where a limit begins to act."""
    log_roofline: float
    """Exponent of the norm that joins compute and memory."""


BOARD = (
    Prior(log(0.185), 0.30),  # idle
    Prior(logit(0.70), 0.12),  # knee
    Prior(log(0.25), 0.30),  # rise
    Prior(log(0.16), 0.15),  # floor
    Prior(-0.01, 0.003),  # excess: the firmware stays a little below the limit
    Prior(log(6.0), 0.20),  # beside
    Prior(log(20.0), 0.20),  # sharpness
    Prior(log(4.3), 0.15),  # roofline
)
_BOARD_MEAN = np.array([prior.mean for prior in BOARD])
_BOARD_SD = np.array([prior.sd for prior in BOARD])


class Curves(NamedTuple):
    """Parameters of each curve, as fitted: the columns of the parameter table, each (curves, 1)."""

    log_gpu: Floats
    """GPU seconds per epoch at the highest clock."""
    log_host: Floats
    """Host seconds over GPU seconds."""
    log_core: Floats
    """Core power at the highest clock."""
    log_memory: Floats
    """Memory time over compute time at the highest clock."""
    log_stall: Floats
    """Stall over GPU seconds."""
    log_dram: Floats
    """Memory power at the highest clock."""


_OCTAVES = 2.0
"""Batch sizes that differ by a factor of four are still similar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDrift:
    """Prior of a parameter over the batch sizes of a workload: its mean, and standard deviations."""

    mean: float
    offset: float
    slope: float
    """Per octave."""
    smooth: float
    own: float

    def covariance(self, batch_sizes: Floats) -> Floats:
        """(sizes, sizes)"""
        octaves = np.log2(batch_sizes)
        centred = octaves - octaves.mean()
        distance = octaves[:, None] - octaves[None]
        near = np.exp(-0.5 * (distance / _OCTAVES) ** 2)
        common = self.offset**2 + self.slope**2 * np.outer(centred, centred)
        return np.asarray(common + self.smooth**2 * near + self.own**2 * np.eye(len(octaves)))


# In the order of `Curves`; gpu is relative to the trend of the epoch's seconds.
_DRIFTS = (
    BatchDrift(mean=0.0, offset=0.50, slope=0.04, smooth=0.12, own=0.03),  # gpu
    BatchDrift(mean=0.4, offset=1.50, slope=0.30, smooth=0.55, own=0.20),  # host
    BatchDrift(mean=-0.9, offset=0.65, slope=0.40, smooth=0.30, own=0.05),  # core
    BatchDrift(mean=0.1, offset=0.15, slope=0.05, smooth=0.06, own=0.06),  # memory
    BatchDrift(mean=-2.1, offset=0.60, slope=0.35, smooth=1.00, own=0.05),  # stall
    BatchDrift(mean=-2.3, offset=0.30, slope=0.20, smooth=0.20, own=0.10),  # dram
)
OWN = len(_DRIFTS)
_GPU_SHARE = -0.3
"""Prior logarithm of the GPU's share of an epoch's seconds."""


def _prior(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
    """Return mean and inverse covariance of all parameters: those of the GPU, then those of curve after curve.

    Batch sizes of one workload, its family, are correlated; workloads are independent.
    """
    mean = np.concatenate([_BOARD_MEAN, np.tile([drift.mean for drift in _DRIFTS], len(curves))])
    precision = np.zeros((len(mean), len(mean)))
    precision[: len(BOARD), : len(BOARD)] = np.diag(_BOARD_SD**-2)
    for workload in dict.fromkeys(curve.workload for curve in curves):
        rows = np.array([row for row, curve in enumerate(curves) if curve.workload == workload])
        batch_sizes = np.array([float(curves[row].batch_size) for row in rows])
        # GPU seconds are expected from the fastest used point of each batch size that has any.
        known = [place for place, row in enumerate(rows) if len(used[row])]
        fastest_s = np.array([curves[rows[place]].time_s[list(used[rows[place]])].min() for place in known])
        places = len(BOARD) + OWN * rows
        mean[places] = np.log(epoch_seconds(batch_sizes[known], fastest_s, batch_sizes)) + _GPU_SHARE
        for column, drift in enumerate(_DRIFTS):
            whitening = np.linalg.inv(np.linalg.cholesky(drift.covariance(batch_sizes)))
            precision[np.ix_(places + column, places + column)] = whitening.T @ whitening
    return mean, precision


def epoch_seconds(batch_sizes: Floats, time_s: Floats, wanted: Floats) -> Floats:
    """Fit seconds per epoch by a + c/b, of least relative error, and evaluate it: (wanted sizes,)."""
    basis = np.stack([np.ones_like(batch_sizes), 1.0 / batch_sizes], axis=1)
    shares, _ = nnls(basis / time_s[:, None], np.ones_like(time_s))
    return np.asarray(np.stack([np.ones_like(wanted), 1.0 / wanted], axis=1) @ shares)


@dataclass(frozen=True, slots=True, eq=False)
class Epochs:
    """Predictions, a row per curve and a column per limit."""

    log_time: Floats
    log_power: Floats
    clock: Floats
    """x, over the highest clock."""


def predict(board: Board, curves: Floats, limit: Floats) -> Epochs:
    """Predict the curves, whose rows have the columns of `Curves`, at limits (curves, limits) over the highest one."""
    own = Curves(*(curves[:, [column]] for column in range(curves.shape[1])))
    idle, roofline = np.exp(board.log_idle), np.exp(board.log_roofline)
    busy = _busy(board, own, _work(_CLOCKS[None], np.exp(own.log_memory), roofline))
    drawn = _held(board, busy, limit)
    clock = np.array([np.interp(wanted, known, _CLOCKS) for wanted, known in zip(drawn, busy, strict=True)])
    gpu_s = np.exp(own.log_gpu) * _work(clock, np.exp(own.log_memory), roofline)
    host_s = np.broadcast_to(np.exp(own.log_gpu + own.log_host), gpu_s.shape)
    time_s = smooth_maximum(gpu_s, host_s, float(np.exp(board.log_beside))) + np.exp(own.log_gpu + own.log_stall)
    share = gpu_s / time_s
    return Epochs(np.log(time_s), np.log(share * drawn + (1.0 - share) * idle), clock)


def _work(clock: Floats, memory: Floats, roofline: float) -> Floats:
    """Compute g."""
    compute, memory = np.broadcast_arrays(1.0 / clock, memory)
    return np.asarray(smooth_maximum(compute, memory, roofline) / (1.0 + memory**roofline) ** (1.0 / roofline))


def _busy(board: Board, own: Curves, work: Floats) -> Floats:
    """(curves, clocks): B on the grid of clocks."""
    knee, rise = float(logistic(board.logit_knee)), float(np.exp(board.log_rise))
    core = np.exp(own.log_core) * switching(_CLOCKS, knee=knee, rise=rise, bend=_BEND)[None]
    return np.asarray(np.exp(board.log_idle) + core + np.exp(own.log_dram) / work)


def _held(board: Board, busy: Floats, limit: Floats) -> Floats:
    """(curves, limits): busy power under the limit."""
    lowest = np.array([[np.interp(np.exp(board.log_floor), _CLOCKS, row)] for row in busy])
    highest = busy[:, [-1]]
    limited = soft_minimum((1.0 + board.excess) * limit, highest, float(np.exp(board.log_sharpness)))
    raised = smooth_maximum(limited, np.broadcast_to(lowest, limited.shape), _FLOOR_SHARPNESS)
    return np.asarray(np.minimum(raised, highest))


# Repeated epochs differ by 1 to 5 % in time and by about 2 % in mean power; time matters most, so it weighs more.
_TIME_SD = 0.0125
_POWER_SD = 0.02

_STEP = 1e-4
_PASSES = 60
_ENOUGH = 1e-4
"""A pass that lowers the cost by less than this share is the last."""
_TRIES = 8
_START_DISTANCE = 0.2
"""The distance of the second start from the first, in the logarithm of a curve's parameter."""


@dataclass(frozen=True, slots=True, eq=False)
class LimitFit:
    """Fitted parameters."""

    board: Board
    own: Floats
    """(curves, 6): a row for each curve, in the columns of `Curves`."""
    highest_w: float

    def predict(self, place: int, limit_w: Floats) -> tuple[Floats, Floats]:
        """Return seconds per epoch and mean watts of one curve under these limits."""
        epochs = predict(self.board, self.own[[place]], limit_w[None] / self.highest_w)
        return np.exp(epochs.log_time[0]), np.exp(epochs.log_power[0]) * self.highest_w


def fit_limits(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> LimitFit:
    """Fit the `used` points of each curve; a curve without any is predicted from its family."""
    problem = _LimitProblem.of(curves, used)
    solved = min((_solve(problem, start) for start in problem.starts()), key=problem.cost)
    return LimitFit(*_split(solved), problem.highest_w)


def _split(point: Floats) -> tuple[Board, Floats]:
    """Return the parameters of the GPU and of the curves (curves, 6)."""
    return Board(*point[: len(BOARD)]), point[len(BOARD) :].reshape(-1, OWN)


@dataclass(frozen=True, slots=True, eq=False)
class _LimitProblem:
    """Measurements, a row per curve and a column per limit, and the prior; a point holds all parameters."""

    limit: Floats
    log_time: Floats
    log_power: Floats
    weight: Floats
    """(curves, limits): 1 where a point is used."""
    highest_w: float
    mean: Floats
    precision: Floats

    @classmethod
    def of(cls, curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> _LimitProblem:
        highest_w = float(max(curve.limit_w.max() for curve in curves))
        width = max(len(curve.limit_w) for curve in curves)
        weight = np.zeros((len(curves), width))
        for row, places in enumerate(used):
            weight[row, list(places)] = 1.0
        # Rows are padded with their last value, at weight 0.
        limit, time, power = (
            np.array([np.pad(values, (0, width - len(values)), mode="edge") for values in column])
            for column in zip(*((curve.limit_w, curve.time_s, curve.power_w) for curve in curves), strict=True)
        )
        return cls(limit / highest_w, np.log(time), np.log(power / highest_w), weight, highest_w, *_prior(curves, used))

    def starts(self) -> tuple[Floats, Floats]:
        """Return two starting points: a fit can stay where a limit no longer moves the clock, seldom from both.

        The first has the means of the priors, with time and core power of each curve near its fastest used point.
        """
        first = self.mean.copy()
        _, own = _split(first)
        for row, weight in enumerate(self.weight > 0):
            if weight.any():
                own[row, 0] = self.log_time[row][weight].min() - 0.3
                own[row, 2] = np.log(np.clip(np.exp(self.log_power[row][weight].max()) - 0.2, 0.1, 1.5))
        distance = np.concatenate([_BOARD_SD, np.full(own.size, _START_DISTANCE)])
        return first, first + distance * np.random.default_rng(0).standard_normal(len(first))

    def errors(self, point: Floats) -> Floats:
        """(curves, 2·limits): prediction minus measurement, in standard deviations."""
        epochs = predict(*_split(point), self.limit)
        time = self.weight * (epochs.log_time - self.log_time) / _TIME_SD
        power = self.weight * (epochs.log_power - self.log_power) / _POWER_SD
        return np.hstack([time, power])

    def cost(self, point: Floats) -> float:
        """Return half the sum of squares; infinite for invalid parameters."""
        deviation = point - self.mean
        with np.errstate(all="ignore"):
            total = float((self.errors(point) ** 2).sum() + deviation @ self.precision @ deviation)
        return 0.5 * total if np.isfinite(total) else np.inf

    def normal(self, point: Floats) -> tuple[Floats, Floats]:
        """Return the normal equations at a point: curvature (JᵀJ), which is sparse, and slope (Jᵀr)."""
        errors, many = self.errors(point), len(BOARD)
        board = [self._change(point, errors, slice(place, place + 1)) for place in range(many)]
        own = [self._change(point, errors, slice(many + place, None, OWN)) for place in range(OWN)]
        shared, each = np.stack(board, axis=-1), np.stack(own, axis=-1)
        curvature, slope = self.precision.copy(), self.precision @ (point - self.mean)
        curvature[:many, :many] += np.einsum("ima,imb->ab", shared, shared)
        curvature[many:, :many] = np.einsum("ima,imb->iab", each, shared).reshape(-1, many)
        curvature[:many, many:] = curvature[many:, :many].T
        # Curves of a family meet in the prior alone.
        for row, part in enumerate(each):
            block = slice(many + OWN * row, many + OWN * (row + 1))
            curvature[block, block] += part.T @ part
        slope[:many] += np.einsum("ima,im->a", shared, errors)
        slope[many:] += np.einsum("ima,im->ia", each, errors).ravel()
        return curvature, slope

    def _change(self, point: Floats, errors: Floats, places: slice) -> Floats:
        """(curves, 2·limits): how the errors change with one parameter of the GPU, or with one of every curve."""
        other = point.copy()
        other[places] += _STEP
        return np.asarray((self.errors(other) - errors) / _STEP)


def _solve(problem: _LimitProblem, point: Floats) -> Floats:
    """Find the parameters of least cost near `point`."""
    cost, damping = problem.cost(point), 1e-2
    for _ in range(_PASSES):
        curvature, slope = problem.normal(point)
        for _ in range(_TRIES):
            step = spsolve(csc_array(curvature + damping * np.diag(np.diag(curvature))), -slope)
            # A parameter moves by a factor of e at most in one pass.
            other = point + np.clip(step, -1.0, 1.0)
            lower = problem.cost(other)
            if lower < cost:
                break
            damping *= 5.0
        else:
            return point
        point, saved, cost = other, cost - lower, lower
        damping = max(damping / 5.0, 1e-7)
        if saved < _ENOUGH * max(cost, 1.0):
            return point
    return point
