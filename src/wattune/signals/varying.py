"""Steps whose length varies: their mean and spread, from where power rises through a level.

Steps that vary by a tenth and more have no lines in the spectrum, but each still begins with a rise out of the lull
before it. The level is the one whose rises come most evenly. Without steps, rises come as by chance: the spread of the
times between them is above half of their mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from wattune.signals.samples import Floats, SensorUpdates

# Steps that vary by up to the first are told from chance; by up to the second where so many other levels have the same
# mean within this share: else some of the rises are missed.
_CLEAR_SPREAD, _MOST_SPREAD, _LEAST_AGREE, _SAME_MEAN = 0.3, 0.45, 2, 0.04
# From here on there is no sign of steps at all.
_CHANCE_SPREAD = 0.5
# Levels that are tried, as shares of the range of power, and how far power has to pass them to count.
_LEVELS, _PAST = (0.15, 0.3, 0.5, 0.7, 0.85), 0.1
_RANGE = (0.03, 0.97)
# Fewer rises may come evenly by chance.
_LEAST_STEPS = 20
# Refreshes per step, on the average: fewer are a beat of something faster, or noise.
_LEAST_REFRESHES = 5.0
# Times this many medians long are stalls, unless there are many.
_STALL, _MOST_STALLS = 3.0, 0.05
# Bins of a step, the least share of the variance that a fold at the steps explains, and its standard deviations.
_BINS, _SAYS, _SURE = 8, 0.1, 4.0
_T95 = 1.96


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VaryingSteps:
    """Steps by their beginnings."""

    begin_s: Floats
    mean_s: float
    error_s: float
    """Half-width of the 95 % interval of the mean."""
    spread: float
    """Standard deviation of a step's length over its mean."""
    agree: int = 0
    """Other levels whose rises have the same mean."""

    @property
    def is_clear(self) -> bool:
        """Return whether the mean can be trusted."""
        return self.spread <= (_MOST_SPREAD if self.agree >= _LEAST_AGREE else _CLEAR_SPREAD)

    def explain(self, updates: SensorUpdates, *, late_s: float = 0.0) -> float:
        """Return the share of a sensor's variance that repeats with the steps; 0 where that may be chance.

        Each step is stretched to the same length, so that a step that takes longer does not blur the others. `late_s`
        is how long after the middle of its window a value comes.
        """
        time_s = updates.time_s - late_s
        step = np.searchsorted(self.begin_s, time_s, side="right") - 1
        inside = (step >= 0) & (step < len(self.begin_s) - 1)
        if inside.sum() < 4 * _BINS:
            return 0.0
        first_s, value = self.begin_s[step[inside]], updates.value[inside]
        phase = (time_s[inside] - first_s) / (self.begin_s[step[inside] + 1] - first_s)
        place = np.minimum((phase * _BINS).astype(np.int64), _BINS - 1)
        mean = np.bincount(place, weights=value, minlength=_BINS) / np.maximum(np.bincount(place, minlength=_BINS), 1)
        total = float(((value - value.mean()) ** 2).sum())
        left = float(((value - mean[place]) ** 2).sum())
        if total <= 0:
            return 0.0
        share = 1 - left / (len(value) - _BINS) / (total / (len(value) - 1))
        return share if share > _SAYS + _SURE * sqrt(2 * _BINS) / len(value) else 0.0


def varying_steps(power: SensorUpdates) -> VaryingSteps | None:
    """Find steps of any length; None where rises come as by chance or too rarely."""
    low, high = np.quantile(power.value, _RANGE)
    found = [_steps(power, low + level * (high - low), _PAST * (high - low)) for level in _LEVELS]
    known = [steps for steps in found if steps is not None]
    if not known:
        return None
    best = min(known, key=lambda steps: steps.spread)
    return replace(best, agree=sum(abs(own.mean_s / best.mean_s - 1) < _SAME_MEAN for own in known) - 1)


def _steps(power: SensorUpdates, level: float, past: float) -> VaryingSteps | None:
    begin_s = _rises_s(power, level, past)
    lengths_s = np.diff(begin_s)
    if len(lengths_s) < _LEAST_STEPS:
        return None
    stalled = lengths_s > _STALL * float(np.median(lengths_s))
    if stalled.mean() <= _MOST_STALLS:
        lengths_s = lengths_s[~stalled]
    mean_s = float(lengths_s.mean())
    # A rise lies anywhere between two refreshes, which adds to the spread.
    variance = max(float(lengths_s.var()) - power.refresh_s**2 / 6, 0.0)
    spread = sqrt(variance) / mean_s
    if mean_s < _LEAST_REFRESHES * power.refresh_s or spread > _CHANCE_SPREAD:
        return None
    error_s = _T95 * sqrt(float(lengths_s.var()) / len(lengths_s))
    return VaryingSteps(begin_s=begin_s, mean_s=mean_s, error_s=error_s, spread=spread)


def _rises_s(power: SensorUpdates, level: float, past: float) -> Floats:
    """Return when power rises through a level, from clearly below to clearly above it."""
    clear = np.flatnonzero(np.abs(power.value - level) > past)
    above = power.value[clear] > level
    return np.asarray(power.time_s[clear[1:][above[1:] & ~above[:-1]]])
