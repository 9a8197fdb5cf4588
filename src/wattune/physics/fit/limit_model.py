"""A model with few parameters of time and mean power of a training epoch under a power limit.

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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattune.physics.fit.clock_curves import soft_minimum, switching
from wattune.physics.fit.prior import logistic
from wattune.physics.gpu_parts import Floats
from wattune.physics.timing import smooth_maximum

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
    """How sharp the corner is where a limit begins to act."""
    log_roofline: float
    """Exponent of the norm that joins compute and memory."""


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
    clock = _row_by_row(drawn, busy, np.broadcast_to(_CLOCKS, busy.shape))
    gpu_s = np.exp(own.log_gpu) * _work(clock, np.exp(own.log_memory), roofline)
    host_s = np.broadcast_to(np.exp(own.log_gpu + own.log_host), gpu_s.shape)
    time_s = smooth_maximum(gpu_s, host_s, float(np.exp(board.log_beside))) + np.exp(own.log_gpu + own.log_stall)
    share = gpu_s / time_s
    return Epochs(np.log(time_s), np.log(share * drawn + (1.0 - share) * idle), clock)


def _work(clock: Floats, memory: Floats, roofline: float) -> Floats:
    """g."""
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


def _row_by_row(wanted: Floats, known: Floats, values: Floats) -> Floats:
    """Interpolation with a table of its own for each row."""
    return np.array([np.interp(*row) for row in zip(wanted, known, values, strict=True)])
