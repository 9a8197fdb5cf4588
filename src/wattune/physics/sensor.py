"""Sensor readings of a GPU: refreshed at intervals, averaged over a window, with noise.

A reading is gain·P + offset + noise. The energy counter adds up the readings without noise. The energy of a GPU without
a counter is the sum of its power readings and changes when they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np

from wattune.physics.gpu_model import GpuModel
from wattune.physics.timeline import Timeline

UTILISATION_S = 1 / 6
"""NVML documents a sampling period from 1/6 s to 1 s; this is the shorter."""

# Window of a sensor whose window is not known.
_INSTANT_S = 0.001

# A time that is a sum may lie a rounding error below its refresh.
_ROUNDING_S = 1e-9

# Refreshes that are added up one by one; the rest of a longer gap counts its true energy.
_MOST_REFRESHES = 4096


@dataclass(frozen=True, slots=True)
class PartTimeCount:
    """State of a part-time counter, which measures only a window of each period, at one of its refreshes."""

    refresh: int = 0
    energy_j: float = 0.0


def last_refresh_s(time_s: float, period_s: float | None) -> float:
    """Return the last refresh at or before a time; the time itself for a continuous sensor."""
    return floor((time_s + _ROUNDING_S) / period_s) * period_s if period_s else time_s


def counter_period_s(model: GpuModel) -> float | None:
    """Return how often the energy changes: with the counter, or with the power readings that replace it."""
    return model.sensors.counter_period_s if model.has_counter else model.sensors.power_period_s


def shown_energy_j(
    model: GpuModel, timeline: Timeline, time_s: float, *, counted: PartTimeCount | None = None
) -> float:
    """Return the energy counter at its last refresh; `counted` is the state of a part-time counter."""
    at_s = last_refresh_s(time_s, counter_period_s(model))
    energy_j = timeline.totals(at_s).energy_j if counted is None else counted.energy_j
    return model.gain * energy_j + model.offset_w * max(at_s, 0.0)


def count_until(model: GpuModel, timeline: Timeline, time_s: float, *, before: PartTimeCount) -> PartTimeCount:
    """Advance a part-time counter to its last refresh; each window is scaled to its period."""
    period_s, window_s = counter_period_s(model), model.counter_window_s
    if not period_s or not window_s:
        return before
    last = floor((time_s + _ROUNDING_S) / period_s)
    stop = min(last, before.refresh + _MOST_REFRESHES)
    energy_j = before.energy_j
    for refresh in range(before.refresh + 1, stop + 1):
        end_s = refresh * period_s
        window_j = timeline.totals(end_s).energy_j - timeline.totals(end_s - window_s).energy_j
        energy_j += window_j * period_s / window_s
    rest_j = timeline.totals(last * period_s).energy_j - timeline.totals(stop * period_s).energy_j
    return PartTimeCount(last, energy_j + rest_j)


def shown_power_w(model: GpuModel, timeline: Timeline, time_s: float, *, seed: int) -> float:
    """Return the mean power over the window that ended at the last refresh."""
    end_s = last_refresh_s(time_s, model.sensors.power_period_s)
    window_s = model.sensors.power_window_s or _INSTANT_S
    energy_j = timeline.totals(end_s).energy_j - timeline.totals(end_s - window_s).energy_j
    shown_w = model.gain * energy_j / window_s + model.offset_w + model.noise_w * _noise(seed, end_s)
    return max(shown_w, 0.0)


def shown_utilisation(timeline: Timeline, time_s: float) -> tuple[float, float]:
    """Return the shares of the last window in which kernels ran and in which the memory was busy, 0 to 1."""
    end_s = last_refresh_s(time_s, UTILISATION_S)
    spent = timeline.totals(end_s).plus(timeline.totals(end_s - UTILISATION_S), -1.0)
    return (_share(spent.busy_s / UTILISATION_S), _share(spent.mem_busy_s / UTILISATION_S))


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _noise(seed: int, time_s: float) -> float:
    """Draw a standard normal number, the same for every reading of one refresh."""
    return float(np.random.default_rng((seed, round(time_s * 1e6))).standard_normal())
