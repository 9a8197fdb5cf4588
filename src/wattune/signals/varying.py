"""Steps whose length varies: their mean and spread, from where power rises through a level.

Steps that vary by a tenth and more have no lines in the spectrum, but each still begins with a rise, and all have the
same shape once they are stretched to the same length. The level is the one between whose rises the shape repeats best.
Without steps, or where some rises are missed and others come twice in a step, the shape explains less than half of the
variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from wattune.signals.samples import Flags, Floats, PowerSamples, SensorUpdates, median, quantiles

# The least share that the shape of clear steps explains: missed rises hide in the spread, so it rises with the spread,
# along a line from one value to the other. Beyond `_MOST_SPREAD` steps are of two kinds.
_CLEAR_SHAPE, _CLEAREST_SHAPE, _CLEARER, _PER_SPREAD, _MOST_SPREAD = 0.6, 0.8, 0.1, 1.5, 0.8
# A sign of steps: random power has a shape of up to this.
_SOME_SHAPE = 0.47
# Levels that are tried, as shares of the range of power, and how far power has to pass them to count.
_LEVELS, _PAST = tuple(tenth / 10 for tenth in range(1, 10)), 0.1
_RANGE = (0.03, 0.97)
# Fewer rises may have the same shape in between by chance.
_LEAST_STEPS = 20
# Refreshes per step, on the average: fewer are a beat of something faster, or noise.
_LEAST_REFRESHES = 5.0
# A pause: low power for longer than a second and than so many medians, and a larger share of the step by so much.
_PAUSE_S, _PAUSE, _MORE = 1.0, 3.0, 0.25
# Times this many medians long are stalls too; where more of them than this share are pauses or stalls, none is.
_STALL, _MOST_STALLS = 6.0, 0.15
# Points of a stretched step.
_POINTS = 16
# Bins of a step, the least share of the variance that a fold at the steps explains, and its standard deviations.
_BINS, _SAYS, _SURE = 8, 0.1, 4.0
_T95 = 1.96


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VaryingSteps:
    """Steps by their beginnings."""

    begin_s: Floats
    stalled: Flags
    """The steps with a pause in them."""
    mean_s: float
    error_s: float
    """Half-width of the 95 % interval of the mean."""
    spread: float
    """Standard deviation of a step's length over its mean."""
    shape: float
    """The share of the variance of power that steps stretched to the same length have in common."""

    @property
    def is_clear(self) -> bool:
        """Return whether the mean can be trusted."""
        least = min(max(_CLEAR_SHAPE, _CLEARER + _PER_SPREAD * self.spread), _CLEAREST_SHAPE)
        return self.spread <= _MOST_SPREAD and self.shape >= least

    @property
    def is_sign(self) -> bool:
        """Return whether power varies unlike by chance."""
        return self.is_clear or self.shape >= _SOME_SHAPE

    def explain(self, updates: SensorUpdates, *, late_s: float = 0.0) -> float:
        """Return the share of a sensor's variance that repeats with the steps; 0 where that may be chance.

        Each step is stretched to the same length, so that a step that takes longer does not blur the others. `late_s`
        is how long after the middle of its window a value comes.
        """
        time_s = updates.time_s - late_s
        step = np.searchsorted(self.begin_s, time_s, side="right") - 1
        inside = (step >= 0) & (step < len(self.begin_s) - 1)
        inside[inside] = ~self.stalled[step[inside]]
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


def varying_steps(power: SensorUpdates, others: tuple[PowerSamples, ...] = ()) -> VaryingSteps | None:
    """Find steps of any length; None where power rises too rarely or too often.

    Where one GPU does not show them clearly, they are searched for in the mean power of all: GPUs wait for each other
    at the end of a step, and what each does before that is averaged out.
    """
    own = _best_steps(power)
    known = [other for other in (other.in_order() for other in others) if len(other) >= _LEAST_STEPS]
    if not known or (own is not None and own.is_clear):
        return own
    mean_w = np.mean([power.value, *(np.interp(power.time_s, one.time_s, one.power_w) for one in known)], axis=0)
    together = _best_steps(replace(power, value=mean_w))
    return together if together is not None and together.is_clear else own


