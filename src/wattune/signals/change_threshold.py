"""How large a cumulative sum must grow before it is a change, by the noise.

Notation
    δ   the shift to be found, in the unit of the values
    σ   long-run standard deviation: that of single values, raised by how far neighbours resemble each other
    k   slack, δ/2: what every value may be off without being counted
    h   threshold on the sum of what values are off beyond the slack, once it is made of five values
    A   mean number of values until one sum alarms by chance
    L   mean number of values until a shift of δ is found

Siegmund's approximation for normal values (Siegmund, "Sequential Analysis", 1985): with κ = k/σ and
b = 2κ(h/σ + 1.166), A = (exp b − b − 1)/(2κ²); a shift of δ is found after about L = (h + 1.166 σ)/k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, expm1, log

LEAST_SHIFT = 0.05
"""A twentieth of the time or of the power is what a slowdown promise is usually about."""
PERIODS_PER_ALARM = 10_000
"""Fewer than one false alarm in so many periods."""
_SUMS = 6
"""Three quantities, each watched upward and downward."""
_MARGIN = 3.0
"""The noise is estimated and not quite normal, so that the sums are laid out for so much rarer alarms."""
_ENOUGH = 5
"""Values that make a change, at least: half of what is promised. A stall of three periods is none, and where tails are
heavy, two or three odd values in a row come up once in some ten thousand, five hardly ever."""
_OVERSHOOT = 1.166
_FLOOR = 1.85
"""Times δ: single values count for 0.9 δ at most (`_CLIP`), so that three of them are no change once two usual ones
follow. With noise up to 2 % it is this that decides, and alarms by chance are rarer than asked."""
_CLIP = 1.4
"""Times δ that one value may be off as far as it counts."""
_FOUND_IN_TIME = 1.6
"""δ/σ at which the wait is ten values, by the formulas above with A as asked."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What to count and when to alarm, for one amount of noise."""

    shift: float
    """δ: the least shift that is found in ten values on average."""
    slack: float
    alarm: float
    clip: float
    """What a single value is off at most, as far as it counts."""
    noise: float

    def passed(self, total: float, values: int) -> bool:
        """Whether a sum of so many values is a change."""
        return values >= _ENOUGH and total > self.alarm

    @property
    def wait(self) -> float:
        """How many values it takes on average to find a shift of δ."""
        return (self.alarm + _OVERSHOOT * self.noise) / self.slack

    @property
    def values_per_alarm(self) -> float:
        """How many values pass on average until one sum alarms by chance; 1e12 stands for that and more."""
        return values_per_alarm(self.slack, self.alarm, noise=self.noise)


def threshold(noise: float, *, least_shift: float = LEAST_SHIFT) -> Threshold:
    """Slack and threshold at a noise; where ten values could not show the least shift, the shift that they can."""
    shift = max(least_shift, _FOUND_IN_TIME * noise)
    slack = shift / 2
    alarm = max(_FLOOR * shift, _alarm(slack / noise) * noise if noise > 0 else 0.0)
    return Threshold(shift, slack, alarm, max(_CLIP * shift, 3.0 * noise), noise)


@lru_cache(maxsize=4096)
def near_threshold(steps: int, least_shift: float) -> Threshold:
    """The threshold for a noise of e^(steps/20), kept: noise is never known better than to five percent."""
    return threshold(exp(steps / 20), least_shift=least_shift)


def values_per_alarm(slack: float, alarm: float, *, noise: float) -> float:
    """A of one sum; 1e12 stands for that and more."""
    if noise <= 0:
        return 1e12
    kappa = slack / noise
    exponent = 2 * kappa * (alarm / noise + _OVERSHOOT)
    return 1e12 if exponent > 40 else min((expm1(exponent) - exponent) / (2 * kappa**2), 1e12)


def _alarm(kappa: float) -> float:
    """h/σ at which A is what is asked."""
    target = 2 * kappa**2 * PERIODS_PER_ALARM * _SUMS * _MARGIN
    exponent = log(1 + target)
    exponent = log(1 + target + exponent)
    return max(exponent / (2 * kappa) - _OVERSHOOT, 0.0)
