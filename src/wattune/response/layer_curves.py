"""Time and energy of layers at all pairs of clocks, from a few layers measured at a few pairs.

The form of time and its prior are in `layer_forms`, what layers learn from each other in `layer_posterior`, power in
`layer_power`, which pairs to measure in `layer_design`. This file states what is known about a layer before
it is measured:

    demand      compute and memory seconds by a roofline; their ratio centres the prior of r. Both 0: no clock matters.
    class       layers of one class behave alike, the more so the closer their demands and times
    time        what a kernel takes at no clock is its launch, some microseconds: little of a long one

Power is energy over time; the energy of a pair is predicted power times predicted time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import InputError
from wattune.response.layer_design import pairs_to_measure
from wattune.response.layer_forms import MEMBERS, RATIO_SD, time_form, time_members
from wattune.response.layer_posterior import LayerCurves, LayerData, posterior_curves
from wattune.response.layer_power import power_curves
from wattune.response.statistics import Floats

__all__ = ["LayerMeasurements", "LayerPrediction", "next_layer", "pairs_to_measure", "predict_layers"]

_TIME_NOISE, _TIMER_S = 0.003, 1e-7
"""Relative error of a mean time, and the resolution of GPU timers."""

_ENERGY_NOISE = 0.01
_TIME_RESIDUAL = 0.01
"""Forms of this kind leave 0.8 to 1.1 % when they are fitted to all pairs (docs/explanation/layer-curves.md)."""

_ROOFLINE_SD = 1.2
"""Of log r around a roofline: kernels reach between a fifth and all of either peak."""

_EFFICIENCY_SD = 0.4
"""Of log time over the roofline, from layer to layer."""

_ROOFLINE_TRUST = 0.95
_LAUNCH_S, _FIXED = 20e-6, 0.3
_LONG_AND_FIXED = 0.1
"""Weight of a fixed share above 30 % for a layer that launches do not explain."""

_ALIKE, _UNLIKE = 0.1, 0.01
"""Similarity of layers of two classes with the same demand, and of any two; 1 within a class."""

_DEMAND_LENGTH, _TIME_LENGTH = 1.0, 2.0
"""Differences of log r and of log time over which layers become less similar."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerMeasurements:
    """What was measured of each layer, or kernel, at each pair of clocks."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    """One per layer, "" where unknown; layers of one class behave alike."""
    sm_mhz: Floats
    """(pairs,)"""
    mem_mhz: Floats
    """(pairs,)"""
    time_s: Floats
    """(layers, pairs), nan where not measured."""
    energy_j: Floats
    """(layers, pairs), nan where not measured."""
    demand: Floats | None = None
    """(layers, 2): compute and memory seconds at the highest clocks by a roofline; nan where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerPrediction:
    """Times and energies of all layers at all pairs, (layers, pairs); what was measured is kept as it is."""

    time_s: Floats
    energy_j: Floats
    """nan where no energy was measured at all."""
    time_error: Floats
    """Relative standard error."""
    energy_error: Floats


def predict_layers(measured: LayerMeasurements) -> LayerPrediction:
    """Predict every layer at every pair."""
    _check(measured)
    demand = np.full((len(measured.names), 2), np.nan) if measured.demand is None else measured.demand
    time_s, energy_j = measured.time_s, measured.energy_j
    similarity, log_clocks = _similarity(measured.classes, demand, time_s), _log_clocks(measured)
    x, y = np.exp(log_clocks).T
    data = LayerData(
        log_value=np.log(time_s),
        noise=_time_noise(time_s),
        prior=_time_prior(demand, time_s),
        similarity=similarity,
        expected=_log_roofline(demand),
        level_sd=_EFFICIENCY_SD,
    )
    times = posterior_curves(data, time_form(x, y), log_clocks, residual_sd=_TIME_RESIDUAL)
    found_s, time_error = _kept(time_s, times, data.noise)
    if not np.isfinite(energy_j).any():
        return LayerPrediction(found_s, np.full_like(found_s, np.nan), time_error, np.full_like(found_s, np.nan))
    powers = power_curves(energy_j / found_s, found_s, demand=demand, clocks=np.exp(log_clocks), similarity=similarity)
    energies = LayerCurves(np.log(found_s * powers.power_w), np.hypot(time_error, powers.error))
    found_j, energy_error = _kept(energy_j, energies, np.full(len(energy_j), _ENERGY_NOISE))
    return LayerPrediction(found_s, found_j, time_error, energy_error)


def next_layer(measured: LayerMeasurements, found: LayerPrediction, calls: Floats) -> int | None:
    """Return the layer to measure at more pairs: that with the largest expected error of all its calls, in seconds.

    `calls` is (layers,). Layers that were measured at two pairs or more are left; None when all were.
    """
    unknown = ~np.isfinite(measured.time_s)
    open_layers = unknown.sum(axis=1) > max(unknown.shape[1] - 2, 0)
    error_s = calls * (found.time_s * found.time_error * unknown).sum(axis=1)
    return int(np.where(open_layers, error_s, -1.0).argmax()) if open_layers.any() else None