def _best_steps(power: SensorUpdates) -> VaryingSteps | None:
    low, high = quantiles(power.value, *_RANGE)
    found = (_steps(power, low + level * (high - low), _PAST * (high - low)) for level in _LEVELS)
    return max((steps for steps in found if steps is not None), key=lambda steps: steps.shape, default=None)


def _steps(power: SensorUpdates, level: float, past: float) -> VaryingSteps | None:
    begin_s = _rises_s(power, level, past)
    if len(begin_s) <= _LEAST_STEPS:
        return None
    stalled = _stalled(power, level, begin_s)
    lengths_s = np.diff(begin_s)[~stalled]
    mean_s = float(lengths_s.mean())
    if mean_s < _LEAST_REFRESHES * power.refresh_s:
        return None
    # A rise lies anywhere between two refreshes, which adds to the spread.
    spread = sqrt(max(float(lengths_s.var()) - power.refresh_s**2 / 6, 0.0)) / mean_s
    error_s = _T95 * sqrt(float(lengths_s.var()) / len(lengths_s))
    shape = _shape(power, begin_s[:-1][~stalled], lengths_s)
    return VaryingSteps(begin_s=begin_s, stalled=stalled, mean_s=mean_s, error_s=error_s, spread=spread, shape=shape)


def _rises_s(power: SensorUpdates, level: float, past: float) -> Floats:
    """Return when power rises through a level, from clearly below to clearly above it."""
    clear = np.flatnonzero(np.abs(power.value - level) > past)
    above = power.value[clear] > level
    return np.asarray(power.time_s[clear[1:][above[1:] & ~above[:-1]]])


def _stalled(power: SensorUpdates, level: float, begin_s: Floats) -> Flags:
    """Mark the steps with a pause at their end, such as a checkpoint; a long step has a long lull, but no larger share.

    None is marked where there are many.
    """
    lengths_s = np.diff(begin_s)
    step = np.searchsorted(begin_s, power.time_s, side="right") - 1
    inside = (step >= 0) & (step < len(lengths_s))
    lasts_s = np.minimum(np.diff(power.time_s, append=power.time_s[-1]), _PAUSE * power.refresh_s)
    quiet_s = np.where(power.value < level, lasts_s, 0.0)[inside]
    lull_s = np.bincount(step[inside], weights=quiet_s, minlength=len(lengths_s))
    share = lull_s / lengths_s
    long = (lull_s > _PAUSE_S) & (lull_s > _PAUSE * median(lull_s)) & (share > median(share) + _MORE)
    stalled = long | (lengths_s > _STALL * median(lengths_s))
    return np.asarray(stalled if stalled.mean() <= _MOST_STALLS else np.zeros(len(stalled), dtype=np.bool_))


def _shape(power: SensorUpdates, begin_s: Floats, lengths_s: Floats) -> float:
    """Return the share of the variance that stretched steps have in common, adjusted for their number.

    It is the smaller of two: each step counts the same, which shows rises too many, or by its length, which shows
    rises that were missed.
    """
    place_s = begin_s[:, None] + lengths_s[:, None] * (np.arange(_POINTS) + 0.5) / _POINTS
    value = np.interp(place_s, power.time_s, power.value)
    return min(_common(value, np.ones(len(value))), _common(value, lengths_s))


def _common(value: Floats, weight: Floats) -> float:
    part = (weight / weight.sum())[:, None]
    mean = (part * value).sum(axis=0)
    total, left = float((part * (value - mean.mean()) ** 2).sum()), float((part * (value - mean) ** 2).sum())
    return 1 - left / total * len(value) / (len(value) - 1) if total > 0 else 0.0
