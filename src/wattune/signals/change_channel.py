"""One quantity of a program: its usual level and noise are learned, then changes are detected, one value at a time.

Notation: x is the residual of a value against the usual level: the logarithm of their ratio, or for a share their
difference.

The threshold at which a cumulative sum counts as a change:

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import exp, isfinite, log, sqrt
from statistics import fmean, median

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
    """The parameters of a cumulative sum for one level of noise."""

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


LEVEL_DELAY, NOISE_DELAY = 10, 20
"""The age, in values, of what the level and the noise learn from."""
LEAST_NOISE = 1e-4
_SLOPE = 0.25
"""Gain of the slope over the squared gain of the level: the pair then neither rings nor lags more than it must."""
_WINSOR = 3.0
"""Standard deviations beyond which a value counts no more for the variance, so that outliers do not widen it."""
_WINSORED = 0.995
"""The variance of standard normal values that were cut off there."""
_NOISE_HORIZON = 400
_MOST_BEFORE = 60
"""The weight, in values, of the noise before a change."""
_MOST_PHI = 0.9


@dataclass(frozen=True, slots=True)
class FollowedLevel:
    """The usual level, as of `LEVEL_DELAY` values ago, and its slope from value to value."""

    level: float
    slope: float = 0.0

    @classmethod
    def of(cls, points: Sequence[float]) -> FollowedLevel:
        """Estimate the level of some values, robust against a few outliers."""
        middle, most = median(points), 2 * max(scale(points), LEAST_NOISE)
        level = middle + fmean(_within(point - middle, most) for point in points)
        return cls(level)

    @property
    def now(self) -> float:
        """The expected next value."""
        return self.level + LEVEL_DELAY * self.slope

    def follow(self, value: float, *, gain: float, most: float) -> FollowedLevel:
        """Follow one more value, whose residual counts for `most` at most."""
        expected = self.level + self.slope
        residual = _within(value - expected, most)
        return FollowedLevel(expected + gain * residual, self.slope + _SLOPE * gain * gain * residual)


@dataclass(frozen=True, slots=True)
class Noise:
    """The variance of values around their level, and the covariance of neighbours."""

    variance: float
    covariance: float
    count: int
    """Number of values."""
    last: float = 0.0

    @classmethod
    def of(cls, points: Sequence[float], before: Noise | None = None) -> Noise:
        """Estimate the noise of some values, with that before a change: a program's noise is much the same after it."""
        middle, most = median(points), _WINSOR * max(scale(points), LEAST_NOISE)
        residuals = [_within(point - middle, most) for point in points]
        mean, count = sum(residuals) / len(residuals), len(residuals)
        variance = sum((residual - mean) ** 2 for residual in residuals) / (count - 1) / _WINSORED
        covariance = sum((one - mean) * (two - mean) for one, two in pairwise(residuals)) / (count - 1)
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
        """Autocorrelation of neighbours less what chance easily makes of so many values, 0 to 0.9."""
        chance = 0.5 / sqrt(min(self.count, _NOISE_HORIZON))
        return min(max(self.covariance / self.variance - chance, 0.0), _MOST_PHI)

    @property
    def sigma(self) -> float:
        """Long-run standard deviation, raised by its relative error of 1/√(2n), since few values underestimate it."""
        phi = self.phi
        return (1 + 1 / sqrt(2 * self.count)) * sqrt(self.variance * (1 + phi) / (1 - phi))

    def follow(self, residual: float) -> Noise:
        """Take in the residual of one more value against the level of its time."""
        cut = _within(residual, _WINSOR * sqrt(self.variance))
        gain = 1 / min(self.count + 1, _NOISE_HORIZON)
        return Noise(
            max(self.variance + gain * (cut * cut / _WINSORED - self.variance), LEAST_NOISE**2),
            self.covariance + gain * (cut * self.last / _WINSORED - self.covariance),
            self.count + 1,
            cut,
        )


def scale(points: Sequence[float]) -> float:
    """Estimate the standard deviation, robust against a few outliers."""
    middle = median(points)
    return 1.4826 * median(abs(point - middle) for point in points)


def _within(value: float, most: float) -> float:
    return min(max(value, -most), most)


LEARN = 20
"""Values that a reference is learned from: its level is then known to a quarter of the noise."""
KEPT = 40
"""Latest values that are kept, to size a change and to learn what comes after it."""


@dataclass(frozen=True, slots=True)
class CumulativeSum:
    """The sum of residuals beyond the slack, since it was last zero."""

    total: float = 0.0
    values: int = 0

    def add(self, residual: float, slack: float) -> CumulativeSum:
        """Return the sum with one more residual."""
        total = self.total + residual - slack
        return CumulativeSum(total, self.values + 1) if total > 0 else ZERO


ZERO = CumulativeSum()


