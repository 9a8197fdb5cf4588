"""Priors of GPUs and workloads under power limits.

The means and standard deviations were searched for (some 260 tries, then rounded) by the error at limits left out of
the V100 and A40 tables (ml-energy/zeus, traces of the NSDI 2023 paper). Errors on these two tables are therefore
optimistic; tables of other GPUs are the stricter test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from wattune.physics.fit.prior import Prior, logit
from wattune.physics.gpu_parts import Floats

_OCTAVES = 2.0
"""ℓ: batch sizes that differ by a factor of four are still similar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDrift:
    """How a parameter varies over the batch sizes of a workload, in standard deviations."""

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

    def whitening(self, batch_sizes: Floats) -> Floats:
        """(sizes, sizes): the matrix that turns deviations into independent standard normal ones."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.covariance(batch_sizes))))


def epoch_seconds(batch_sizes: Floats, time_s: Floats, wanted: Floats) -> Floats:
    """Fit seconds per epoch by a + c/b, of least relative error, and evaluate it: (wanted sizes,)."""
    basis = np.stack([np.ones_like(batch_sizes), 1.0 / batch_sizes], axis=1)
    shares, _ = nnls(basis / time_s[:, None], np.ones_like(time_s))
    return np.asarray(np.stack([np.ones_like(wanted), 1.0 / wanted], axis=1) @ shares)


Places = NDArray[np.int64]

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
"""In the order of `limit_fit.Board`."""

_DRIFTS = (
    BatchDrift(
        mean=0.0, offset=0.50, slope=0.04, smooth=0.12, own=0.03
    ),  # gpu, around the trend of the epoch's seconds
    BatchDrift(mean=0.4, offset=1.50, slope=0.30, smooth=0.55, own=0.20),  # host
    BatchDrift(mean=-0.9, offset=0.65, slope=0.40, smooth=0.30, own=0.05),  # core
    BatchDrift(mean=0.1, offset=0.15, slope=0.05, smooth=0.06, own=0.06),  # memory
    BatchDrift(mean=-2.1, offset=0.60, slope=0.35, smooth=1.00, own=0.05),  # stall
    BatchDrift(mean=-2.3, offset=0.30, slope=0.20, smooth=0.20, own=0.10),  # dram
)
"""In the order of `limit_fit.Curves`."""

OWN = len(_DRIFTS)
_GPU_SHARE = -0.3
"""Prior logarithm of the GPU's share of an epoch's seconds."""


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
class Family:
    """The batch sizes of one workload: their rows, and their joint normal prior."""

    rows: Places
    """Of the curves."""
    mean: Floats
    """(curves of the family, 6), in the columns of `limit_fit.Curves`."""
    precision: Floats
    """Of the same, curve after curve."""


def families(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]]) -> tuple[Family, ...]:
    """Make the prior: batch sizes of one workload are correlated, workloads are independent."""
    names = dict.fromkeys(curve.workload for curve in curves)
    rows = [np.array([row for row, curve in enumerate(curves) if curve.workload == name]) for name in names]
    return tuple(_family(curves, used, some) for some in rows)


def _family(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]], rows: Places) -> Family:
    batch_sizes = np.array([float(curves[row].batch_size) for row in rows])
    mean = np.tile([drift.mean for drift in _DRIFTS], (len(rows), 1))
    mean[:, 0] = _log_gpu(curves, used, rows, batch_sizes)
    precision = np.zeros((mean.size, mean.size))
    for column, drift in enumerate(_DRIFTS):
        whitening = drift.whitening(batch_sizes)
        precision[column::OWN, column::OWN] = whitening.T @ whitening
    return Family(rows, mean, precision)


def _log_gpu(curves: Sequence[LimitCurve], used: Sequence[Sequence[int]], rows: Places, batch_sizes: Floats) -> Floats:
    """(batch sizes,): expected GPU seconds, from the fastest used point of each batch size that has any."""
    known = [place for place, row in enumerate(rows) if len(used[row])]
    fastest_s = np.array([curves[rows[place]].time_s[list(used[rows[place]])].min() for place in known])
    return np.log(epoch_seconds(batch_sizes[known], fastest_s, batch_sizes)) + _GPU_SHARE
