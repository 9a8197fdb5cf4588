"""Time and energy of a partition whose communication runs beside its computation.

Notation
    C       time of the computation alone; its operations have shares of it
    s       SMs that communicate, b the threads of their blocks over the most
    K(s,b)  time of the communication alone: p-norm of the SMs' work k/(s^α·b^β) and of the link
    H       computation in the overlap window (start to end)
    inside  H·(1 + loss·s): the computation has fewer SMs
    slowed  K + contention·min(H, K): the two share the memory
    T       C + K in sequence, else C − H + q-norm(inside, slowed): the end of the window waits for both
    E       fixed + watts·T: the energy of the work, and the power of waiting for every further second

A small Gaussian process models the residuals. Overlap as in Kareus (ml-energy/kareus).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from wattune.physics.fit.prior import Estimate, Prior, most_likely
from wattune.physics.gpu_parts import Floats
from wattune.physics.timing import smooth_maximum

_LENGTH = log(0.7)
_SPREAD = 0.7
_JITTER = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class ResidualProcess:
    """A Gaussian process conditioned on residuals."""

    features: Floats
    lengths: Floats
    variance: float
    weights: Floats
    """Contribution of each residual to a prediction, per unit of kernel."""

    def predict(self, features: Floats) -> Floats:
        """(places,): the expected residual; 0 far from all data."""
        return np.asarray(self.variance * _similarity(features, self.features, self.lengths) @ self.weights)


def fit_residuals(features: Floats, residuals: Floats, *, noise_sd: float) -> ResidualProcess:
    """Fit the process of largest likelihood; `noise_sd` is the typical difference between repeated measurements."""
    count = features.shape[1]
    log_variance = 2.0 * log(max(float(np.std(residuals)), 1e-9))
    start = np.array([*[_LENGTH] * count, log_variance, 2.0 * log(noise_sd)])
    bounds = [(-2.5, 2.5)] * count + [(-25.0, 4.0), (-20.0, 0.0)]

    def unlikeliness(values: Floats) -> float:
        lower = np.linalg.cholesky(_kernel(features, values))
        whitened = np.linalg.solve(lower, residuals)
        posteriors = (((values[:count] - _LENGTH) / _SPREAD) ** 2).sum() + (values[-1] - start[-1]) ** 2
        return float(0.5 * whitened @ whitened + np.log(np.diag(lower)).sum() + 0.5 * posteriors)

    values = minimize(unlikeliness, start, method="L-BFGS-B", bounds=bounds).x
    weights: Floats = np.asarray(np.linalg.solve(_kernel(features, values), residuals), dtype=np.float64)
    return ResidualProcess(features, np.exp(values[:count]), float(np.exp(values[-2])), weights)


def _kernel(features: Floats, values: Floats) -> Floats:
    count = features.shape[1]
    alike = np.exp(values[-2]) * _similarity(features, features, np.exp(values[:count]))
    return np.asarray(alike + (np.exp(values[-1]) + _JITTER) * np.eye(len(features)))


def _similarity(first: Floats, second: Floats, lengths: Floats) -> Floats:
    distance = (first[:, None, :] - second[None, :, :]) / lengths
    return np.asarray(np.exp(-0.5 * (distance**2).sum(axis=-1)))


Places = NDArray[np.int64]

_LINK_NORM = 3.0
_WAIT_NORM = 12.0
_FORM_SD = 0.01
_TIME_NOISE = 0.003
_ENERGY_NOISE = 0.007
"""Of the mean of three repeats, by their scatter in the published sweep."""

# C and k over the shortest time measured; β, α; link; loss; contention; then the operations' shares.
_COMMON = (
    Prior(-0.05, 0.5),
    Prior(0.6, 0.7),
    Prior(0.8, 0.2),
    Prior(1.0, 0.1),
    Prior(log(0.2), 0.5),
    Prior(log(1 / 108), 0.5),  # of an A100's SMs, each does its share
    Prior(log(0.4), 0.5),
)
_SHARE = Prior(0.0, 0.9)


@dataclass(frozen=True, slots=True, eq=False)
class OverlapSettings:
    """Settings of a partition, a row each."""

    start: Floats
    """First operation of the window; negative where communication follows computation."""
    end: Floats
    comm_sms: Floats
    comm_block: Floats

    def __len__(self) -> int:
        return len(self.start)

    @property
    def operations(self) -> int:
        return int(max(self.end.max(), 0)) + 1

    @property
    def sequential(self) -> Floats:
        """(settings,): whether communication follows computation."""
        return np.asarray(self.start < 0)

    def taken(self, places: Places) -> OverlapSettings:
        return OverlapSettings(self.start[places], self.end[places], self.comm_sms[places], self.comm_block[places])

    def inside(self, operations: int) -> Floats:
        """(settings, operations): 1 for operations inside of the window."""
        place = np.arange(operations)[None]
        return np.asarray(
            ((place >= self.start[:, None]) & (place <= self.end[:, None]) & (self.start[:, None] >= 0)) * 1.0
        )

    def features(self, scale: OverlapSettings) -> Floats:
        """(settings, 4): the settings as numbers of order 1, on the scale of all settings."""
        last = max(scale.operations - 1, 1)
        most_sms, most_block = max(scale.comm_sms.max(), 2.0), scale.comm_block.max()
        sms = 1.5 * np.log(self.comm_sms) / np.log(most_sms)
        block = 1.4 * (self.comm_block / most_block - 0.5)
        window = [np.where(self.sequential, -0.5, edge / last) for edge in (self.start, self.end)]
        return np.stack([sms, block, *window], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class OverlapCurve:
    """A fitted partition."""

    estimate: Estimate
    scale: OverlapSettings
    shortest_s: float
    energy: Floats
    """Joules of the work, and joules per second."""
    time_residual: ResidualProcess
    energy_residual: ResidualProcess

    def predict(self, settings: OverlapSettings) -> tuple[Floats, Floats]:
        """Return seconds and joules at these settings."""
        features = settings.features(self.scale)
        form = _log_time(self.estimate.values, settings, self.scale)
        time_s = np.exp(form + self.time_residual.predict(features)) * self.shortest_s
        plain_j = self.energy[0] + self.energy[1] * time_s
        return time_s, plain_j * np.exp(self.energy_residual.predict(features))


def fit_overlap(settings: OverlapSettings, time_s: Floats, energy_j: Floats, *, scale: OverlapSettings) -> OverlapCurve:
    """Fit a partition; `scale` holds all possible settings, so that features span the same range."""
    shortest_s = float(time_s.min())
    measured = np.log(time_s / shortest_s)

    def errors(values: Floats) -> Floats:
        return (_log_time(values, settings, scale) - measured) / _FORM_SD

    estimate = most_likely(errors, (*_COMMON, *[_SHARE] * scale.operations))
    features = settings.features(scale)
    time_residual = measured - _log_time(estimate.values, settings, scale)
    # Relative errors count alike, so every row is divided by its own energy.
    basis = np.stack([np.ones_like(time_s), time_s], axis=1) / energy_j[:, None]
    energy, _ = nnls(basis, np.ones_like(energy_j))
    energy_residual = np.log(energy_j / (energy[0] + energy[1] * time_s))
    return OverlapCurve(
        estimate,
        scale,
        shortest_s,
        energy,
        fit_residuals(features, time_residual, noise_sd=_TIME_NOISE),
        fit_residuals(features, energy_residual, noise_sd=_ENERGY_NOISE),
    )


def _log_time(values: Floats, settings: OverlapSettings, scale: OverlapSettings) -> Floats:
    """(settings,): logarithm of T over the shortest time measured."""
    compute, work = np.exp(values[0]), np.exp(values[1])
    block = settings.comm_block / scale.comm_block.max()
    alone = smooth_maximum(
        work / (settings.comm_sms ** values[3] * block ** values[2]),
        np.full(len(settings), np.exp(values[4])),
        _LINK_NORM,
    )
    shares = np.exp(values[len(_COMMON) :])
    hidden = compute * settings.inside(scale.operations) @ (shares / shares.sum())
    inside = hidden * (1.0 + np.exp(values[5]) * settings.comm_sms)
    slowed = alone + np.exp(values[6]) * np.minimum(hidden, alone)
    beside = compute - hidden + smooth_maximum(inside, slowed, _WAIT_NORM)
    return np.asarray(np.log(np.where(settings.sequential, compute + alone, beside)))
