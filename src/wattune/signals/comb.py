"""The spectrum on and between the harmonics of a period: the share of a signal it explains, and its significance.

Notation: T period, lines (harmonics) at h/T, h = 1 … H, below half the refresh rate. The signal is cut into overlapping
segments of some cycles each, so that a load whose steps vary in length still has its lines. Between the lines, at
(h ± ½)/T, only what does not repeat with T is left: the floor. Without a period the powers on a line and beside it have
the same exponential distribution wherever the spectrum is smooth over 1/T, so their ratio follows an F distribution and
the H ratios together a χ² (Fisher's sum of logarithms). That gives the false-alarm rate.

The phase of the strongest line from segment to segment refines the period. Notation: d(s) delay of segment s against
the period, in seconds. Reading errors of d are white; steps that vary in length make d a random walk. Both are
estimated from the differences D(s) = d(s+1) − d(s): their covariance with the next one is −r (reading), and var D + 2
cov = q (walk). The slope of d over n segments H seconds apart then has the variance 12 r/(n³ H²) + 1.2 q/(n H²).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from wattune.signals.chance import ratio_chance, sum_chance
from wattune.signals.grid import Grid
from wattune.signals.samples import Flags, Floats, Ints

Lines = NDArray[np.complex128]

CYCLES = 6.0
"""Per segment: the least that separates a line from the floor half-way to the next under a Hann window."""
MOST_LINES = 12
# A segment with less than this share of its points has too many gaps to use.
_LEAST_MASK = 0.6
# Half-overlapping segments under a Hann window count as this many independent ones each (Welch 1967).
_INDEPENDENT = 0.55
# Points per cycle of the fastest line, beyond which neighbours are averaged: it saves time and costs little.
_PER_CYCLE = 4.0
_MANY_SEGMENTS = 6
_LEAST_CHANCE = 1e-30
_FIRSTS = (1, 2, 4)
# The share of the strongest line's power that makes another a strong one, and the most strong ones.
_FAIR, _MOST_STRONG = 0.1, 4
# Bins of a fold, so many that the highest line loses little within one.
_LEAST_BINS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Comb:
    """Power on the lines of a period and between them, each as a share of the signal's variance."""

    period_s: float
    length_s: float
    frequency_hz: Floats
    on: Floats
    floor: Floats
    segments: int

    @property
    def explained(self) -> float:
        """The share of the variance that repeats with the period."""
        return self.share_of(np.ones(len(self.on), dtype=np.bool_))

    @property
    def chance(self) -> float:
        """Probability of lines this strong where nothing repeats, for one tried period."""
        return self.chance_of(np.ones(len(self.on), dtype=np.bool_))

    def share_of(self, which: Flags) -> float:
        """Return the share of the variance on some of the lines."""
        return float(np.maximum(self.on - self.floor, 0.0)[which].sum())

    def strong(self, *, visible: Floats | float = 1.0) -> tuple[int, ...]:
        """Return the numbers of the lowest lines with a fair part of the strongest line's power.

        `visible` is the share of each line's power that the caller's sensor shows.
        """
        above = np.maximum(self.on - self.floor, 0.0) * visible
        fair = np.flatnonzero(above >= _FAIR * above.max())[:_MOST_STRONG]
        return tuple(int(number) + 1 for number in fair)

    def chance_of(self, which: Flags) -> float:
        """Return the probability that some of the lines are this strong by chance."""
        if not np.any(which):
            return 1.0
        freedom = max(2.0, 2.0 * _INDEPENDENT * self.segments)
        ratio = self.on[which] / np.maximum(self.floor[which], 1e-300)
        chances = np.maximum(ratio_chance(freedom, ratio), _LEAST_CHANCE)
        # A sensor that averages has only low strong lines, so the first few are also tested by themselves.
        firsts = [first for first in _FIRSTS if first < len(chances)] + [len(chances)]
        sums = -2.0 * np.cumsum(np.log(chances))
        return min(1.0, len(firsts) * min(sum_chance(first, float(sums[first - 1])) for first in firsts))


