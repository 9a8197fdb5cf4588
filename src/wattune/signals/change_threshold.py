"""The threshold at which a cumulative sum counts as a change, by the noise.

Notation
    δ   the shift to be detected, in the unit of the values
    σ   long-run standard deviation: that of single values, raised by the correlation of neighbours
    k   slack, δ/2: the part of each residual that does not count
    h   threshold on the sum of residuals beyond the slack, once it has five values
    A   mean number of values until one sum alarms by chance
    L   mean number of values until a shift of δ is detected

Siegmund's approximation for normal values (Siegmund, "Sequential Analysis", 1985): with κ = k/σ and
b = 2κ(h/σ + 1.166), A = (exp b − b − 1)/(2κ²); a shift of δ is detected after about L = (h + 1.166 σ)/k.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, log

LEAST_SHIFT = 0.05
"""A twentieth of the time or of the power: a usual slowdown limit."""
PERIODS_PER_ALARM = 10_000
"""Fewer than one false alarm in so many periods."""
_SUMS = 6
"""Three quantities, each watched upward and downward."""
_MARGIN = 3.0
"""The noise is estimated and not quite normal, so the sums are designed for alarms that are this much rarer."""
_ENOUGH = 5
"""The least number of values of a change. A stall of three periods is none, and with heavy tails two or three outliers
in a row occur once in some ten thousand values, five hardly ever."""
_OVERSHOOT = 1.166
_FLOOR = 1.85
"""Times δ: single values count for 0.9 δ at most (`_CLIP`), so that three of them are no change once two usual ones
follow. With noise up to 2 % this decides, and alarms by chance are rarer than required."""
_CLIP = 1.4
"""Times δ: the most that one residual counts."""
_FOUND_IN_TIME = 1.6
"""δ/σ at which L is ten values, by the formulas above with the required A."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What to count and when to alarm, for one level of noise."""

    shift: float
    """δ: the least shift that is detected in ten values on average."""
    slack: float
    alarm: float
    clip: float
    """The most that a single residual counts."""
    noise: float

    def passed(self, total: float, values: int) -> bool:
        """Return whether a sum of so many values is a change."""
        return values >= _ENOUGH and total > self.alarm


def threshold(noise: float, *, least_shift: float = LEAST_SHIFT) -> Threshold:
    """Return the threshold for a noise; where ten values cannot show the least shift, for the shift that they can."""
    shift = max(least_shift, _FOUND_IN_TIME * noise)
    slack = shift / 2
    alarm = max(_FLOOR * shift, _alarm(slack / noise) * noise if noise > 0 else 0.0)
    return Threshold(shift, slack, alarm, max(_CLIP * shift, 3.0 * noise), noise)


@lru_cache(maxsize=4096)
def near_threshold(steps: int, least_shift: float) -> Threshold:
    """Return the threshold for a noise of e^(steps/20), cached: noise is never known better than to five percent."""
    return threshold(exp(steps / 20), least_shift=least_shift)


def _alarm(kappa: float) -> float:
    """Return h/σ at which A is as required."""
    target = 2 * kappa**2 * PERIODS_PER_ALARM * _SUMS * _MARGIN
    exponent = log(1 + target)
    exponent = log(1 + target + exponent)
    return max(exponent / (2 * kappa) - _OVERSHOOT, 0.0)
