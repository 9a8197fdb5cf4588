"""What is usual: a level that is followed slowly, and noise around it; pure, one value at a time.

Both learn from values so old that a change in them would have been found. Fresh values would hide a change, which looks
like drift or noise at first.

Notation
    x   how far a value is off the level
    v   variance of x;  r  covariance of neighbouring x;  φ = r/v
    σ   long-run standard deviation, √(v·(1 + φ)/(1 − φ)): what a mean of n values scatters by, times √n
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean, median

LEVEL_DELAY, NOISE_DELAY = 10, 20
"""How many values old they are that the level and the noise learn from."""
LEAST_NOISE = 1e-4
_SLOPE = 0.25
"""Gain of the slope over the squared gain of the level: the pair then neither rings nor lags more than it must."""
_WINSOR = 3.0
"""Standard deviations beyond which a value counts no more for the variance: odd ones do not widen it."""
_WINSORED = 0.995
"""The variance of standard normal values that were cut off there."""
_NOISE_HORIZON = 400
_MOST_BEFORE = 60
"""Values that the noise before a change counts for after it."""
_MOST_PHI = 0.9


@dataclass(frozen=True, slots=True)
class Level:
    """Where values are usually, as of `LEVEL_DELAY` values ago, and by how much that moves from value to value."""

    learned: float
    level: float
    slope: float = 0.0

    @classmethod
    def of(cls, points: Sequence[float]) -> Level:
        """The level of some values, whatever a few of them do."""
        middle, most = median(points), 2 * max(scale(points), LEAST_NOISE)
        level = middle + fmean(_within(point - middle, most) for point in points)
        return cls(level, level)

    @property
    def now(self) -> float:
        """Where the next value should be."""
        return self.level + LEVEL_DELAY * self.slope

    def follow(self, value: float, *, gain: float, most: float) -> Level:
        """The level after one more value, which counts as `most` off where it is more than that."""
        expected = self.level + self.slope
        off = _within(value - expected, most)
        return Level(self.learned, expected + gain * off, self.slope + _SLOPE * gain * gain * off)


@dataclass(frozen=True, slots=True)
class Noise:
    """How far values scatter around their level, and how far neighbours do so alike."""

    variance: float
    covariance: float
    count: int
    """Of how many values that is."""
    last: float = 0.0

    @classmethod
    def of(cls, points: Sequence[float], before: Noise | None = None) -> Noise:
        """The noise of some values, with what it was before a change: a program's noise is much the same after it."""
        middle, most = median(points), _WINSOR * max(scale(points), LEAST_NOISE)
        offs = [_within(point - middle, most) for point in points]
        mean, count = sum(offs) / len(offs), len(offs)
        variance = sum((off - mean) ** 2 for off in offs) / (count - 1) / _WINSORED
        covariance = sum((one - mean) * (two - mean) for one, two in pairwise(offs)) / (count - 1)
        if before is None:
            return cls(max(variance, LEAST_NOISE**2), covariance, count)
        share = 1 / (1 + min(before.count, _MOST_BEFORE) / count)
        return cls(
            max(before.variance + share * (variance - before.variance), LEAST_NOISE**2),
            before.covariance + share * (covariance - before.covariance),
            count,
        )

    @property
    def phi(self) -> float:
        """How far neighbouring values are alike beyond what chance easily makes of so many, 0 to 0.9."""
        chance = 0.5 / sqrt(min(self.count, _NOISE_HORIZON))
        return min(max(self.covariance / self.variance - chance, 0.0), _MOST_PHI)

    @property
    def sigma(self) -> float:
        """σ, raised by its own relative error of 1/√(2n): of few values it may be larger than it seems."""
        phi = self.phi
        return (1 + 1 / sqrt(2 * self.count)) * sqrt(self.variance * (1 + phi) / (1 - phi))

    def follow(self, off: float) -> Noise:
        """The noise after one more value that was so far off the level of its time."""
        cut = _within(off, _WINSOR * sqrt(self.variance))
        gain = 1 / min(self.count + 1, _NOISE_HORIZON)
        return Noise(
            max(self.variance + gain * (cut * cut / _WINSORED - self.variance), LEAST_NOISE**2),
            self.covariance + gain * (cut * self.last / _WINSORED - self.covariance),
            self.count + 1,
            cut,
        )


def scale(points: Sequence[float]) -> float:
    """The standard deviation of most of the points, whatever a few do."""
    middle = median(points)
    return 1.4826 * median(abs(point - middle) for point in points)


def _within(value: float, most: float) -> float:
    return min(max(value, -most), most)
