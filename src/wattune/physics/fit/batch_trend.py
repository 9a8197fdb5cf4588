"""What batch sizes of one workload have in common.

Notation
    b       batch size, z = log2 b
    θ(b)    a parameter of the curve at that batch size

Per epoch, the work of n samples and of n/b iterations is done, so seconds follow a + c/b (a, c ≥ 0). Every other
parameter drifts slowly: θ is normal with the covariance

    offset² + slope²·z·z' + smooth²·exp(−(z − z')²/2ℓ²) + own²·[z = z']

A batch size that was not measured gets its parameters from its neighbours through the same covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from wattune.physics.load_table import Floats

_OCTAVES = 2.0
"""ℓ: batch sizes a factor of four apart are still alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
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
        apart = octaves[:, None] - octaves[None]
        near = np.exp(-0.5 * (apart / _OCTAVES) ** 2)
        common = self.offset**2 + self.slope**2 * np.outer(centred, centred)
        return np.asarray(common + self.smooth**2 * near + self.own**2 * np.eye(len(octaves)))

    def whitening(self, batch_sizes: Floats) -> Floats:
        """(sizes, sizes): the matrix that turns deviations into independent standard normal ones."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.covariance(batch_sizes))))


def epoch_seconds(batch_sizes: Floats, time_s: Floats, asked: Floats) -> Floats:
    """(asked sizes,): seconds per epoch by a + c/b, of least relative error at the sizes that were measured."""
    basis = np.stack([np.ones_like(batch_sizes), 1.0 / batch_sizes], axis=1)
    shares, _ = nnls(basis / time_s[:, None], np.ones_like(time_s))
    return np.asarray(np.stack([np.ones_like(asked), 1.0 / asked], axis=1) @ shares)