def comb(grid: Grid, period_s: float, *, length_s: float | None = None, most_lines: int = MOST_LINES) -> Comb | None:
    """Compute the comb of a period over segments of `length_s`, or of six cycles; None where no segment can be used."""
    length_s = min(length_s or CYCLES * period_s, grid.duration_s)
    lines = max(min(int(period_s / (2 * grid.refresh_s)), most_lines), 1)
    halves = np.arange(1, 2 * lines + 2) / 2
    amplitudes, _ = folded_lines(grid, 0.5 / period_s, len(halves), length_s=length_s, overlap=True)
    if not len(amplitudes):
        return None
    power = _share(amplitudes, grid)
    below, above = power[0::2][:-1], power[0::2][1:]
    # Beyond half the refresh rate there is only the effect of interpolation.
    known = halves[2::2] / period_s < 0.5 / grid.refresh_s
    # Between two steep neighbours the floor is their geometric mean; with few segments that is too low by chance.
    between = np.sqrt(below * above) if len(amplitudes) >= _MANY_SEGMENTS else (below + above) / 2
    floor = np.where(known, between, below)
    return Comb(period_s, length_s, halves[1::2] / period_s, power[1::2], floor, len(amplitudes))


def folded_lines(
    grid: Grid, base_hz: float, count: int, *, length_s: float, overlap: bool, least_mask: float = _LEAST_MASK
) -> tuple[Lines, Ints]:
    """Return the complex amplitudes of the lines at `base_hz` and its multiples, by segment, and the segment numbers.

    Each segment is folded at 1/`base_hz` into bins, whose transform has all the lines at once. Phases count from the
    start of the grid. Segments overlap by half or not at all; those with a smaller share of points than
    `least_mask` are left out.
    """
    coarse = _thinned(grid, count * base_hz)
    points = min(round(length_s / coarse.step_s), len(coarse.value))
    if points < 8:
        return np.zeros((0, count), dtype=np.complex128), np.zeros(0, dtype=np.int64)
    bins = max(_LEAST_BINS, 1 << (4 * count - 1).bit_length())
    turns = np.arange(len(coarse.value)) * (coarse.step_s * base_hz)
    bin_ = ((turns - np.floor(turns)) * bins).astype(np.int64)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(points) + 0.5) / points)
    starts = (0, points // 2) if overlap else (0,)
    parts = [_folded(coarse, bin_, bins, window, start, count, least_mask) for start in starts]
    return np.concatenate([lines for lines, _ in parts]), np.concatenate([numbers for _, numbers in parts])


def _folded(
    grid: Grid, bin_: Ints, bins: int, window: Floats, start: int, count: int, least_mask: float
) -> tuple[Lines, Ints]:
    """Return the lines of consecutive segments from `start` on."""
    points = len(window)
    segments = (len(grid.value) - start) // points
    span = slice(start, start + segments * points)
    mask = grid.mask[span].reshape(segments, points)
    place = bin_[span] + np.repeat(np.arange(segments) * bins, points)
    weight = (mask * window).ravel()
    size = segments * bins
    folded = np.bincount(place, weights=weight * grid.value[span], minlength=size).reshape(segments, bins)
    weights = np.bincount(place, weights=weight, minlength=size).reshape(segments, bins)
    total = np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    level = folded.sum(axis=1, keepdims=True) / total
    lines = np.fft.rfft(folded - level * weights, axis=1)[:, 1 : count + 1] / total
    numbers = np.flatnonzero(mask.mean(axis=1) >= least_mask) if segments else np.zeros(0, dtype=np.int64)
    return np.asarray(lines[numbers]), np.asarray(numbers)


def _share(lines: Lines, grid: Grid) -> Floats:
    """Return the variance of waves of these amplitudes over that of the signal, mean over segments."""
    return np.asarray(2 * (np.abs(lines) ** 2).mean(axis=0) / max(grid.variance, 1e-300))


def _thinned(grid: Grid, highest_hz: float) -> Grid:
    """Average neighbours, as far as the highest frequency allows."""
    every = int(1 / (_PER_CYCLE * highest_hz * grid.step_s))
    if every < 2:
        return grid
    # Few different ones, so that many periods share their grid with others: those of three binary digits.
    spare = max(every.bit_length() - 3, 0)
    return _thinned_grid(grid, every >> spare << spare)


@lru_cache(maxsize=16)
def _thinned_grid(grid: Grid, every: int) -> Grid:
    return grid.thinned(every)


# Cycles per segment: few, so that the phase cannot wrap between two, but enough to separate the lines.
_CYCLES = 3.0
_ROUNDS = 2
# The least share of a segment's points that are unmasked.
_WHOLE = 0.98
# Higher lines are weak and wrap soon.
_LOW_LINES = 4
# Student's t for 95 % and few degrees of freedom is above the normal 1.96.
_T95 = {1: 12.7, 2: 4.3, 3: 3.2, 4: 2.8, 5: 2.6, 6: 2.4, 7: 2.4, 8: 2.3}


@dataclass(frozen=True, slots=True)
class RefinedPeriod:
    """A period and the half-width of its 95 % interval."""

    period_s: float
    error_s: float


def refined_period(grid: Grid, period_s: float) -> RefinedPeriod:
    """Return the period near `period_s` that fits the signal best over its whole length."""
    # The error of a lag: half a grid step over the cycles that were compared, at least two.
    best = RefinedPeriod(period_s, 2 * grid.step_s / max(grid.duration_s / (3 * period_s), 2.0))
    for _ in range(_ROUNDS):
        found = _once(grid, best.period_s)
        if found is None or abs(found.period_s / period_s - 1) > 0.05:
            return best
        best = found
    return best


def _once(grid: Grid, period_s: float) -> RefinedPeriod | None:
    count = max(min(int(period_s / (2 * grid.refresh_s)), _LOW_LINES), 1)
    # After a stall the phase is arbitrary: segments that a stall touches are left out and separate two runs.
    hop_s = _CYCLES * period_s
    lines, segments = folded_lines(grid, 1 / period_s, count, length_s=hop_s, overlap=False, least_mask=_WHOLE)
    if len(segments) < 3:
        return None
    # The lowest line with at least half the power of the strongest: higher ones wrap sooner.
    power = (np.abs(lines) ** 2).mean(axis=0)
    line = int(np.argmax(power >= 0.5 * power.max()))
    phase = np.angle(lines[:, line])
    runs = np.split(np.arange(len(segments)), np.flatnonzero(np.diff(segments) > 1) + 1)
    behind = [-np.unwrap(phase[run]) * period_s / (2 * np.pi * (line + 1)) for run in runs if len(run) >= 3]
    if not behind:
        return None
    slope, error = _slope(behind, hop_s)
    # A delay that grows by `slope` seconds per second means a period longer by that share.
    return RefinedPeriod(period_s * (1 + slope), period_s * error)


def _slope(behind: list[Floats], hop_s: float) -> tuple[float, float]:
    """Return the common slope of all runs, in seconds per second, and the half-width of its 95 % interval."""
    counts = np.array([len(run) for run in behind], dtype=np.float64)
    weights = counts * (counts**2 - 1)
    places = [np.arange(len(run)) - (len(run) - 1) / 2 for run in behind]
    slopes = np.array([12 * float(place @ run) for place, run in zip(places, behind, strict=True)]) / weights / hop_s
    weights = weights / weights.sum()
    slope = float((weights * slopes).sum())
    steps = [np.diff(run) - slope * hop_s for run in behind]
    every = np.concatenate(steps)
    pairs = np.concatenate([step[1:] * step[:-1] for step in steps])
    covariance = float(pairs.mean()) if len(pairs) else 0.0
    reading, walk = max(-covariance, 0.0), max(float((every**2).mean()) + 2 * covariance, 0.0)
    variances = (12 * reading / (counts * (counts**2 - 1)) + 1.2 * walk / counts) / hop_s**2
    deviation = sqrt(float((weights**2 * variances).sum()))
    return slope, _T95.get(len(every) - 1, 2.0) * deviation
