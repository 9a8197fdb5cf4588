"""The constants of two streams, from a partition measured at many settings of its communication.

Notation
    o_k     time of operation k alone
    s, b    SMs that communicate, and the threads of their blocks over the most
    K       time of the communication alone: p-norm of the SMs' work k/(s·b^β) and of the link, as in `physics.overlap`
    g       further wait where communication follows computation
    λ       share of the communicating SMs that computation loses; operations beside communication take 1 + λ·s/S
    r       progress of communication beside computation
    E       joules of the computation, per second of all time, and per second and per SM of communication

Unlike `fit.overlap_curve`, nothing models what is left over: the errors are those of the mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from scipy.optimize import nnls

from wattune.physics.fit.overlap_curve import OverlapSettings
from wattune.physics.fit.prior import Estimate, Prior, logistic, most_likely
from wattune.physics.gpu_parts import Floats
from wattune.physics.overlap import LINK_NORM
from wattune.physics.streams import StreamCost, StreamPhases, two_streams
from wattune.physics.timing import smooth_maximum

SMS = 108
"""Of an A100, whose sweep is public."""

_ERROR_SD = 0.01

# Logarithms of k, of the link and of g over the shortest time measured; β; logarithm of λ; logit of r; operations.
_COMMON = (
    Prior(log(1.8), 0.7),
    Prior(log(0.12), 0.7),
    Prior(log(0.03), 1.0),
    Prior(0.85, 0.2),
    Prior(log(1.0), 0.5),
    Prior(0.4, 1.0),
)
_OPERATION_SD = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class FittedStreams:
    """Two streams with constants fitted to one partition."""

    estimate: Estimate
    scale: OverlapSettings
    """All settings: the most threads of a block, and the number of operations."""
    shortest_s: float
    energy: Floats
    """Joules of the computation, watts of all time, watts of communication and of each of its SMs."""

    @property
    def operations_s(self) -> Floats:
        return np.exp(self.estimate.values[len(_COMMON) :]) * self.shortest_s

    @property
    def gap_s(self) -> float:
        return float(np.exp(self.estimate.values[2]) * self.shortest_s)

    @property
    def sms_lost(self) -> float:
        return float(np.exp(self.estimate.values[4]))

    @property
    def progress(self) -> float:
        return float(logistic(self.estimate.values[5]))

    def predict(self, settings: OverlapSettings) -> tuple[Floats, Floats]:
        """Return seconds and joules at these settings."""
        cost = _run(self.estimate.values, settings, self.scale)
        return cost.time_s * self.shortest_s, _basis(cost, settings, self.shortest_s) @ self.energy


def fit_streams(
    settings: OverlapSettings, time_s: Floats, energy_j: Floats, *, scale: OverlapSettings
) -> FittedStreams:
    """Fit a partition; `scale` holds all possible settings."""
    shortest_s = float(time_s.min())
    measured = np.log(time_s / shortest_s)

    def errors(values: Floats) -> Floats:
        return (np.log(_run(values, settings, scale).time_s) - measured) / _ERROR_SD

    operations = [Prior(log(1.0 / scale.operations), _OPERATION_SD)] * scale.operations
    estimate = most_likely(errors, (*_COMMON, *operations))
    basis = _basis(_run(estimate.values, settings, scale), settings, shortest_s)
    # Relative errors count alike, so every row is divided by its own energy.
    energy, _ = nnls(basis / energy_j[:, None], np.ones_like(energy_j))
    return FittedStreams(estimate, scale, shortest_s, energy)


def _run(values: Floats, settings: OverlapSettings, scale: OverlapSettings) -> StreamCost:
    """Run both streams at every setting, in units of the shortest time."""
    work, link, gap = np.exp(values[:3])
    block = settings.comm_block / scale.comm_block.max()
    sms_s = work / (settings.comm_sms * block ** values[3])
    comm_s = smooth_maximum(sms_s, np.full(len(settings), link), LINK_NORM) + gap * settings.sequential
    operations = np.exp(values[len(_COMMON) :])
    alone_s = np.repeat(operations[:, None], len(settings), axis=1)
    beside_s = alone_s * (1.0 + np.exp(values[4]) * settings.comm_sms / SMS)
    ones = np.ones_like(alone_s)
    begun_s = np.concatenate([[0.0], np.cumsum(operations)])
    before_s = np.where(settings.sequential, np.inf, begun_s[np.maximum(settings.start, 0).astype(int)])
    last = float(scale.operations - 1)
    phases = StreamPhases(alone_s, ones, beside_s, ones, ones * logistic(values[5]))
    return two_streams(phases, comm_s, before_s, np.where(settings.sequential, last, settings.end))


def _basis(cost: StreamCost, settings: OverlapSettings, shortest_s: float) -> Floats:
    """(settings, 4): what the joules are proportional to."""
    comm_s = cost.comm_s * shortest_s
    return np.stack([np.ones(len(settings)), cost.time_s * shortest_s, comm_s, comm_s * settings.comm_sms], axis=1)
