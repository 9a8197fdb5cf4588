"""What is believed of GPUs and workloads under power limits before they are measured.

The means and standard deviations are rounded from fits to V100 and A40 (ml-energy/zeus, traces of the NSDI 2023 paper),
and wide enough for parts and networks that are not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from wattune.physics.fit.batch_trend import Drift, epoch_seconds
from wattune.physics.fit.prior import Prior, logit
from wattune.physics.load_table import Floats

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
"""In the order of `limit_model.Board`."""

_DRIFTS = (
    Drift(mean=0.0, offset=0.50, slope=0.04, smooth=0.12, own=0.03),  # gpu, around the trend of the epoch's seconds
    Drift(mean=0.4, offset=1.50, slope=0.30, smooth=0.55, own=0.20),  # host
    Drift(mean=-0.9, offset=0.65, slope=0.40, smooth=0.30, own=0.05),  # core
    Drift(mean=0.1, offset=0.15, slope=0.05, smooth=0.06, own=0.06),  # memory
    Drift(mean=-2.1, offset=0.60, slope=0.35, smooth=1.00, own=0.05),  # stall
    Drift(mean=-2.3, offset=0.30, slope=0.20, smooth=0.20, own=0.10),  # dram
)
"""In the order of `limit_model.Curves`."""

OWN = len(_DRIFTS)
_GPU_SHARE = -0.3
"""Logarithm of the GPU's part of an epoch's seconds, before anything is known of it."""


@dataclass(frozen=True, slots=True, eq=False)
class LimitCurve:
    """One workload at one batch size under several power limits, ascending."""

    workload: str
    batch_size: int
    limit_w: Floats
    time_s: Floats
    """Of an epoch, or of any other fixed amount of work."""
    power_w: Floats
    """Mean over that time."""


@dataclass(frozen=True, slots=True, eq=False)
class CurvePrior:
    """The joint normal prior of all curves' parameters, curve after curve, in the order of `limit_model.Curves`."""

    mean: Floats
    precision: Floats


def curve_prior(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> CurvePrior:
    """The prior in which batch sizes of one workload are alike and workloads know nothing of each other."""
    mean = np.tile([drift.mean for drift in _DRIFTS], len(curves))
    precision = np.zeros((len(mean), len(mean)))
    for workload in dict.fromkeys(curve.workload for curve in curves):
        rows = np.array([row for row, curve in enumerate(curves) if curve.workload == workload])
        batch_sizes = np.array([float(curves[row].batch_size) for row in rows])
        mean[rows * OWN] = _log_gpu(curves, used, rows, batch_sizes)
        for column, drift in enumerate(_DRIFTS):
            whitening = drift.whitening(batch_sizes)
            places = rows * OWN + column
            precision[np.ix_(places, places)] = whitening.T @ whitening
    return CurvePrior(mean, precision)


def _log_gpu(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]], rows: Floats, batch_sizes: Floats) -> Floats:
    """(batch sizes,): expected GPU seconds, from the fastest used point of each batch size that has any."""
    known = [place for place, row in enumerate(rows) if len(used[row])]
    fastest_s = np.array([curves[rows[place]].time_s[list(used[rows[place]])].min() for place in known])
    return np.log(epoch_seconds(batch_sizes[known], fastest_s, batch_sizes)) + _GPU_SHARE
