"""Exact Gaussian processes for some hundred measurements, on the residuals of whatever model their owner has.

Notation
    X, B    rows of inputs: (n, d) features, and (n, p) columns whose weights have standard normal priors and are
            integrated out: a constant, slopes, or the derivatives of a model by its parameters times their priors' sd
    y, n    residuals, and the known variances of their noise
    ℓ, σ²   length scale of each feature and variance of the smooth part, a Matérn 5/2 kernel M
    ν²      variance between places however near: a part of the function, so predictions contain it
    K       BBᵀ + σ²·M(X, X; ℓ) + ν²·1 + diag(n)

ℓ, σ² and ν² maximise the marginal likelihood times log-normal priors (Rasmussen and Williams 2006, equations 5.8 and
5.9), without which a handful of points would fit any length scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_ROOT_5 = 5.0**0.5
_JITTER = 1e-10
_LIMIT = 4.0
"""Standard deviations of the priors beyond which no parameter is searched."""

_ITERATIONS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Rows of features and of columns with unknown weights."""

    features: Floats
    basis: Floats

    def __len__(self) -> int:
        return len(self.features)

    def taken(self, places: Places) -> Inputs:
        return Inputs(self.features[places], self.basis[places])

    def joined(self, other: Inputs) -> Inputs:
        return Inputs(np.concatenate([self.features, other.features]), np.concatenate([self.basis, other.basis]))


