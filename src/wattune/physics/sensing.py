"""What the sensors show of a GPU that was stepped through time, all refreshes at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.core.errors import NotSupported
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.played import Played
from wattune.physics.sensor import counter_period_s


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A sensor's refreshes: when, and what it showed from then on."""

    time_s: Floats
    value: Floats


def power_samples(model: GpuModel, played: Played, *, seed: int = 0) -> Samples:
    """Every value that the power sensor showed: the mean over its window, with gain, offset and noise."""
    time_s = _refreshes(played, model.sensors.power_period_s, "power sensor")
    window_s = model.sensors.power_window_s or model.sensors.power_period_s or 0.0
    mean_w = _spent_before(played, time_s, window_s) / window_s
    noise_w = model.noise_w * np.random.default_rng(seed).standard_normal(len(time_s))
    return Samples(time_s, np.maximum(model.gain * mean_w + model.offset_w + noise_w, 0.0))


def counter_samples(model: GpuModel, played: Played) -> Samples:
    """Every value of the energy counter, from 0 at the beginning; a part-time one sees its window of each period."""
    period_s = counter_period_s(model)
    time_s = _refreshes(played, period_s, "energy counter")
    window_s = model.counter_window_s
    if window_s is None or not period_s:
        spent_j = played.energy_at(time_s) - played.energy_j[0]
    else:
        spent_j = np.cumsum(_spent_before(played, time_s, window_s) * period_s / window_s)
    return Samples(time_s, model.gain * spent_j + model.offset_w * (time_s - played.start_s[0]))


def _refreshes(played: Played, period_s: float | None, what: str) -> Floats:
    if not period_s:
        raise NotSupported(f"the {what} of this GPU has no known refresh", hint="give its model a period")
    first, last = played.start_s[0] / period_s, played.start_s[-1] / period_s
    return np.asarray(np.arange(np.floor(first) + 1, np.floor(last + 1e-9) + 1) * period_s)


def _spent_before(played: Played, time_s: Floats, window_s: float) -> Floats:
    return played.energy_at(time_s) - played.energy_at(time_s - window_s)
