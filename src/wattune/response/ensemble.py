"""What the ensembles of response curves share: sampling of parameters, weights by likelihood, and normal distributions.

An ensemble is a prior: many parameter sets that physics allows, drawn once with a fixed seed. Measurements weight its
members, and the weighted members predict settings that were not measured.
"""

from __future__ import annotations

from functools import lru_cache
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

CLOCK_GRID = np.linspace(0.05, 1.0, 77)
"""Core clocks, over the highest, at which the power of each member is tabulated."""


class ParameterSampler:
    """Draws one parameter for every member of an ensemble, (members, 1); the order of the calls is part of the seed."""

    def __init__(self, members: int, *, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = (members, 1)

    def log_normal(self, centre: float, spread: float) -> Floats:
        return np.asarray(np.exp(log(centre) + spread * self.rng.standard_normal(self.shape)))

    def log_uniform(self, low: float, high: float) -> Floats:
        return np.asarray(np.exp(self.rng.uniform(log(low), log(high), self.shape)))

    def uniform(self, low: float, high: float) -> Floats:
        return np.asarray(self.rng.uniform(low, high, self.shape))

    def normal(self, centre: float, spread: float) -> Floats:
        return np.asarray(spread * self.rng.standard_normal(self.shape) + centre)

    def clipped_normal(self, centre: float, spread: float, low: float, high: float) -> Floats:
        return np.asarray(np.clip(centre + spread * self.rng.standard_normal(self.shape), low, high))


def clock_at_power(wanted: Floats, power: Floats) -> Floats:
    """Return the clock at which each member draws the wanted power; `power` is (members, grid) and rises.

    `wanted` has one row per member; the result has its shape.
    """
    return np.array([np.interp(each, row, CLOCK_GRID) for each, row in zip(wanted, power, strict=True)])


def likelihood_weights(log_likelihood: Floats) -> Floats:
    """Return weights that sum to 1, in proportion to the likelihoods."""
    weights = np.exp(log_likelihood - log_likelihood.max())
    return np.asarray(weights / weights.sum())


def expected_gain(mean: Floats, sd: Floats) -> Floats:
    """Return E[max(X, 0)] of normal X: the expected improvement."""
    sd = np.maximum(sd, 1e-12)
    z = mean / sd
    return np.asarray(mean * ndtr(z) + sd * np.exp(-0.5 * z**2) / sqrt(2.0 * pi))


@lru_cache(maxsize=8)
def normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Return nodes and weights (sum 1) that integrate over a standard normal distribution (Gauss-Hermite)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def weighted_mean(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of (value, standard error) pairs, weighted by error, and its standard error.

    Where the values differ by more than their errors allow, the standard error grows.
    """
    total = sum(error**-2 for _, error in values)
    mean = sum(value * error**-2 for value, error in values) / total
    if len(values) == 1:
        return mean, 1.0 / sqrt(total)
    surplus = sum(((value - mean) / error) ** 2 for value, error in values) / (len(values) - 1)
    return mean, sqrt(max(surplus, 1.0) / total)
