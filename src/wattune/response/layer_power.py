"""Power of many layers against both clocks, given how their times answer.

Notation (clocks over the highest; powers over the mean of all that were measured)
    x, y    core and memory clock;  v(x): core voltage (`core.voltage`), 1 at x = 1
    a, d    use of the arithmetic units and of the memory: demand over time where the demand of the layer is known, else
            work per second over the largest (least time/time)
    P       β · (1, y, x·v², v²·a, d): board and leakage, memory clock, core clock, arithmetic, traffic
    β_k     of layer k, normal around μ_k with the spread of `_SPREAD`
    μ_k     (κ·μ + Σ_i similarity_ki·β_i)/(κ + Σ_i similarity_ki), over the other layers i that were measured
    μ       of the GPU, normal around `_CENTRE`

The terms are those of `physics/spend.py`. Given the voltage, P is linear in β, and the posterior of a layer is that of
a linear regression, that of μ follows in closed form, and μ_k and β are computed in turn. Knee and rise of the voltage
are a grid, weighted by the evidence of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log

import numpy as np

from wattune.core.voltage import voltage_squared
from wattune.response.statistics import Floats, likelihood_weights

_CENTRE = np.array([0.16, 0.06, 0.32, 0.33, 0.13])
"""Shares of power at the highest clocks, as the prior of whole programs (`ensemble.py`) has them."""

_CENTRE_SD = np.array([0.10, 0.05, 0.25, 0.30, 0.10])
"""From GPU to GPU."""

_SPREAD = np.array([0.05, 0.05, 0.15, 0.5, 0.2])
"""From layer to layer: most in the arithmetic, least in what the board draws at any work."""

_KNEES, _KNEE, _KNEE_SD = np.arange(0.45, 0.95, 0.05), 0.68, 0.12
_RISES, _RISE, _LOG_RISE_SD = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8), 0.32, 0.5
"""Wider than for whole programs: the highest clock of a table need not be that of the GPU."""

_ERROR = 0.015
"""Of a measured power: noise of the counter, and what the form leaves."""

_INDEPENDENT = 10
"""Layers deviate from the form in the same way: many count as evidence of the voltage no more than so many."""

_ROUNDS, _PRIOR_COUNT = 3, 1.0
_LEAST_WEIGHT = 1e-3
"""Voltage curves below this weight are left out."""

_LEAST_SHARE = 0.1
"""No layer draws less than this share of the mean power."""


@dataclass(frozen=True, slots=True, eq=False)
class PowerCurves:
    """Predicted power and its relative standard error, (layers, pairs)."""

    power_w: Floats
    error: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """Posterior of all layers for one voltage curve."""

    log_weight: float
    own: Floats
    """(layers, terms): β"""
    covariance: Floats
    """(layers, terms, terms)"""


def power_curves(power_w: Floats, time_s: Floats, *, demand: Floats, clocks: Floats, similarity: Floats) -> PowerCurves:
    """Predict the power of every layer at every pair from some, nan elsewhere.

    `demand` is (layers, 2), compute and memory seconds, nan where unknown; `clocks` is (pairs, 2), relative.
    """
    mean_w = float(np.nanmean(power_w))
    seconds = np.where(np.isfinite(demand), demand, time_s.min(axis=1, keepdims=True))
    # Where a roofline is too slow, the units are busy all the time.
    work = np.minimum(seconds[:, np.newaxis] / time_s[:, :, np.newaxis], 1.0)
    seen = np.isfinite(power_w).any(axis=0)
    voltages = tuple(product(_KNEES.tolist(), _RISES))
    found = [
        _regression(power_w[:, seen] / mean_w, _terms(work[:, seen], clocks[seen], *voltage), similarity, *voltage)
        for voltage in voltages
    ]
    weights = likelihood_weights(np.array([one.log_weight for one in found]))
    kept = np.flatnonzero(weights > _LEAST_WEIGHT)
    mean, square = np.zeros_like(power_w), np.zeros_like(power_w)
    for place in kept:
        weight, terms, one = weights[place] / weights[kept].sum(), _terms(work, clocks, *voltages[place]), found[place]
        power = _times(terms, one.own)
        mean += weight * power
        square += weight * (((terms @ one.covariance) * terms).sum(axis=2) + power**2)
    variance = np.maximum(square - mean**2, 0.0) + (_ERROR * mean) ** 2
    mean = np.maximum(mean, _LEAST_SHARE)
    return PowerCurves(mean * mean_w, np.sqrt(variance) / mean)


def _terms(work: Floats, clocks: Floats, knee: float, rise: float) -> Floats:
    """(layers, pairs, terms); `work` is (layers, pairs, 2)."""
    x, y = (np.broadcast_to(each, work.shape[:2]) for each in clocks.T)
    v2 = voltage_squared(x, knee=knee, rise=rise)
    return np.stack([np.ones_like(x), y, x * v2, v2 * work[:, :, 0], work[:, :, 1]], axis=2)


def _regression(power: Floats, terms: Floats, similarity: Floats, knee: float, rise: float) -> _Regression:
    measured = np.isfinite(power)
    values = np.where(measured, power, 0.0)
    precision = np.where(measured, (_ERROR * np.where(measured, power, 1.0)) ** -2, 0.0)
    weighted = np.swapaxes(terms * precision[:, :, np.newaxis], 1, 2)
    moments, pulls = weighted @ terms, _times(weighted, values)
    inverse: Floats = np.asarray(np.linalg.inv(moments + np.diag(_SPREAD**-2)), dtype=np.float64)
    # What each layer says about μ, once its own β is integrated out.
    passed = moments @ inverse
    shared = np.diag(_CENTRE_SD**-2) + (moments - passed @ moments).sum(axis=0)
    start = _CENTRE / _CENTRE_SD**2
    centre = np.linalg.solve(shared, start + (pulls - _times(passed, pulls)).sum(axis=0))
    squared = (precision * values**2).sum() - (pulls * _times(inverse, pulls)).sum() - centre @ shared @ centre
    log_evidence = -0.5 * (squared + _log_determinant(shared)) + 0.5 * _log_determinant(inverse)
    own = _own_terms(centre, moments, pulls, inverse, similarity * measured.any(axis=1))
    left = np.eye(len(centre)) - inverse @ moments
    covariance = inverse + left @ np.linalg.inv(shared) @ np.swapaxes(left, 1, 2)
    trust = min(1.0, _INDEPENDENT / int(measured.any(axis=1).sum()))
    log_prior = -0.5 * ((knee - _KNEE) / _KNEE_SD) ** 2 - 0.5 * (log(rise / _RISE) / _LOG_RISE_SD) ** 2
    return _Regression(trust * log_evidence + log_prior, own, covariance)


def _own_terms(centre: Floats, moments: Floats, pulls: Floats, inverse: Floats, share: Floats) -> Floats:
    """(layers, terms): β, with the centre of each layer moved towards similar layers."""
    np.fill_diagonal(share, 0.0)
    centres = np.broadcast_to(centre, pulls.shape)
    own = centres
    for _ in range(_ROUNDS):
        own = centres + _times(inverse, pulls - _times(moments, centres))
        centres = (_PRIOR_COUNT * centre + share @ own) / (_PRIOR_COUNT + share.sum(axis=1, keepdims=True))
    return np.asarray(centres + _times(inverse, pulls - _times(moments, centres)))


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Multiply a matrix with a vector for each layer."""
    return np.asarray((matrices @ vectors[:, :, np.newaxis])[:, :, 0])


def _log_determinant(matrices: Floats) -> float:
    return float(np.linalg.slogdet(matrices)[1].sum())
