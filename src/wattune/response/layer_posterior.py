"""Posterior times of many layers: what measurements say about other layers, about the GPU and about other pairs.

Notation
    z       log of the measured time of a layer at a pair
    b, j    a GPU of the grid, a member of the form (`layer_forms`)
    G       log of the form, (b, j, pairs);  s: scale of a layer
    δ       residual of the form: a Gaussian process over log clocks; ε: noise of a measurement
            z = s + G_bj + δ + ε,  with a flat prior of s
    π_k     weights of the members for layer k before its own measurements
    ω       weights of the GPUs, the same for all layers

Members are weighted by likelihood. Layers share in two ways (empirical Bayes, repeated a few times):
    ω_b  ∝ prior_b · Π_k Σ_j π_kj·L_kbj                      one GPU runs all layers
    π_k  ∝ κ·prior_k + Σ_i similarity_ki·posterior_i         similar layers answer alike
where i are the other layers that were measured at two pairs or more. A layer measured at one pair has its scale from
there and its curve from π_k; a layer without any has its scale from similar layers too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.response.layer_forms import Form
from wattune.response.statistics import Floats, likelihood_weights

_ROUNDS = 4
_PRIOR_COUNT = 0.5
"""κ: the prior counts as much as half a similar layer."""

_RESIDUAL_LENGTH = 0.15
"""Of δ, in log clocks."""

_FLAT = 1e2
"""Variance of s."""

_LEAST_GPU, _LEAST_MEMBER = 0.003, 1e-6
"""Weights below these are left out."""

_LEAST_EVIDENCE = 1e-200


@dataclass(frozen=True, slots=True, eq=False)
class LayerData:
    """Measured values of layers at pairs, and what is known about the layers before."""

    log_value: Floats
    """(layers, pairs), nan where not measured."""
    noise: Floats
    """(layers,): relative standard error of a measurement."""
    prior: Floats
    """(layers, members), each row sums to 1."""
    similarity: Floats
    """(layers, layers), from 0 to 1."""
    expected: Floats
    """(layers,): log of the value at the highest clocks up to a constant that similar layers share."""
    level_sd: float
    """Of that constant from layer to layer."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerCurves:
    """Predicted log values and their standard errors, (layers, pairs)."""

    log_value: Floats
    error: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Layers measured at the same pairs with the same noise."""

    layers: NDArray[np.intp]
    pairs: NDArray[np.intp]
    whitening: Floats
    """(pairs, pairs): times a residual, it has unit covariance."""
    gain: Floats
    """(all pairs, pairs): from residuals at the pairs to the expected residual at all."""
    spread: Floats
    """(all pairs,): standard deviation of δ and of the scale, given the residuals."""


def posterior_curves(data: LayerData, form: Form, log_clocks: Floats, *, residual_sd: float) -> LayerCurves:
    """Predict the median of every layer at every pair; `log_clocks` is (pairs, 2)."""
    groups = tuple(_groups(data, log_clocks, residual_sd))
    fits = _likelihoods(data, form, groups)
    informed = np.isfinite(data.log_value).sum(axis=1) > 1
    gpus, weights = _weights(data, form, fits, informed)
    log_value = form.log_value[gpus].reshape(-1, form.log_value.shape[2])
    middle, error = np.empty_like(data.log_value), np.empty_like(data.log_value)
    for group in groups:
        members = weights[group.layers].max(axis=0) > _LEAST_MEMBER
        middle[group.layers], error[group.layers] = _predicted(
            data.log_value[np.ix_(group.layers, group.pairs)],
            log_value[members],
            weights[np.ix_(group.layers, members)],
            group,
        )
    return _with_scales(data, LayerCurves(middle, error), weights @ log_value)


def _residual_covariance(log_clocks: Floats, residual_sd: float) -> Floats:
    """(pairs, pairs): covariance of δ."""
    apart = ((log_clocks[:, np.newaxis] - log_clocks[np.newaxis]) ** 2).sum(axis=2)
    return np.asarray(residual_sd**2 * np.exp(-0.5 * apart / _RESIDUAL_LENGTH**2))


def _groups(data: LayerData, log_clocks: Floats, residual_sd: float) -> Iterator[_Group]:
    covariance = _residual_covariance(log_clocks, residual_sd) + _FLAT
    measured = np.isfinite(data.log_value)
    patterns, which = np.unique(np.column_stack([measured, data.noise]), axis=0, return_inverse=True)
    for place, pattern in enumerate(patterns):
        pairs = np.flatnonzero(pattern[:-1])
        root = np.linalg.cholesky(covariance[np.ix_(pairs, pairs)] + pattern[-1] ** 2 * np.eye(len(pairs)))
        whitening: Floats = np.asarray(np.linalg.solve(root, np.eye(len(pairs))), dtype=np.float64)
        seen = covariance[:, pairs] @ whitening.T
        spread = np.sqrt(np.maximum(np.diag(covariance) - (seen**2).sum(axis=1), 0.0))
        yield _Group(np.flatnonzero(which.ravel() == place), pairs, whitening, seen @ whitening, spread)


def _likelihoods(data: LayerData, form: Form, groups: tuple[_Group, ...]) -> Floats:
    """(layers, GPUs, members): over the largest of the layer; 1 for layers measured at less than two pairs."""
    gpus, members, _ = form.log_value.shape
    found = np.ones((len(data.noise), gpus, members))
    for group in groups:
        if len(group.pairs) < 2:
            continue
        curves = form.log_value.reshape(gpus * members, -1)[:, group.pairs]
        values = data.log_value[np.ix_(group.layers, group.pairs)]
        # The scale is free: centred values keep the digits that the large variance of the scale would cost.
        curves = (curves - curves.mean(axis=1, keepdims=True)) @ group.whitening.T
        values = (values - values.mean(axis=1, keepdims=True)) @ group.whitening.T
        squared = (curves**2).sum(axis=1) - 2.0 * values @ curves.T
        squared -= squared.min(axis=1, keepdims=True)
        found[group.layers] = np.exp(-0.5 * squared).reshape(-1, gpus, members)
    return found


def _weights(data: LayerData, form: Form, fits: Floats, informed: NDArray[np.bool_]) -> tuple[NDArray[np.intp], Floats]:
    """Return the GPUs that count, and weights (layers, these GPUs × members), each row of which sums to 1."""
    similarity = data.similarity[:, informed].copy()
    similarity[informed, np.arange(informed.sum())] = 0.0
    own = data.prior
    gpu = likelihood_weights(form.log_gpu)
    for _ in range(_ROUNDS):
        evidence = _evidence(fits[informed], own[informed])
        gpu = likelihood_weights(form.log_gpu + np.log(evidence).sum(axis=0))
        posterior = own[informed] * ((gpu / evidence)[:, np.newaxis] @ fits[informed])[:, 0]
        own = _PRIOR_COUNT * data.prior + similarity @ posterior
        own = own / own.sum(axis=1, keepdims=True)
    kept = np.flatnonzero(gpu > _LEAST_GPU)
    weights = fits[:, kept] * own[:, np.newaxis] / _evidence(fits[:, kept], own)[:, :, np.newaxis]
    return kept, (weights * gpu[kept, np.newaxis] / gpu[kept].sum()).reshape(len(own), -1)


def _evidence(fits: Floats, own: Floats) -> Floats:
    """(layers, GPUs): mean likelihood; above 0 where a layer rules a GPU out, as layers may rule out all of them."""
    return np.maximum((fits @ own[:, :, np.newaxis])[:, :, 0], _LEAST_EVIDENCE)


def _predicted(values: Floats, curves: Floats, weights: Floats, group: _Group) -> tuple[Floats, Floats]:
    """Return the medians and standard errors of a group of layers at all pairs.

    The median and not the mean: layers of one class may be of two kinds.
    """
    left = curves - curves[:, group.pairs] @ group.gain.T
    mean = weights @ left
    variance = np.maximum(weights @ left**2 - mean**2, 0.0)
    order = np.argsort(left, axis=0)
    middle = np.empty_like(mean)
    for pair in range(left.shape[1]):
        below = np.cumsum(weights[:, order[:, pair]], axis=1)
        chosen = (below >= 0.5 * below[:, -1:]).argmax(axis=1)
        middle[:, pair] = left[order[chosen, pair], pair]
    spread = group.spread if len(group.pairs) else np.zeros_like(group.spread)
    return middle + values @ group.gain.T, np.sqrt(variance + spread**2)


def _with_scales(data: LayerData, curves: LayerCurves, shape: Floats) -> LayerCurves:
    """Add the scale of similar layers to layers that were not measured at all."""
    measured = np.isfinite(data.log_value)
    missing, known = ~measured.any(axis=1), measured.any(axis=1)
    if not missing.any():
        return curves
    residual = np.where(measured, data.log_value - shape, 0.0).sum(axis=1) / np.maximum(measured.sum(axis=1), 1)
    level = (residual - data.expected)[known]
    share = data.similarity[np.ix_(missing, known)]
    count = share.sum(axis=1)
    share = share / count[:, np.newaxis]
    centre = share @ level
    variance = share @ level**2 - centre**2 + data.level_sd**2 / (1.0 + count)
    log_value, error = curves.log_value.copy(), curves.error.copy()
    log_value[missing] += (centre + data.expected[missing])[:, np.newaxis]
    error[missing] = np.sqrt(error[missing] ** 2 + np.maximum(variance, 0.0)[:, np.newaxis])
    return LayerCurves(log_value, error)