def _check(measured: LayerMeasurements) -> None:
    known = np.isfinite(measured.time_s).any(axis=1)
    if not known.any():
        raise InputError("no layer was measured", hint="measure at least one layer at one pair of clocks")
    if measured.demand is not None:
        known |= np.isfinite(_log_roofline(measured.demand))
    for layer in np.flatnonzero(~known):
        raise InputError(
            f"layer {measured.names[layer]} was not measured, and its demand is unknown",
            hint="measure it at one pair of clocks, or state its demand",
        )


def _log_clocks(measured: LayerMeasurements) -> Floats:
    clocks = np.column_stack([measured.sm_mhz, measured.mem_mhz])
    return np.asarray(np.log(clocks / clocks.max(axis=0)))


def _kept(measured: Floats, curves: LayerCurves, noise: Floats) -> tuple[Floats, Floats]:
    """Return values and relative errors, with what was measured in its place."""
    known = np.isfinite(measured)
    errors = np.where(known, np.broadcast_to(noise[:, np.newaxis], known.shape), curves.error)
    return np.where(known, measured, np.exp(curves.log_value)), errors


def _time_noise(time_s: Floats) -> Floats:
    """(layers,): the larger of both errors, in steps of 2 so that layers with the same error are computed together."""
    shortest_s = np.where(np.isfinite(time_s), time_s, np.inf).min(axis=1)
    steps = np.ceil(np.log2(np.maximum(_TIMER_S / shortest_s / _TIME_NOISE, 1.0)))
    return np.asarray(_TIME_NOISE * 2.0**steps)


def _log_roofline(demand: Floats) -> Floats:
    """(layers,): log of the time at the highest clocks; nan where the demand is unknown."""
    largest = demand.max(axis=1)
    return np.asarray(np.log(np.where(largest > 0, largest, np.nan)))


def _log_ratio(demand: Floats) -> Floats:
    """(layers,): log r, at most what the prior holds; nan where the demand is unknown or 0."""
    share = demand / np.where(demand.sum(axis=1) > 0, demand.sum(axis=1), np.nan)[:, np.newaxis]
    compute, memory = np.maximum(share, 1e-9).T
    return np.asarray(np.clip(np.log(memory / compute), -1.5 * RATIO_SD, 1.5 * RATIO_SD))


def _time_prior(demand: Floats, time_s: Floats) -> Floats:
    """(layers, members)"""
    members = time_members()
    log_ratio, fixed = members.log_ratio[:, 0], members.fixed[:, 0]
    prior = np.full((len(demand), MEMBERS), 1.0 / MEMBERS)
    centre = _log_ratio(demand)
    for layer in np.flatnonzero(np.isfinite(centre)):
        # The members are drawn from the density of the second term: dividing by it leaves the roofline's.
        near = -0.5 * ((log_ratio - centre[layer]) / _ROOFLINE_SD) ** 2 + 0.5 * (log_ratio / RATIO_SD) ** 2
        prior[layer] = _mostly(np.exp(near - near.max()))
        launching = _LAUNCH_S / np.nanmin(time_s[layer]) if np.isfinite(time_s[layer]).any() else 0.0
        prior[layer] *= np.where(fixed > max(_FIXED, launching), _LONG_AND_FIXED, 1.0)
    for layer in np.flatnonzero((demand == 0).all(axis=1)):
        prior[layer] = _mostly((fixed > 0.97).astype(np.float64))
    return np.asarray(prior / prior.sum(axis=1, keepdims=True))


def _mostly(weights: Floats) -> Floats:
    """Mix weights with a few percent of the prior of all layers, which measurements may then prefer."""
    return np.asarray(_ROOFLINE_TRUST * weights / weights.sum() + (1.0 - _ROOFLINE_TRUST) / MEMBERS)


def _similarity(classes: tuple[str, ...], demand: Floats, time_s: Floats) -> Floats:
    """(layers, layers)"""
    names: NDArray[np.str_] = np.array(classes)
    same = (names[:, np.newaxis] == names) & (names != "")
    typical = np.where(np.isfinite(time_s), np.log(time_s), 0.0).sum(axis=1) / np.isfinite(time_s).sum(axis=1).clip(1)
    typical = np.where(np.isfinite(time_s).any(axis=1), typical, np.nan)
    still = (demand == 0).all(axis=1)
    log_ratio = _log_ratio(demand)
    alike = np.where(still[:, np.newaxis] & still, 1.0, _nearness(log_ratio, _DEMAND_LENGTH, unknown=0.0))
    across = np.maximum(_ALIKE * alike, _UNLIKE)
    within = _nearness(log_ratio, _DEMAND_LENGTH, unknown=1.0)
    return np.asarray(
        np.where(same, np.maximum(within, across), across) * _nearness(typical, _TIME_LENGTH, unknown=1.0)
    )


def _nearness(values: Floats, length: float, *, unknown: float) -> Floats:
    apart = (values[:, np.newaxis] - values) / length
    return np.asarray(np.where(np.isfinite(apart), np.exp(-0.5 * apart**2), unknown))
