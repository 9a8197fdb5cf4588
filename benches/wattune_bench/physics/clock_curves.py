"""Time and energy of one operation, such as the forward pass of a pipeline stage, against the locked core clock.

Notation (powers over the largest measured, clocks over the highest)
    x       clock that was requested
    P(x)    static + core·s(x), with s of `voltage`; limited by the cap, with a rounded corner
    y       clock in effect: P(y) is the power
    T       gpu·(p-norm of 1/y and memory + rest), the norm over its value at y = 1
    E       T·P(y)

An operation of milliseconds may exceed the board's limit, so the cap is fitted and not given. Times repeat so well that
their residuals at the measured clocks are interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.core.voltage import switching, voltage
from wattune.physics.fit.prior import Estimate, Prior, logistic, logit, most_likely
from wattune.physics.gpu_parts import Floats
from wattune.physics.timing import smooth_maximum


def soft_minimum(first: Floats, second: Floats | float, sharpness: float) -> Floats:
    """Compute the smaller of two positive values, rounded where they meet."""
    second = np.broadcast_to(
        np.asarray(second, dtype=np.float64), np.broadcast_shapes(np.shape(first), np.shape(second))
    )
    low, high = np.minimum(first, second), np.maximum(first, second)
    return np.asarray(low * (1.0 + (low / high) ** sharpness) ** (-1.0 / sharpness))


_CLOCKS = np.linspace(0.05, 1.0, 600)
_BEND = 1.5
_SHARPNESS = 35.0
_ROOFLINE = 4.0
_KNEES = (0.60, 0.68, 0.76, 0.82)
# Time comes from GPU events, energy from a counter that changes every 100 ms.
_TIME_SD = 0.005
_ENERGY_SD = 0.006


class _StageParameters(NamedTuple):
    log_static: float
    logit_knee: float
    log_rise: float
    log_cap: float
    log_gpu: float
    log_memory: float
    log_rest: float
    log_core: float


# Chosen, as the bend, by the error at clocks left out of GPT-3 on A100 and Bloom on A40 (ml-energy/zeus, artifact of
# the SOSP 2024 paper), so errors on these two are optimistic.
_PRIORS = (
    Prior(log(0.20), 0.5),  # static
    Prior(logit(0.70), 0.29),  # knee
    Prior(log(0.28), 0.29),  # rise
    Prior(0.05, 0.1),  # cap: somewhat above what was measured, unless the times contradict
    Prior(0.0, 5.0),  # gpu
    Prior(-0.7, 0.4),  # memory
    Prior(-3.0, 0.7),  # rest
    Prior(-0.2, 1.0),  # core
)


@dataclass(frozen=True, slots=True, eq=False)
class StageCurve:
    """A fitted operation."""

    estimate: Estimate
    highest_mhz: float
    largest_w: float
    fastest_s: float
    measured_mhz: Floats
    time_residual: Floats
    """Logarithm of measured over fitted time at the measured clocks."""

    def predict(self, sm_mhz: Floats) -> tuple[Floats, Floats]:
        """Return seconds and joules at these clocks."""
        log_time, log_power = _predict(_StageParameters(*self.estimate.values), sm_mhz / self.highest_mhz)
        energy_j = np.exp(log_time + log_power) * self.fastest_s * self.largest_w
        inside = np.clip(sm_mhz, self.measured_mhz[0], self.measured_mhz[-1])
        residual = PchipInterpolator(self.measured_mhz, self.time_residual)(inside)
        return np.exp(log_time + residual) * self.fastest_s, energy_j


def fit_stage(sm_mhz: Floats, time_s: Floats, energy_j: Floats, *, highest_mhz: float) -> StageCurve:
    """Fit an operation at ascending clocks; `highest_mhz` is the GPU's highest clock, measured or not."""
    power_w = energy_j / time_s
    largest_w, fastest_s = float(power_w.max()), float(time_s.min())
    time, power = np.log(time_s / fastest_s), np.log(power_w / largest_w)

    def errors(values: Floats) -> Floats:
        log_time, log_power = _predict(_StageParameters(*values), sm_mhz / highest_mhz)
        energy_error = (log_time + log_power - time - power) / _ENERGY_SD
        return np.concatenate([(log_time - time) / _TIME_SD, energy_error])

    means = _StageParameters(*(prior.mean for prior in _PRIORS))
    starts = [np.array(means._replace(logit_knee=logit(knee))) for knee in _KNEES]
    estimate = most_likely(errors, _PRIORS, starts)
    fitted, _ = _predict(_StageParameters(*estimate.values), sm_mhz / highest_mhz)
    return StageCurve(estimate, highest_mhz, largest_w, fastest_s, sm_mhz, time - fitted)


def _predict(stage: _StageParameters, clock: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of time over the fastest and of power over the largest."""
    knee, rise = float(logistic(stage.logit_knee)), float(np.exp(stage.log_rise))
    grid = switching(_CLOCKS, knee=knee, rise=rise, bend=_BEND)
    static, core = np.exp(stage.log_static), np.exp(stage.log_core)
    requested = static + core * np.interp(clock, _CLOCKS, grid)
    drawn = soft_minimum(requested, float(np.exp(stage.log_cap)), _SHARPNESS)
    held = np.interp((drawn - static) / core, grid, _CLOCKS)
    memory = np.full_like(held, np.exp(stage.log_memory))
    work = smooth_maximum(1.0 / held, memory, _ROOFLINE) / (1.0 + memory**_ROOFLINE) ** (1.0 / _ROOFLINE)
    return stage.log_gpu + np.log(work + np.exp(stage.log_rest)), np.log(drawn)


PRIORS = (
    Prior(log(0.15), 0.6),  # P0
    Prior(log(0.5), 0.6),  # a
    Prior(logit(0.70), 0.3),  # knee
    Prior(log(0.28), 0.3),  # rise
)
_POWER_SD = 0.01
"""Repeated readings of one steady load differ by about 1 %."""
_POWER_CURVE_KNEES = (0.55, 0.63, 0.70, 0.76, 0.82)
"""Starting points: the cost has a local minimum for each pair of neighbouring points that may enclose the knee."""


@dataclass(frozen=True, slots=True, eq=False)
class PowerCurve:
    """A fitted curve P0 + a·f·v²."""

    estimate: Estimate
    highest_mhz: float
    largest_w: float

    def power_w(self, sm_mhz: Floats) -> Floats:
        return _power(self.estimate.values, sm_mhz / self.highest_mhz) * self.largest_w


def fit_power(sm_mhz: Floats, power_w: Floats) -> PowerCurve:
    """Fit a power curve to these points."""
    highest_mhz, largest_w = float(sm_mhz.max()), float(power_w.max())
    clock, measured = sm_mhz / highest_mhz, np.log(power_w / largest_w)

    def errors(values: Floats) -> Floats:
        return (np.log(_power(values, clock)) - measured) / _POWER_SD

    means = np.array([prior.mean for prior in PRIORS])
    starts = [np.array([*means[:2], logit(knee), means[3]]) for knee in _POWER_CURVE_KNEES]
    return PowerCurve(most_likely(errors, PRIORS, starts), highest_mhz, largest_w)


def _power(values: Floats, clock: Floats) -> Floats:
    knee, rise = float(logistic(values[2])), float(np.exp(values[3]))
    return np.asarray(np.exp(values[0]) + np.exp(values[1]) * clock * voltage(clock, knee=knee, rise=rise) ** 2)
