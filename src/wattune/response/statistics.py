"""Weights by likelihood, nodes of normal distributions and means by error, as the posteriors use them."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def likelihood_weights(log_likelihood: Floats) -> Floats:
    """Return weights that sum to 1, in proportion to the likelihoods."""
    weights = np.exp(log_likelihood - log_likelihood.max())
    return np.asarray(weights / weights.sum())


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
