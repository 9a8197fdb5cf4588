"""What the sensors of a GPU show of what it does: refreshed at intervals, averaged over a window, a little noisy.

A reading is gain·P + offset + noise. The energy counter adds up what the sensor shows, without its noise. A part
without a counter shows what adding up its power readings gives, which moves when they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np

from wattune.core.errors import NotSupported
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.played import SteppedTrace
from wattune.physics.timeline import Timeline

UTILISATION_S = 1 / 6
"""NVML's documentation promises a sampling period from 1/6 s to 1 s; this is the shorter."""

# What a sensor looks at whose window is not known.
_INSTANT_S = 0.001

# A time that was reached by adding up may lie a rounding error below the refresh that it stands for.
_ROUNDING_S = 1e-9

# Refreshes that are looked at one by one before the rest of a long gap is taken at its true energy.
_MOST_REFRESHES = 4096


@dataclass(frozen=True, slots=True)
class SensorTrace:
    """What a counter that looks only at the end of each period had added up at one of its refreshes."""

    refresh: int = 0
    energy_j: float = 0.0


def last_refresh_s(time_s: float, period_s: float | None) -> float:
    """The last refresh at or before a time; the time itself where the sensor never rests."""
    return floor((time_s + _ROUNDING_S) / period_s) * period_s if period_s else time_s


def counter_period_s(model: GpuModel) -> float | None:
    """How often the energy moves: by the counter, or by the power readings that stand in for one."""
    return model.sensors.counter_period_s if model.has_counter else model.sensors.power_period_s


def shown_energy_j(model: GpuModel, timeline: Timeline, time_s: float, *, seen: SensorTrace | None = None) -> float:
    """The energy counter, which moves at its refreshes only; `seen` is what a part-time counter has added up."""
    at_s = last_refresh_s(time_s, counter_period_s(model))
    energy_j = timeline.totals(at_s).energy_j if seen is None else seen.energy_j
    return model.gain * energy_j + model.offset_w * max(at_s, 0.0)


def seen_until(model: GpuModel, timeline: Timeline, time_s: float, *, before: SensorTrace) -> SensorTrace:
    """What a part-time counter has added up at its last refresh, each window scaled to its period."""
    period_s, window_s = counter_period_s(model), model.counter_window_s
    if not period_s or not window_s:
        return before
    last = floor((time_s + _ROUNDING_S) / period_s)
    stop = min(last, before.refresh + _MOST_REFRESHES)
    energy_j = before.energy_j
    for refresh in range(before.refresh + 1, stop + 1):
        end_s = refresh * period_s
        looked_j = timeline.totals(end_s).energy_j - timeline.totals(end_s - window_s).energy_j
        energy_j += looked_j * period_s / window_s
    rest_j = timeline.totals(last * period_s).energy_j - timeline.totals(stop * period_s).energy_j
    return SensorTrace(last, energy_j + rest_j)


def shown_power_w(model: GpuModel, timeline: Timeline, time_s: float, *, seed: int) -> float:
    """Mean power over the window that ended at the last refresh, the same for every look until the next refresh."""
    end_s = last_refresh_s(time_s, model.sensors.power_period_s)
    window_s = model.sensors.power_window_s or _INSTANT_S
    energy_j = timeline.totals(end_s).energy_j - timeline.totals(end_s - window_s).energy_j
    shown_w = model.gain * energy_j / window_s + model.offset_w + model.noise_w * _noise(seed, end_s)
    return max(shown_w, 0.0)


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


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A sensor's refreshes: when, and what it showed from then on."""

    time_s: Floats
    value: Floats


def power_samples(model: GpuModel, played: SteppedTrace, *, seed: int = 0) -> Samples:
    """Every value that the power sensor showed: the mean over its window, with gain, offset and noise."""
    time_s = _refreshes(played, model.sensors.power_period_s, "power sensor")
    window_s = model.sensors.power_window_s or model.sensors.power_period_s or 0.0
    mean_w = _spent_before(played, time_s, window_s) / window_s
    noise_w = model.noise_w * np.random.default_rng(seed).standard_normal(len(time_s))
    return Samples(time_s, np.maximum(model.gain * mean_w + model.offset_w + noise_w, 0.0))


def counter_samples(model: GpuModel, played: SteppedTrace) -> Samples:
    """Every value of the energy counter, from 0 at the beginning; a part-time one sees its window of each period."""
    period_s = counter_period_s(model)
    time_s = _refreshes(played, period_s, "energy counter")
    window_s = model.counter_window_s
    if window_s is None or not period_s:
        spent_j = played.energy_at(time_s) - played.energy_j[0]
    else:
        spent_j = np.cumsum(_spent_before(played, time_s, window_s) * period_s / window_s)
    return Samples(time_s, model.gain * spent_j + model.offset_w * (time_s - played.start_s[0]))


def _refreshes(played: SteppedTrace, period_s: float | None, what: str) -> Floats:
    if not period_s:
        raise NotSupported(f"the {what} of this GPU has no known refresh", hint="give its model a period")
    first, last = played.start_s[0] / period_s, played.start_s[-1] / period_s
    return np.asarray(np.arange(np.floor(first) + 1, np.floor(last + 1e-9) + 1) * period_s)


def _spent_before(played: SteppedTrace, time_s: Floats, window_s: float) -> Floats:
    return played.energy_at(time_s) - played.energy_at(time_s - window_s)
