"""What is read from a simulated GPU that draws a known load: its sensors' refreshes, windows and noise, and polls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from wattune.benchmarks.period.loads import Load
from wattune.physics.gpu_model import GpuModel
from wattune.physics.sensor import UTILISATION_S
from wattune.signals.samples import Floats, PowerSamples

# A poll of a driver comes early or late by some percent of its interval.
_POLL_JITTER = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensing:
    """How a load is looked at."""

    refresh_s: float
    window_s: float
    noise_w: float
    poll_s: float
    drift: float = 0.0
    """By how much power has risen once the part is warm."""
    missing: float = 0.0
    """The share of polls that are lost."""

    @classmethod
    def of(cls, model: GpuModel, *, poll_s: float) -> Sensing:
        """As the sensors of a part do."""
        refresh_s = model.sensors.power_period_s or 0.02
        return cls(
            refresh_s=refresh_s,
            window_s=model.sensors.power_window_s or refresh_s,
            noise_w=model.noise_w,
            poll_s=poll_s,
        )

    @property
    def finest_s(self) -> float:
        """The shortest period that can be seen so: two refreshes, or two polls where these are rarer."""
        return 2 * max(self.refresh_s, self.poll_s)


# Time constant of a cooler (physics: 20 to 60 s).
_WARMING_S = 40.0


def polled(load: Load, sensing: Sensing, seconds: float, *, random: Generator) -> PowerSamples:
    """What polling shows of the load over so many seconds."""
    refreshes_s = np.arange(random.uniform(0, sensing.refresh_s), seconds, sensing.refresh_s)
    shown_w = _mean(load, load.power_w, refreshes_s, sensing.window_s)
    shown_w = shown_w * (1 + sensing.drift * (1 - np.exp(-refreshes_s / _WARMING_S)))
    shown_w = shown_w + sensing.noise_w * random.standard_normal(len(refreshes_s))
    looks_s = np.arange(random.uniform(0, UTILISATION_S), seconds, UTILISATION_S)
    busy, mem_busy = (_mean(load, values, looks_s, UTILISATION_S) for values in (load.busy, load.mem_busy))
    first_s = max(refreshes_s[0], looks_s[0])
    steps = sensing.poll_s * np.clip(1 + _POLL_JITTER * random.standard_normal(int(seconds / sensing.poll_s)), 0.5, 3)
    polls_s = np.cumsum(steps)
    polls_s = polls_s[(polls_s > first_s) & (polls_s < seconds)]
    polls_s = polls_s[random.random(len(polls_s)) >= sensing.missing]
    power = np.searchsorted(refreshes_s, polls_s, side="right") - 1
    look = np.searchsorted(looks_s, polls_s, side="right") - 1
    # The driver tells power to 10 mW and utilisation to a percent.
    return PowerSamples(polls_s, np.round(shown_w[power], 2), np.round(busy[look], 2), np.round(mem_busy[look], 2))


def _mean(load: Load, values: Floats, end_s: Floats, window_s: float) -> Floats:
    """The mean of a quantity over the windows that end then."""
    ends_s = np.append(0.0, np.cumsum(load.duration_s))
    totals = np.append(0.0, np.cumsum(load.duration_s * values))
    start_s = np.maximum(end_s - window_s, 0.0)
    spent = np.interp(end_s, ends_s, totals) - np.interp(start_s, ends_s, totals)
    return np.asarray(spent / np.maximum(end_s - start_s, 1e-9))