@dataclass(frozen=True, slots=True)
class Reference:
    """The usual level and noise, and the evidence that they changed."""

    level: FollowedLevel
    noise: Noise
    threshold: Threshold
    count: int
    """Values since the beginning of learning."""
    residuals: tuple[float, ...] = ()
    """x of the latest values, oldest first, each against the level of its time."""
    rise: CumulativeSum = ZERO
    fall: CumulativeSum = ZERO

    @property
    def alarm(self) -> CumulativeSum | None:
        """The sum that passed the threshold, if one did."""
        larger = self.rise if self.rise.total > self.fall.total else self.fall
        return larger if self.threshold.passed(larger.total, larger.values) else None


@dataclass(frozen=True, slots=True)
class Channel:
    """One quantity; while `reference` is None it is still being learned."""

    least_shift: float
    is_share: bool = False
    """True for shares, which are compared by difference, since they may be zero."""
    kept: tuple[float, ...] = ()
    """The latest values, as logarithms unless they are shares."""
    reference: Reference | None = None
    before: Noise | None = None
    """The noise before a change, while what comes after it is learned."""

    @property
    def level(self) -> float | None:
        """The usual value, in the unit of the values."""
        if self.reference is None:
            return None
        now = self.reference.level.now
        return now if self.is_share else exp(now)

    @property
    def alarm(self) -> CumulativeSum | None:
        return None if self.reference is None else self.reference.alarm

    def gap(self, residual: float) -> float:
        """Convert x to a ratio less one, or for a share to points."""
        return residual if self.is_share else exp(min(residual, 50.0)) - 1

    def add(self, value: float | None, *, horizon: float) -> Channel:
        """Take in one more value; a missing or impossible one is ignored.

        `horizon` is how many values the level remembers.
        """
        point = self._point(value)
        if point is None:
            return self
        kept = (*self.kept[1 - KEPT :], point)
        if self.reference is None:
            return self._learning(kept)
        return Channel(self.least_shift, self.is_share, kept, self._watching(self.reference, kept, horizon))

    def since(self, values: int) -> tuple[float, float] | None:
        """Return x of the latest values by their median, and its standard error; None while still learning."""
        if self.reference is None or not values:
            return None
        latest = self.kept[-values:]
        # The reference is a mean itself, of as many values as it remembers.
        error = self.reference.noise.sigma * sqrt(1 / len(latest) + 1 / min(self.reference.count, KEPT))
        return median(latest) - self.reference.level.now, error

    def relearn(self, values: int) -> Channel:
        """Forget the reference and learn again from the latest values."""
        before = self.before if self.reference is None else self.reference.noise
        fresh = Channel(self.least_shift, self.is_share, before=before)
        return fresh._learning(self.kept[-values:]) if values else fresh

    def resumed(self) -> Channel:
        """Keep the reference and clear the evidence against it."""
        if self.reference is None:
            return self
        return replace(self, reference=replace(self.reference, rise=ZERO, fall=ZERO))

    def _learning(self, kept: tuple[float, ...]) -> Channel:
        if len(kept) < LEARN:
            return replace(self, kept=kept)
        points = kept[-LEARN:]
        early, late = points[: LEARN // 2], points[LEARN // 2 :]
        spread = max(scale(early), scale(late), LEAST_NOISE)
        if abs(median(late) - median(early)) > max(self.least_shift / 2, 1.5 * spread):
            # It changed while it was being learned: forget what came before.
            return replace(self, kept=late)
        noise = Noise.of(points, self.before)
        reference = Reference(FollowedLevel.of(points), noise, self._threshold(noise), LEARN)
        return Channel(self.least_shift, self.is_share, kept, reference)

    def _watching(self, before: Reference, kept: tuple[float, ...], horizon: float) -> Reference:
        """Update the reference and its evidence with the last of the values."""
        limit, count = before.threshold, before.count + 1
        residual = kept[-1] - before.level.now
        counted = min(max(residual, -limit.clip), limit.clip)
        level, noise, residuals = before.level, before.noise, (*before.residuals[-NOISE_DELAY:], residual)
        if count > LEARN + LEVEL_DELAY:
            # By the slack at most, so that drift is followed and outliers hardly.
            gain = 1 / min(count - LEVEL_DELAY, horizon)
            level = level.follow(kept[-1 - LEVEL_DELAY], gain=gain, most=limit.slack)
        if len(residuals) > NOISE_DELAY:
            noise = noise.follow(residuals[0])
        rise, fall = before.rise.add(counted, limit.slack), before.fall.add(-counted, limit.slack)
        return Reference(level, noise, self._threshold(noise), count, residuals, rise, fall)

    def _threshold(self, noise: Noise) -> Threshold:
        return near_threshold(round(20 * log(max(noise.sigma, LEAST_NOISE))), self.least_shift)

    def _point(self, value: float | None) -> float | None:
        if value is None or not isfinite(value):
            return None
        if self.is_share:
            return value if 0 <= value <= 1 else None
        return log(value) if value > 0 else None
