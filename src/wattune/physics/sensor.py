"""What the sensors of a GPU show of what it does: refreshed at intervals, averaged over a window, a little noisy."""

from __future__ import annotations

from math import floor

import numpy as np

from wattune.physics.gpu_model import GpuModel
from wattune.physics.timeline import Timeline

UTILISATION_S = 1 / 6
"""NVML's documentation promises a sampling period from 1/6 s to 1 s; this is the shorter."""

# What a sensor looks at whose window is not known.
_INSTANT_S = 0.001

# A time that was reached by adding up may lie a rounding error below the refresh that it stands for.
_ROUNDING_S = 1e-9


def last_refresh_s(time_s: float, period_s: float | None) -> float:
    """The last refresh at or before a time; the time itself where the sensor never rests."""
    return floor((time_s + _ROUNDING_S) / period_s) * period_s if period_s else time_s


def shown_energy_j(model: GpuModel, timeline: Timeline, time_s: float) -> float:
    """The energy counter, which moves at its refreshes only."""
    return model.gain * timeline.totals(last_refresh_s(time_s, model.sensors.counter_period_s)).energy_j


def shown_power_w(model: GpuModel, timeline: Timeline, time_s: float, *, seed: int) -> float:
    """Mean power over the window that ended at the last refresh, the same for every look until the next refresh."""
    end_s = last_refresh_s(time_s, model.sensors.power_period_s)
    window_s = model.sensors.power_window_s or _INSTANT_S
    energy_j = timeline.totals(end_s).energy_j - timeline.totals(end_s - window_s).energy_j
    return max(model.gain * energy_j / window_s + model.noise_w * _noise(seed, end_s), 0.0)


def shown_utilisation(timeline: Timeline, time_s: float) -> tuple[float, float]:
    """Shares of the last window in which kernels ran and in which the memory was busy, 0 to 1."""
    end_s = last_refresh_s(time_s, UTILISATION_S)
    spent = timeline.totals(end_s).plus(timeline.totals(end_s - UTILISATION_S), -1.0)
    return (_share(spent.busy_s / UTILISATION_S), _share(spent.mem_busy_s / UTILISATION_S))


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _noise(seed: int, time_s: float) -> float:
    """A standard normal number that belongs to this refresh of this GPU."""
    return float(np.random.default_rng((seed, round(time_s * 1e6))).standard_normal())