@dataclass(frozen=True, slots=True, eq=False)
class Hyper:
    """Parameters of the kernel."""

    lengths: Floats
    smooth_sd: float
    rough_sd: float

    @property
    def logs(self) -> Floats:
        return np.log([*self.lengths, self.smooth_sd, self.rough_sd])

    @classmethod
    def of_logs(cls, logs: Floats) -> Hyper:
        values = np.exp(logs)
        return cls(values[:-2], float(values[-2]), float(values[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class HyperPrior:
    """Log-normal priors: typical parameters, and standard deviations of their logarithms."""

    typical: Hyper
    lengths_spread: float = 0.7
    smooth_spread: float = 1.0
    rough_spread: float = 0.7

    @property
    def spread(self) -> Floats:
        return np.array([*[self.lengths_spread] * len(self.typical.lengths), self.smooth_spread, self.rough_spread])


@dataclass(frozen=True, slots=True, eq=False)
class GaussianProcess:
    """A process conditioned on residuals."""

    hyper: Hyper
    inputs: Inputs
    values: Floats
    noise: Floats
    """(measurements,): known variances."""
    lower: Floats
    weights: Floats

    def predict(self, inputs: Inputs) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the function at places that were not measured."""
        across = _covariance(self.hyper, self.inputs, inputs)
        whitened = solve_triangular(self.lower, across, lower=True, check_finite=False)
        own = (inputs.basis**2).sum(axis=1) + self.hyper.smooth_sd**2 + self.hyper.rough_sd**2
        variance = own - (whitened**2).sum(axis=0)
        return np.asarray(across.T @ self.weights), np.sqrt(np.maximum(variance, 1e-16))

    def smoothed(self) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the function at the measured places themselves."""
        prior = _covariance(self.hyper, self.inputs, self.inputs)
        prior[np.diag_indices_from(prior)] += self.hyper.rough_sd**2
        whitened = solve_triangular(self.lower, prior, lower=True, check_finite=False)
        variance = np.diag(prior) - (whitened**2).sum(axis=0)
        return np.asarray(prior @ self.weights), np.sqrt(np.maximum(variance, 1e-16))

    def with_points(self, inputs: Inputs, values: Floats) -> GaussianProcess:
        """Condition on further values without noise; the parameters stay."""
        noise = np.concatenate([self.noise, np.zeros(len(values))])
        return condition(self.hyper, self.inputs.joined(inputs), np.concatenate([self.values, values]), noise)

    def draws(self, inputs: Inputs, count: int, random: np.random.Generator) -> Floats:
        """Return (count, rows) draws of the function from the posterior at places that were not measured."""
        across = _covariance(self.hyper, self.inputs, inputs)
        whitened = solve_triangular(self.lower, across, lower=True, check_finite=False)
        covariance = _covariance(self.hyper, inputs, inputs) - whitened.T @ whitened
        covariance[np.diag_indices_from(covariance)] += self.hyper.rough_sd**2
        # Eigenvalues below zero come from rounding alone.
        scale, axes = np.linalg.eigh(covariance)
        spread = axes * np.sqrt(np.maximum(scale, 0.0))
        return np.asarray(across.T @ self.weights + random.standard_normal((count, len(inputs))) @ spread.T)


def condition(hyper: Hyper, inputs: Inputs, values: Floats, noise: Floats) -> GaussianProcess:
    """Condition the prior on values with known noise variances; there may be none."""
    lower = _factor(hyper, inputs, noise)
    return GaussianProcess(hyper, inputs, values, noise, lower, cho_solve((lower, True), values))


def fit_process(inputs: Inputs, values: Floats, *, prior: HyperPrior, noise: Floats | None = None) -> GaussianProcess:
    """Fit the parameters and condition on the values, whose noise variances are 0 if not given."""
    known = np.zeros(len(values)) if noise is None else noise
    centre, spread = prior.typical.logs, prior.spread
    found = minimize(
        _unlikeliness,
        centre,
        args=(inputs, values, known, prior),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(centre - _LIMIT * spread, centre + _LIMIT * spread, strict=True)),
        options={"maxiter": _ITERATIONS},
    )
    return condition(Hyper.of_logs(found.x), inputs, values, known)


def _unlikeliness(
    logs: Floats, inputs: Inputs, values: Floats, noise: Floats, prior: HyperPrior
) -> tuple[float, Floats]:
    """Return minus the logarithm of the posterior density of the parameters, and its gradient."""
    hyper = Hyper.of_logs(logs)
    lower = _factor(hyper, inputs, noise)
    weights = cho_solve((lower, True), values, check_finite=False)
    inverse = cho_solve((lower, True), np.eye(len(values)), check_finite=False)
    # The derivative of ½ yᵀK⁻¹y + ½ log|K| by a parameter is ½ tr((K⁻¹ − αα') ∂K), α = K⁻¹y.
    slope = 0.5 * (inverse - np.outer(weights, weights))
    distance = _distances(inputs.features, inputs.features, hyper.lengths)
    smooth = hyper.smooth_sd**2 * matern(distance)
    # ∂M/∂log ℓ_j = 5/3·(1 + √5·r)·exp(−√5·r)·(Δ_j/ℓ_j)²
    inner = slope * hyper.smooth_sd**2 * (5.0 / 3.0) * (1.0 + _ROOT_5 * distance) * np.exp(-_ROOT_5 * distance)
    scaled = inputs.features / hyper.lengths
    lengths = 2.0 * inner.sum(axis=1) @ scaled**2 - 2.0 * (scaled * (inner @ scaled)).sum(axis=0)
    others = [2.0 * (slope * smooth).sum(), 2.0 * hyper.rough_sd**2 * np.trace(slope)]
    away = (logs - prior.typical.logs) / prior.spread
    loss = 0.5 * values @ weights + np.log(np.diag(lower)).sum() + 0.5 * away @ away
    return float(loss), np.concatenate([lengths, others]) + away / prior.spread


def _factor(hyper: Hyper, inputs: Inputs, noise: Floats) -> Floats:
    covariance = _covariance(hyper, inputs, inputs)
    covariance[np.diag_indices_from(covariance)] += noise + hyper.rough_sd**2 + _JITTER
    return np.asarray(np.linalg.cholesky(covariance))


def _covariance(hyper: Hyper, first: Inputs, second: Inputs) -> Floats:
    """Return the prior covariance of two sets of places, without the roughness of equal ones."""
    smooth = hyper.smooth_sd**2 * matern(_distances(first.features, second.features, hyper.lengths))
    return np.asarray(first.basis @ second.basis.T + smooth)


def _distances(first: Floats, second: Floats, lengths: Floats) -> Floats:
    a, b = first / lengths, second / lengths
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2.0 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def matern(distance: Floats) -> Floats:
    """Return the Matérn 5/2 correlation at distances in length scales."""
    return np.asarray((1.0 + _ROOT_5 * distance + 5.0 / 3.0 * distance**2) * np.exp(-_ROOT_5 * distance))
