"""Time and energy of one operation, such as the forward pass of a pipeline stage, against the locked core clock.

Notation (powers over the largest measured, clocks over the highest)
    x       clock that was asked for
    P(x)    static + core·s(x), with s of `voltage`; held below the cap, with a rounded corner
    y       clock that holds: P(y) is what is drawn
    T       gpu·(p-norm of 1/y and memory + rest), the norm over its value at y = 1
    E       T·P(y)

An operation that takes milliseconds may draw more than the board's limit, so the cap is fitted and not given. Times
repeat so well that what the form leaves over of them at the measured clocks is carried along in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.physics.fit.prior import Estimate, Prior, logistic, logit, most_likely
from wattune.physics.fit.voltage import soft_minimum, switching
from wattune.physics.load_table import Floats
from wattune.physics.timing import smooth_maximum

_CLOCKS = np.linspace(0.05, 1.0, 600)
_BEND = 1.5
_SHARPNESS = 35.0
_ROOFLINE = 4.0
_KNEES = (0.60, 0.68, 0.76, 0.82)
# Time is read off GPU events, energy off a counter that moves every 100 ms.
_TIME_SD = 0.005
_ENERGY_SD = 0.006


class _Stage(NamedTuple):
    log_static: float
    logit_knee: float
    log_rise: float
    log_cap: float
    log_gpu: float
    log_memory: float
    log_rest: float
    log_core: float


# Chosen, as is the bend, with an eye on clocks left out of GPT-3 on A100 and Bloom on A40 (ml-energy/zeus, artifact of
# the SOSP 2024 paper), so that errors on these two are somewhat flattered.
_PRIORS = (
    Prior(log(0.20), 0.5),  # static
    Prior(logit(0.70), 0.29),  # knee
    Prior(log(0.28), 0.29),  # rise
    Prior(0.05, 0.1),  # cap: somewhat above what was measured, unless the times say otherwise
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
    time_left: Floats
    """Logarithm of measured over fitted time at the measured clocks."""

    def predict(self, sm_mhz: Floats) -> tuple[Floats, Floats]:
        """Seconds and joules of the operation at these clocks."""
        log_time, log_power = _predict(_Stage(*self.estimate.values), sm_mhz / self.highest_mhz)
        energy_j = np.exp(log_time + log_power) * self.fastest_s * self.largest_w
        inside = np.clip(sm_mhz, self.measured_mhz[0], self.measured_mhz[-1])
        left = PchipInterpolator(self.measured_mhz, self.time_left)(inside)
        return np.exp(log_time + left) * self.fastest_s, energy_j


def fit_stage(sm_mhz: Floats, time_s: Floats, energy_j: Floats, *, highest_mhz: float) -> StageCurve:
    """The most likely operation at clocks that ascend; `highest_mhz` is the GPU's highest clock, measured or not."""
    power_w = energy_j / time_s
    largest_w, fastest_s = float(power_w.max()), float(time_s.min())
    time, power = np.log(time_s / fastest_s), np.log(power_w / largest_w)

    def errors(values: Floats) -> Floats:
        log_time, log_power = _predict(_Stage(*values), sm_mhz / highest_mhz)
        energy_error = (log_time + log_power - time - power) / _ENERGY_SD
        return np.concatenate([(log_time - time) / _TIME_SD, energy_error])

    means = _Stage(*(prior.mean for prior in _PRIORS))
    starts = [np.array(means._replace(logit_knee=logit(knee))) for knee in _KNEES]
    estimate = most_likely(errors, _PRIORS, starts)
    fitted, _ = _predict(_Stage(*estimate.values), sm_mhz / highest_mhz)
    return StageCurve(estimate, highest_mhz, largest_w, fastest_s, sm_mhz, time - fitted)


def _predict(stage: _Stage, clock: Floats) -> tuple[Floats, Floats]:
    """Logarithms of time over the fastest and of power over the largest."""
    knee, rise = float(logistic(stage.logit_knee)), float(np.exp(stage.log_rise))
    grid = switching(_CLOCKS, knee=knee, rise=rise, bend=_BEND)
    static, core = np.exp(stage.log_static), np.exp(stage.log_core)
    asked = static + core * np.interp(clock, _CLOCKS, grid)
    drawn = soft_minimum(asked, float(np.exp(stage.log_cap)), _SHARPNESS)
    held = np.interp((drawn - static) / core, grid, _CLOCKS)
    memory = np.full_like(held, np.exp(stage.log_memory))
    work = smooth_maximum(1.0 / held, memory, _ROOFLINE) / (1.0 + memory**_ROOFLINE) ** (1.0 / _ROOFLINE)
    return stage.log_gpu + np.log(work + np.exp(stage.log_rest)), np.log(drawn)
