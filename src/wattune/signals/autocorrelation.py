"""The autocorrelation of a signal, without its masked points.

Notation: L lag, r(L) correlation of the signal with itself L later, over the pairs of unmasked points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from wattune.signals.grid import Grid
from wattune.signals.samples import Floats, Ints

# A lag needs at least this share of the points as pairs.
_LEAST_PAIRS = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Autocorrelation:
    """Correlation by lag: `value[k]` at `k·step_s`, from 1 at lag 0."""

    value: Floats
    step_s: float

    @property
    def longest_s(self) -> float:
        return (len(self.value) - 1) * self.step_s

    def at(self, lag_s: float) -> float:
        """Interpolate the correlation at a lag."""
        return float(np.interp(lag_s / self.step_s, np.arange(len(self.value)), self.value))

    def peak_near(self, lag_s: float, *, reach_s: float) -> tuple[float, float] | None:
        """Return lag and height of the highest point within reach, interpolated; None where it lies at the end."""
        first = max(int(np.floor((lag_s - reach_s) / self.step_s)), 1)
        last = min(int(np.ceil((lag_s + reach_s) / self.step_s)), len(self.value) - 2)
        if last < first:
            return None
        top = first + int(np.argmax(self.value[first : last + 1]))
        before, here, after = self.value[top - 1 : top + 2]
        if here < before or here < after:
            return None
        return _vertex(top, float(before), float(here), float(after), self.step_s)


def autocorrelation(grid: Grid, *, longest_s: float) -> Autocorrelation:
    """Compute the correlation at lags from 0 to `longest_s`, or to where too few pairs are left."""
    points = len(grid.value)
    most = min(int(longest_s / grid.step_s) + 2, points - 1)
    size = next_fast_len(points + most + 1, real=True)
    signal, mask = rfft(grid.value * grid.mask, size), rfft(grid.mask, size)
    products = irfft(signal * np.conj(signal), size)[: most + 1]
    pairs = irfft(mask * np.conj(mask), size)[: most + 1]
    # The variance of the members of the pairs, so that a lag is normalised only by points that it uses.
    squares = rfft(grid.mask * grid.value**2, size)
    power = irfft(squares * np.conj(mask) + mask * np.conj(squares), size)[: most + 1] / 2
    few = pairs < _LEAST_PAIRS * points
    end = int(np.argmax(few)) if np.any(few) else most + 1
    value = products[:end] / np.maximum(power[:end], 1e-12 * max(float(power[0]), 1e-300))
    return Autocorrelation(np.asarray(value), grid.step_s)


def peaks_s(correlation: Autocorrelation, *, shortest_s: float, most: int) -> tuple[tuple[float, float], ...]:
    """Return the lags of the peaks of the correlation and their contrast, the strongest first.

    The contrast of a peak at L is its height above the mean over L/2 to 3L/2: a signal of period L lies as much below
    that mean as above it, and slower ones hardly change it.
    """
    value, step_s = correlation.value, correlation.step_s
    tops = local_maxima(value)
    tops = tops[(tops * step_s >= shortest_s) & (tops < len(value) - 1)]
    if not len(tops):
        return ()
    total = np.concatenate(([0.0], np.cumsum(value)))
    low, high = np.ceil(tops / 2).astype(int), np.minimum(np.floor(1.5 * tops).astype(int) + 1, len(value))
    low = np.maximum(low, 2 * tops - high + 1)
    contrast = value[tops] - (total[high] - total[low]) / np.maximum(high - low, 1)
    best = np.argsort(-contrast)[:most]
    found = []
    for top in tops[best]:
        before, here, after = value[top - 1 : top + 2]
        found.append(
            (_vertex(int(top), float(before), float(here), float(after), step_s)[0], float(contrast[tops == top][0]))
        )
    return tuple(found)


def local_maxima(value: Floats) -> Ints:
    """Return the places of all local maxima; of a flat one its middle, as `scipy.signal.find_peaks` does."""
    changes = np.flatnonzero(value[1:] != value[:-1])
    if len(changes) < 2:
        return np.empty(0, dtype=np.int64)
    # A run of equal values is a maximum where the values on both sides of it are lower.
    first, last = changes[:-1] + 1, changes[1:]
    higher = (value[first] > value[first - 1]) & (value[last] > value[last + 1])
    return np.asarray((first + last)[higher] // 2, dtype=np.int64)


def _vertex(top: int, before: float, here: float, after: float, step_s: float) -> tuple[float, float]:
    """Return lag and height of the vertex of the parabola through three points."""
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend if bend < 0 else 0.0
    return (top + shift) * step_s, here - 0.25 * (before - after) * shift


_MOST_BINS = 48
# Least values per bin: with fewer a fold fits its own noise.
_PER_BIN = 5.0
# Least values per interval: with fewer a cycle has too few bins to show its shape.
_LEAST_VALUES = 120


def folded_shares(grid: Grid, shorter_s: float, longer_s: float, *, length_s: float) -> tuple[float, float]:
    """Return the shares of the variance that folding at two periods explains, in intervals of `length_s` or more.

    Each gets as many bins as the values allow. So the shorter has the finer ones, which also show loads faster than the
    sensor, and a longer one that is merely a multiple of the refresh time gains nothing. A share is adjusted for the
    number of its bins.
    """
    interval_s = max(min(max(length_s, _LEAST_VALUES * grid.refresh_s), grid.duration_s), 1e-9)
    number = (grid.point_s / interval_s).astype(np.int64)
    values = len(grid.point) / max(int(number.max(initial=0)) + 1, 1)
    most = max(int(values / _PER_BIN), 4)
    shorter = _share(grid, number, shorter_s, min(_MOST_BINS, most))
    return shorter, _share(grid, number, longer_s, min(round(_MOST_BINS * longer_s / shorter_s), most))


def _share(grid: Grid, number: Ints, period_s: float, bins: int) -> float:
    place = number * bins + np.minimum((grid.point_s / period_s % 1.0 * bins).astype(np.int64), bins - 1)
    count, intervals = np.bincount(place), np.bincount(number)
    mean = np.bincount(place, weights=grid.point) / np.maximum(count, 1)
    level = np.bincount(number, weights=grid.point) / np.maximum(intervals, 1)
    left = float(((grid.point - mean[place]) ** 2).sum())
    total = float(((grid.point - level[number]) ** 2).sum())
    spare = len(grid.point) - int((count > 0).sum())
    if total <= 0 or spare <= 0:
        return 0.0
    return 1 - left / spare / (total / max(len(grid.point) - int((intervals > 0).sum()), 1))
