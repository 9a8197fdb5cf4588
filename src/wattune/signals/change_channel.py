"""One quantity of a program, learned and then watched: pure, one value at a time.

Notation: x is how far a value is off what is usual: the logarithm of their ratio, or their difference for a share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, isfinite, log, sqrt
from statistics import fmean, median

from wattune.signals.change_threshold import Threshold, near_threshold

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
class FollowedLevel:
    """Where values are usually, as of `LEVEL_DELAY` values ago, and by how much that moves from value to value."""

    learned: float
    level: float
    slope: float = 0.0

    @classmethod
    def of(cls, points: Sequence[float]) -> FollowedLevel:
        """The level of some values, whatever a few of them do."""
        middle, most = median(points), 2 * max(scale(points), LEAST_NOISE)
        level = middle + fmean(_within(point - middle, most) for point in points)
        return cls(level, level)

    @property
    def now(self) -> float:
        """Where the next value should be."""
        return self.level + LEVEL_DELAY * self.slope

    def follow(self, value: float, *, gain: float, most: float) -> FollowedLevel:
        """The level after one more value, which counts as `most` off where it is more than that."""
        expected = self.level + self.slope
        off = _within(value - expected, most)
        return FollowedLevel(self.learned, expected + gain * off, self.slope + _SLOPE * gain * gain * off)


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


LEARN = 20
"""Values that make a reference: its level is then known to a quarter of the noise."""
KEPT = 40
"""Latest values that are kept, to tell how large a change is and to learn what comes after it."""


@dataclass(frozen=True, slots=True)
class CumulativeSum:
    """What values were off beyond the slack, added up since that last was nothing."""

    total: float = 0.0
    values: int = 0

    def add(self, off: float, slack: float) -> CumulativeSum:
        """The sum with one more value."""
        total = self.total + off - slack
        return CumulativeSum(total, self.values + 1) if total > 0 else NOTHING


NOTHING = CumulativeSum()


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual, and what speaks against its still being so."""

    level: FollowedLevel
    noise: Noise
    threshold: Threshold
    count: int
    """Of values since the beginning of learning."""
    offs: tuple[float, ...] = ()
    """x of the latest values, oldest first, each against the level of its time."""
    rise: CumulativeSum = NOTHING
    fall: CumulativeSum = NOTHING

    @property
    def alarm(self) -> CumulativeSum | None:
        """The sum that passed the threshold, if one did."""
        larger = self.rise if self.rise.total > self.fall.total else self.fall
        return larger if self.threshold.passed(larger.total, larger.values) else None


@dataclass(frozen=True, slots=True)
class Channel:
    """What is known of one quantity; without what is usual it is still being learned."""

    least_shift: float
    is_share: bool = False
    """Whether values are shares, which are compared by difference: a share may be nothing."""
    kept: tuple[float, ...] = ()
    """The latest values, as logarithms unless they are shares."""
    usual: Usual | None = None
    before: Noise | None = None
    """What noise there was before a change, while what comes after it is learned."""

    @property
    def level(self) -> float | None:
        """What is usual, in the unit of the values."""
        if self.usual is None:
            return None
        now = self.usual.level.now
        return now if self.is_share else exp(now)

    @property
    def drift(self) -> float | None:
        """How far that has moved since it was learned: a ratio less one, or points of a share."""
        return None if self.usual is None else self.gap(self.usual.level.now - self.usual.level.learned)

    @property
    def alarm(self) -> CumulativeSum | None:
        """The sum that passed the threshold, if one did."""
        return None if self.usual is None else self.usual.alarm

    def gap(self, off: float) -> float:
        """x as people say it: a ratio less one, or points of a share."""
        return off if self.is_share else exp(min(off, 50.0)) - 1

    def add(self, value: float | None, *, horizon: float) -> Channel:
        """The channel with one more value; one that is missing or makes no sense leaves it as it is.

        `horizon` is how many values the level remembers.
        """
        point = self._point(value)
        if point is None:
            return self
        kept = (*self.kept[1 - KEPT :], point)
        if self.usual is None:
            return self._learning(kept)
        return Channel(self.least_shift, self.is_share, kept, self._watching(self.usual, kept, horizon))

    def since(self, values: int) -> tuple[float, float] | None:
        """x of the latest values by their median, and its standard error; None where nothing is usual yet."""
        if self.usual is None or not values:
            return None
        latest = self.kept[-values:]
        # What is usual is a mean itself, of as many values as it remembers.
        error = self.usual.noise.sigma * sqrt(1 / len(latest) + 1 / min(self.usual.count, KEPT))
        return median(latest) - self.usual.level.now, error

    def relearn(self, values: int) -> Channel:
        """The channel as it begins anew with its latest values."""
        before = self.before if self.usual is None else self.usual.noise
        fresh = Channel(self.least_shift, self.is_share, before=before)
        return fresh._learning(self.kept[-values:]) if values else fresh

    def resumed(self) -> Channel:
        """The channel with what is usual and nothing against it."""
        if self.usual is None:
            return self
        return replace(self, usual=replace(self.usual, rise=NOTHING, fall=NOTHING))

    def _learning(self, kept: tuple[float, ...]) -> Channel:
        if len(kept) < LEARN:
            return replace(self, kept=kept)
        points = kept[-LEARN:]
        early, late = points[: LEARN // 2], points[LEARN // 2 :]
        spread = max(scale(early), scale(late), LEAST_NOISE)
        if abs(median(late) - median(early)) > max(self.least_shift / 2, 1.5 * spread):
            # It changed while it was being learned: what came before is forgotten.
            return replace(self, kept=late)
        noise = Noise.of(points, self.before)
        usual = Usual(FollowedLevel.of(points), noise, self._threshold(noise), LEARN)
        return Channel(self.least_shift, self.is_share, kept, usual)

    def _watching(self, usual: Usual, kept: tuple[float, ...], horizon: float) -> Usual:
        """What is usual after the last of the values."""
        limit, count = usual.threshold, usual.count + 1
        off = kept[-1] - usual.level.now
        counted = min(max(off, -limit.clip), limit.clip)
        level, noise, offs = usual.level, usual.noise, (*usual.offs[-NOISE_DELAY:], off)
        if count > LEARN + LEVEL_DELAY:
            # By the slack at most, so that drift is followed and odd values hardly.
            gain = 1 / min(count - LEVEL_DELAY, horizon)
            level = level.follow(kept[-1 - LEVEL_DELAY], gain=gain, most=limit.slack)
        if len(offs) > NOISE_DELAY:
            noise = noise.follow(offs[0])
        rise, fall = usual.rise.add(counted, limit.slack), usual.fall.add(-counted, limit.slack)
        return Usual(level, noise, self._threshold(noise), count, offs, rise, fall)

    def _threshold(self, noise: Noise) -> Threshold:
        return near_threshold(round(20 * log(max(noise.sigma, LEAST_NOISE))), self.least_shift)

    def _point(self, value: float | None) -> float | None:
        if value is None or not isfinite(value):
            return None
        if self.is_share:
            return value if 0 <= value <= 1 else None
        return log(value) if value > 0 else None
