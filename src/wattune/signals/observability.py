"""Whether a sensor could follow what it shows, or shows the image of something faster.

A sensor that refreshes every τ shows a load of frequency f, wherever f lies, at the image |f − k/τ| below 1/(2τ): a
square wave of 104 ms on a sensor of 101 ms looks like one of 3 s. From evenly spaced values alone no image can be told
from the real thing. Three things can tell:

* stamps that are not even: the right frequency fits them, its images do not;
* utilisation, which is refreshed at another rate and has its images elsewhere: what is real is where it should be;
* the shape: what is averaged over a part of a short cycle has few lines, so a long cycle with many is real.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.signals.comb import Comb, comb
from wattune.signals.grid import Grid
from wattune.signals.held import Fresh
from wattune.signals.samples import Floats, PowerSamples, Work
from wattune.signals.witness import LEAST_REFRESHES, Witness, witnesses

# Variation of power below this share of its mean is sensor noise and heat, and no work that comes and goes.
_STEADY = 0.01
# Correlation from one refresh to the next ones above which power moves slowly enough to be followed.
_FOLLOWED = 0.35
# Standard deviation of utilisation over its mean above which it says something of what the GPU does.
_MOVES = 0.05
# And above which it is too wide for the mean of something that comes and goes many times between two refreshes.
_WIDE = 0.25
# Correlation of power and utilisation above which they vary together.
_TOGETHER = 0.2
# Utilisation that stays above this says that kernels ran all the time; below the other, that none did.
_ALWAYS, _NEVER = 0.93, 0.05
# Power that swings by this share of its upper level, while the GPU idles in between, takes utilisation with it.
_DEEP = 0.35
# Images from beyond so many times the refresh rate are weak: a sensor averages them away, most or all.
_MOST_IMAGES = 2
# The share of utilisation's variance from which on it says something, and by how much another must be the larger.
_SAYS, _LARGER = 0.1, 1.25
POINT = 0.01
"""Utilisation is told to a percent: what swings by less says nothing."""
MORE_POINTS = 0.02
"""And what swings by less than this says little."""
# The most that is left of a load to which both sensors are blind in the same way: a square wave of 30 Hz, averaged over
# a sixth of a second.
_DEEP_POINTS = 0.05
# Power that swings by less than this share of its mean may be noise of the sensor, and by less than the other, what a
# sensor that averages over 100 ms leaves of a load of 30 Hz.
_WEAK, _CLEAR = 0.02, 0.03
# Where nothing but power was told, sensors this quick are trusted with cycles of so many refreshes, sharp or not:
# a load that they could not follow has steps of less than 50 ms, and they average most of it away.
_QUICK_S, _LEAST_QUICK = 0.025, 6.0
# A period of so many refreshes of utilisation is seen by it, and of so many is seen by it whole.
_SEEN_BY_UTILISATION, _WHOLE = 3.0, 6.0
# A share of the variance of utilisation that is as good as none.
_NOTHING = 0.03
# How much better one frequency must fit the stamps than its images.
_BETTER = 1.2
_CHANCE = 1e-3
# Lines of a cycle averaged over its larger part die out from the third on; these stand for a real one.
_HIGH_LINE = 3
_SHARP = 0.02
# A cycle shorter than this many refreshes has too few lines to show its shape.
_SHAPED = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Loads:
    """Frequencies that a sensor would all show at the same place; the first is the one it seems to be."""

    frequency_hz: Floats

    @classmethod
    def of(cls, line_hz: float, refresh_s: float) -> _Loads:
        rates_hz = np.arange(1, _MOST_IMAGES + 1) / refresh_s
        return cls(np.concatenate(([line_hz], rates_hz - line_hz, rates_hz + line_hz)))


@dataclass(frozen=True, slots=True, eq=False)
class SensorEvidence:
    """All that the sensors told: samples, and what of them was new."""

    samples: PowerSamples
    power: Fresh
    grid: Grid
    """Power while the program ran."""
    utilisations: tuple[Fresh, ...]


def is_believable(told: SensorEvidence, grid: Grid, *, period_s: float, least_points: float = POINT) -> Work[bool]:
    """Whether a period that was seen in power, as a grid has it, may be taken for real.

    `least_points` is by how much utilisation has to swing with it, where it says anything. Where something shorter was
    no real period it is `MORE_POINTS`, since a load that throws one image throws others too.
    """
    power, lines = told.power, comb(grid, period_s)
    if lines is None:
        return False
    sharp = _is_sharp(lines)
    swing = (2 * float(lines.on.max()) * grid.variance) ** 0.5 / max(float(power.value.mean()), 1e-9)
    says = yield from witnesses(told.utilisations, grid, lines)
    clear = sharp or swing >= _CLEAR
    real = [one for one in says if _is_real(one) and one.amplitude > least_points]
    if any(clear or _is_deep(one, period_s) for one in real):
        return True
    if least_points > POINT or any(_is_image(one) or _is_missed(one, period_s) for one in says):
        return False
    whole = any(period_s > _SEEN_BY_UTILISATION * one.refresh_s for one in says)
    if whole and idles_unseen(told):
        return False
    yield
    strongest = _Loads.of(float(lines.frequency_hz[np.argmax(lines.on)]), power.refresh_s)
    if _is_image_by_stamps(power, grid, strongest):
        return False
    if swing < _WEAK:
        return False
    if power.refresh_s <= _QUICK_S and _is_power_alone(told.samples):
        return period_s >= _LEAST_QUICK * power.refresh_s
    return sharp and lines.strong()[0] == 1 and period_s >= _SHAPED * power.refresh_s


def _is_power_alone(samples: PowerSamples) -> bool:
    return all(values is None or not np.isfinite(values).any() for values in (samples.sm_util, samples.mem_util))


def _is_real(one: Witness) -> bool:
    return one.real > _SAYS and one.real * _LARGER > one.image


def _is_deep(one: Witness, period_s: float) -> bool:
    """Whether utilisation swings as what is averaged away cannot, or follows what is too slow for that."""
    return one.amplitude > _DEEP_POINTS or period_s > _WHOLE * one.refresh_s


def _is_image(one: Witness) -> bool:
    return one.image > _SAYS and one.image > _LARGER * one.real


def _is_missed(one: Witness, period_s: float) -> bool:
    """Whether utilisation moves, would see the period, and has nothing of it."""
    return period_s > _SEEN_BY_UTILISATION * one.refresh_s and one.spread > POINT and one.real < _NOTHING


def is_slow(told: SensorEvidence) -> bool:
    """Whether power varies, slowly enough for the sensor to follow, and so does utilisation where that is known."""
    samples, power = told.samples, told.power
    if float(np.std(power.value)) <= _STEADY * float(power.value.mean()) or not _goes_on(power.value):
        return False
    moving = [seen for seen in told.utilisations if _spread(seen) > _MOVES]
    if not moving:
        # Cores alone may be busy all the time whatever they do; cores and memory that never change do one thing.
        return samples.sm_util is None or samples.mem_util is None
    return any(_together(power, seen) > _TOGETHER or _is_wide(seen) for seen in moving)


def _goes_on(value: Floats) -> bool:
    """Whether a value is much like the last and the one before: one that swings to and fro is like the second only."""
    off = value - value.mean()
    least = _FOLLOWED * float((off**2).sum())
    return len(off) >= 8 and all(float((off[later:] * off[:-later]).sum()) > least for later in (1, 2))


def _is_wide(seen: Fresh) -> bool:
    """Whether utilisation moves far and slowly, as it does not where it is the mean of something fast."""
    off = seen.value - seen.value.mean()
    return _spread(seen) > _WIDE and float((off[1:] * off[:-1]).sum()) > _FOLLOWED * float((off**2).sum())


def _spread(seen: Fresh) -> float:
    return float(np.std(seen.value)) / max(float(np.mean(np.abs(seen.value))), 1e-9)


def _together(power: Fresh, seen: Fresh) -> float:
    """How strongly power, over the looks that utilisation takes, and utilisation vary together, 0 to 1."""
    total = np.concatenate(([0.0], np.cumsum(power.value)))
    stop = np.searchsorted(power.time_s, seen.time_s, side="right")
    start = np.searchsorted(power.time_s, seen.time_s - seen.refresh_s, side="right")
    whole = stop > start
    if whole.sum() < 8:
        return 0.0
    mean_w = (total[stop] - total[start])[whole] / (stop - start)[whole]
    pair = mean_w - mean_w.mean(), seen.value[whole] - seen.value[whole].mean()
    size = float(np.sqrt((pair[0] ** 2).sum() * (pair[1] ** 2).sum()))
    return abs(float((pair[0] * pair[1]).sum())) / size if size > 0 else 0.0


def idles_unseen(told: SensorEvidence) -> bool:
    """Whether power swings as if the GPU came and went, while utilisation says it is always busy for part of the time.

    Then it comes and goes faster than either shows, and the swing is an image.
    """
    samples = told.samples
    if samples.sm_util is None:
        return False
    # Without what utilisation still remembers of the time before, and of the time after.
    margin_s = min(1.0, 0.1 * told.grid.duration_s)
    first_s, last_s = told.grid.start_s + margin_s, told.grid.start_s + told.grid.duration_s - margin_s
    inside = (samples.time_s > first_s) & (samples.time_s < last_s) & np.isfinite(samples.sm_util)
    if inside.sum() < LEAST_REFRESHES:
        return False
    low, middle, high = np.quantile(samples.sm_util[inside], (0.1, 0.5, 0.9))
    low_w, high_w = np.quantile(samples.power_w[inside], (0.05, 0.95))
    return bool(_NEVER < middle < _ALWAYS and high - low < 0.15 and high_w - low_w > _DEEP * high_w)


def _is_image_by_stamps(power: Fresh, grid: Grid, loads: _Loads) -> bool:
    """Whether a faster load fits uneven stamps better than what it seems to be.

    The other way round would prove nothing: a sensor that is refreshed evenly and polled unevenly looks like that too.
    """
    scores = _fits(power, grid, loads.frequency_hz)
    return bool(scores[1:].max() > _BETTER * scores[0])


def _fits(power: Fresh, grid: Grid, frequency_hz: Floats) -> Floats:
    """How well a wave of each frequency fits, in stretches of some ten cycles of the slowest, where it is seen."""
    place = np.round((power.time_s - grid.start_s) / grid.step_s).astype(np.int64)
    inside = (place >= 0) & (place < len(grid.seen))
    inside[inside] = grid.seen[place[inside]] > 0
    time_s, value = power.time_s[inside] - grid.start_s, power.value[inside]
    number = np.floor(np.maximum(time_s, 0.0) * float(frequency_hz.min()) / 12).astype(np.int64)
    low, high = np.quantile(value, (0.1, 0.9))
    value = np.clip(value, low, high)
    level = (np.bincount(number, weights=value) / np.maximum(np.bincount(number), 1))[number]
    products = np.exp(-2j * np.pi * np.outer(frequency_hz, time_s)) * (value - level)
    real = np.array([np.bincount(number, weights=product.real) for product in products])
    imaginary = np.array([np.bincount(number, weights=product.imag) for product in products])
    return np.asarray((real**2 + imaginary**2).sum(axis=1))


def _is_sharp(lines: Comb) -> bool:
    """Whether a cycle has lines that one averaged over a large part of itself has not."""
    high = np.arange(1, len(lines.on) + 1) >= _HIGH_LINE
    return lines.share_of(high) > _SHARP * lines.explained and lines.chance_of(high) < _CHANCE
