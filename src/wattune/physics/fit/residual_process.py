"""What a physical form leaves over, smoothed: a small Gaussian process with a squared-exponential kernel.

Notation
    k(a, b) = variance·exp(−½ Σ ((a − b)/ℓ)²), with a length ℓ for each feature, plus noise where a is b
Lengths, variance and noise are those of the largest marginal likelihood, with wide priors (Rasmussen and Williams 2006,
chapter 5). Features are scaled so that lengths near 0.7 are natural.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from scipy.optimize import minimize

from wattune.physics.load_table import Floats

_LENGTH = log(0.7)
_SPREAD = 0.7
_JITTER = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class ResidualProcess:
    """A process that has seen some residuals."""

    features: Floats
    lengths: Floats
    variance: float
    weights: Floats
    """What each seen residual adds to a prediction, per unit of kernel."""

    def predict(self, features: Floats) -> Floats:
        """(places,): the expected residual; 0 far from all that was seen."""
        return np.asarray(self.variance * _alike(features, self.features, self.lengths) @ self.weights)


def fit_residuals(features: Floats, residuals: Floats, *, noise_sd: float) -> ResidualProcess:
    """The process of largest likelihood; `noise_sd` is about how far a repeated measurement lies from the first."""
    count = features.shape[1]
    guess = 2.0 * log(max(float(np.std(residuals)), 1e-9))
    start = np.array([*[_LENGTH] * count, guess, 2.0 * log(noise_sd)])
    bounds = [(-2.5, 2.5)] * count + [(-25.0, 4.0), (-20.0, 0.0)]

    def unlikeliness(values: Floats) -> float:
        lower = np.linalg.cholesky(_kernel(features, values))
        whitened = np.linalg.solve(lower, residuals)
        beliefs = (((values[:count] - _LENGTH) / _SPREAD) ** 2).sum() + (values[-1] - start[-1]) ** 2
        return float(0.5 * whitened @ whitened + np.log(np.diag(lower)).sum() + 0.5 * beliefs)

    values = minimize(unlikeliness, start, method="L-BFGS-B", bounds=bounds).x
    weights: Floats = np.asarray(np.linalg.solve(_kernel(features, values), residuals), dtype=np.float64)
    return ResidualProcess(features, np.exp(values[:count]), float(np.exp(values[-2])), weights)


def _kernel(features: Floats, values: Floats) -> Floats:
    count = features.shape[1]
    alike = np.exp(values[-2]) * _alike(features, features, np.exp(values[:count]))
    return np.asarray(alike + (np.exp(values[-1]) + _JITTER) * np.eye(len(features)))


def _alike(first: Floats, second: Floats, lengths: Floats) -> Floats:
    apart = (first[:, None, :] - second[None, :, :]) / lengths
    return np.asarray(np.exp(-0.5 * (apart**2).sum(axis=-1)))
