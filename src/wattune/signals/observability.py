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
from enum import Enum, auto

import numpy as np
from scipy.special import fdtrc

from wattune.signals.comb import Comb, comb, wave_power
from wattune.signals.grid import Grid, even_grid
from wattune.signals.held import Fresh, fresh
from wattune.signals.samples import Floats, PowerSamples

# Variation of power below this share of its mean is sensor noise and heat, and no work that comes and goes.
_STEADY = 0.01
# Correlation from one refresh to the second next above which power moves slowly enough to be followed.
_FOLLOWED = 0.35
# Refreshes of utilisation that are needed to say anything.
_LEAST_UTILISATION = 24
# Utilisation that stays above this says that kernels ran all the time; below the other, that none did.
_ALWAYS, _NEVER = 0.93, 0.05
# Power that swings by this share of its upper level, while the GPU idles in between, takes utilisation with it.
_DEEP = 0.35
# Images from beyond so many times the refresh rate are weak: a sensor averages them away, most or all.
_MOST_IMAGES = 2
# How much better one frequency must fit the stamps than its images.
_BETTER = 1.2
_CHANCE = 1e-3
# Lines of a cycle averaged over its larger part die out from the third on; these stand for a real one.
_HIGH_LINE = 3
_SHARP = 0.02
# A cycle shorter than this many refreshes has too few lines to show its shape.
_SHAPED = 6.0
# The share of the swing that is due at which utilisation is taken to follow power.
_ALIKE = 0.3
# Cycles per look at utilisation: few for a load that loses step, many to tell close places apart.
_LOOKS = (12.0, 60.0)
# Utilisation follows what takes this many of its refreshes.
_SEEN_BY_UTILISATION = 3.0


class Standing(Enum):
    """What the samples say of a period."""

    REAL = auto()
    IMAGE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, eq=False)
class _Loads:
    """Frequencies that a sensor would all show at the same place; the first is the one it seems to be."""

    frequency_hz: Floats

    @classmethod
    def of(cls, line_hz: float, refresh_s: float) -> _Loads:
        rates_hz = np.arange(1, _MOST_IMAGES + 1) / refresh_s
        return cls(np.concatenate(([line_hz], rates_hz - line_hz, rates_hz + line_hz)))


def is_believable(samples: PowerSamples, power: Fresh, grid: Grid, *, period_s: float) -> bool:
    """Whether a period that was seen in power may be taken for real."""
    lines = comb(grid, period_s)
    if lines is None:
        return False
    strongest_hz = float(lines.frequency_hz[np.argmax(lines.on)])
    loads = _Loads.of(strongest_hz, power.refresh_s)
    seen = _utilisations(samples)
    swing = (2 * float(lines.on.max()) * grid.variance) ** 0.5 / max(float(power.value.mean()), 1e-9)
    votes = [_by_utilisation(part, loads, cycles=cycles, swing=swing) for part in seen for cycles in _LOOKS]
    if Standing.REAL in votes:
        return True
    if Standing.IMAGE in votes or _is_image_by_stamps(power, grid, loads):
        return False
    slow = any(period_s > _SEEN_BY_UTILISATION * part.refresh_s for part in seen)
    if slow and idles_unseen(samples, power):
        return False
    return 1 / strongest_hz >= _SHAPED * power.refresh_s and _is_sharp(lines)


def is_slow(power: Fresh) -> bool:
    """Whether power varies, and slowly enough for the sensor to follow."""
    value = power.value - power.value.mean()
    variance = float((value**2).mean())
    if variance <= (_STEADY * float(power.value.mean())) ** 2 or len(value) < 8:
        return False
    return float((value[2:] * value[:-2]).mean()) / variance > _FOLLOWED


