"""Probabilities of ratios of power, by finite sums: importing SciPy would take longer than to analyse a trace."""

from __future__ import annotations

from functools import lru_cache
from math import exp, lgamma, log

import numpy as np

from wattune.signals.samples import Floats


def ratio_chance(freedom: float, ratio: Floats) -> Floats:
    """Return the probability that F(n, 2n) exceeds each ratio, where n is `freedom`, 2 or more.

    For even n = 2k it is I_x(2k, k), x = 2 / (2 + ratio), a sum of k terms; between two of them its logarithm is
    interpolated.
    """
    half = max(freedom / 2, 1.0)
    low = int(half)
    below = _log_chance(low, ratio)
    if half - low < 1e-9:
        return np.exp(below)
    return np.asarray(np.exp(below + (half - low) * (_log_chance(low + 1, ratio) - below)))


def _log_chance(terms: int, ratio: Floats) -> Floats:
    """Return ln I_x(2k, k) = ln Σ (2k)_j / j! · x^2k (1 − x)^j, j from 0 to k − 1."""
    log_x = -np.log1p(ratio / 2)
    log_rest = np.log(np.maximum(ratio, 1e-300) / (2 + ratio))
    parts = _log_rising(terms) + np.multiply.outer(log_rest, np.arange(terms))
    largest = parts.max(axis=-1)
    return np.asarray(2 * terms * log_x + largest + np.log(np.exp(parts - largest[..., None]).sum(axis=-1)))


@lru_cache(maxsize=512)
def _log_rising(terms: int) -> Floats:
    """Return ln (2k)_j / j! for j from 0 to k − 1."""
    count = np.arange(1, terms)
    return np.concatenate(([0.0], np.cumsum(np.log((2 * terms + count - 1) / count))))


def sum_chance(terms: int, value: float) -> float:
    """Return the probability that χ² of 2·`terms` degrees of freedom exceeds a value."""
    half = value / 2
    if half <= 0:
        return 1.0
    return min(sum(exp(number * log(half) - lgamma(number + 1) - half) for number in range(terms)), 1.0)