def idles_unseen(samples: PowerSamples, power: Fresh) -> bool:
    """Whether power swings as if the GPU came and went, while utilisation says it is always busy for part of the time.

    Then it comes and goes faster than either shows, and the swing is an image.
    """
    first_s, last_s = busy_span_s(power)
    if samples.sm_util is None:
        return False
    inside = (samples.time_s > first_s) & (samples.time_s < last_s) & np.isfinite(samples.sm_util)
    if inside.sum() < _LEAST_UTILISATION:
        return False
    low, middle, high = np.quantile(samples.sm_util[inside], (0.1, 0.5, 0.9))
    low_w, high_w = np.quantile(samples.power_w[inside], (0.05, 0.95))
    return bool(_NEVER < middle < _ALWAYS and high - low < 0.15 and high_w - low_w > _DEEP * high_w)


def busy_span_s(power: Fresh) -> tuple[float, float]:
    """The middle of the busy stretch, without what utilisation still remembers of its ends."""
    grid = even_grid(power)
    margin_s = min(1.0, 0.1 * grid.duration_s)
    return grid.start_s + margin_s, grid.start_s + grid.duration_s - margin_s


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


def _utilisations(samples: PowerSamples) -> list[Fresh]:
    """The refreshes of each utilisation that is known and moves."""
    found = []
    for values in (samples.sm_util, samples.mem_util):
        if values is None:
            continue
        known = np.isfinite(values)
        if known.sum() >= _LEAST_UTILISATION and len(np.unique(values[known])) > 2:
            seen = fresh(samples.time_s[known], values[known])
            if len(seen.time_s) >= _LEAST_UTILISATION:
                found.append(seen)
    return found


def _by_utilisation(seen: Fresh, loads: _Loads, *, cycles: float, swing: float) -> Standing:
    """Whether utilisation has a line where a real period would have one, or only where a faster load would.

    It counts as one only where it swings about as much, by its mean, as power by its own: utilisation is averaged from
    one refresh to the next, so of a load that is many times faster little is left.
    """
    grid = even_grid(seen)
    length_s = min(max(cycles / float(loads.frequency_hz[0]), 3 * cycles * seen.refresh_s), grid.duration_s / 2)
    if grid.variance <= 0 or length_s < _LEAST_UTILISATION * seen.refresh_s:
        return Standing.UNKNOWN
    rate_hz = 1 / seen.refresh_s
    places_hz = np.abs(loads.frequency_hz - np.round(loads.frequency_hz / rate_hz) * rate_hz)
    # What falls together in utilisation too cannot be told apart by it, nor what falls onto its mean.
    apart = np.abs(places_hz - places_hz[0]) > 2 / length_s
    readable = places_hz > 2 / length_s
    if not readable[0]:
        return Standing.UNKNOWN
    spread_hz = np.linspace(2 / length_s, 0.5 * rate_hz, 48)
    power, segments = wave_power(grid, np.concatenate((places_hz, spread_hz)), length_s=length_s)
    if not segments:
        return Standing.UNKNOWN
    floor = float(np.median(power[len(places_hz) :])) / np.log(2)
    chances = fdtrc(max(2.0, 1.1 * segments), 1000.0, power[: len(places_hz)] / max(floor, 1e-300)) * len(places_hz)
    others = (chances < _CHANCE) & apart & readable
    if chances[0] < _CHANCE and not (others & (power[: len(places_hz)] > 2 * power[0])).any():
        amplitude = (2 * float(power[0]) * grid.variance) ** 0.5 / max(float(np.abs(seen.value).mean()), 1e-9)
        due = swing * abs(float(np.sinc(loads.frequency_hz[0] * seen.refresh_s)))
        return Standing.REAL if apart[1:].all() and amplitude > _ALIKE * due else Standing.UNKNOWN
    return Standing.IMAGE if bool(others.any()) else Standing.UNKNOWN


def _is_sharp(lines: Comb) -> bool:
    """Whether a cycle has lines that one averaged over a large part of itself has not."""
    high = np.arange(1, len(lines.on) + 1) >= _HIGH_LINE
    return lines.share_of(high) > _SHARP * lines.explained and lines.chance_of(high) < _CHANCE
