"""Find the period among the peaks of the autocorrelation: neither a fraction nor a multiple of it.

A candidate comes from the autocorrelation and counts only where the spectrum has its harmonics. Of two candidates, one
a multiple of the other, the longer is preferred only where it has significant lines of its own, and where folding at it
explains more.

Notation: L lag, r(L) correlation of the signal with itself L later, over the pairs of unmasked points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.fft import irfft, rfft

from wattune.signals.comb import CYCLES, MOST_LINES, comb, refined_period
from wattune.signals.grid import Grid, fast_length
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
        if self.value[top] < max(self.value[top - 1], self.value[top + 1]):
            return None
        return self.vertex(top)

    def vertex(self, top: int) -> tuple[float, float]:
        """Return lag and height of the vertex of the parabola through a point and its neighbours."""
        before, here, after = self.value[top - 1 : top + 2].tolist()
        bend = before - 2 * here + after
        shift = 0.5 * (before - after) / bend if bend < 0 else 0.0
        return (top + shift) * self.step_s, here - 0.25 * (before - after) * shift


def autocorrelation(grid: Grid, *, longest_s: float) -> Autocorrelation:
    """Compute the correlation at lags from 0 to `longest_s`, or to where too few pairs are left."""
    points = len(grid.value)
    most = min(int(longest_s / grid.step_s) + 2, points - 1)
    size = fast_length(points + most + 1)
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
    return tuple((correlation.vertex(int(tops[place]))[0], float(contrast[place])) for place in best)


def local_maxima(value: Floats) -> Ints:
    """Return the places of all local maxima; of a flat one its middle, as `scipy.signal.find_peaks` does."""
    changes = np.flatnonzero(value[1:] != value[:-1])
    if len(changes) < 2:
        return np.empty(0, dtype=np.int64)
    # A run of equal values is a maximum where the values on both sides of it are lower.
    first, last = changes[:-1] + 1, changes[1:]
    higher = (value[first] > value[first - 1]) & (value[last] > value[last + 1])
    return np.asarray((first + last)[higher] // 2, dtype=np.int64)


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


FALSE_ALARM = 1e-3
"""Probability of finding a period in a trace that has none, over all candidates."""
# Peaks of the autocorrelation that are tried per octave of lags.
_PER_OCTAVE = 4
# A peak of less contrast than this occurs by noise in any trace of a few hundred samples.
_LEAST_CONTRAST = 0.02
# The least share of the explained variance that the lines of a longer period must add.
_ADDS = 0.05
# And those of a step to those of its micro-steps.
_STEP_ADDS = 0.15
# The least share of what a micro-step explains that its step explains too, over a longer time.
_HOLDS = 0.6
# The least share that a fold explains, and the share of another's from which it explains as much.
_SOME, _AS_WELL = 0.1, 0.97
# The most that refining changes a period, as a share.
_NEAR = 0.01
# The tolerance of a multiple, as a share of the shorter period.
_MULTIPLE = 0.15
# A step has at most about so many micro-steps; anything longer is a cycle of steps.
MOST_PARTS = 12
# The multiples at which a lag is refined.
_CLIMB = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True, eq=False)
class PeriodCandidate:
    """A period, the share of the variance that it explains and the probability that it is chance."""

    period_s: float
    explained: float
    chance: float


def find_periods(grid: Grid, *, shortest_s: float, longest_s: float) -> tuple[PeriodCandidate, ...]:
    """Find the periods between two lags, the shortest first: none, a step, or a micro-step and its step."""
    found = candidates(grid, shortest_s=shortest_s, longest_s=longest_s)
    if not found:
        return ()
    best = max(found, key=lambda level: level.explained)
    for level in found:
        if level.period_s >= 0.95 * best.period_s:
            break
        if not adds(grid, best.period_s, to_s=level.period_s):
            best = level
            break
    best = _undivided(grid, best, shortest_s)
    step = _step_of(grid, best, found)
    return (best,) if step is None else (best, step)


def _undivided(grid: Grid, level: PeriodCandidate, shortest_s: float) -> PeriodCandidate:
    """Return the shortest fraction of a period that explains as much as the whole.

    A step whose multiple is a multiple of the refresh time has its lines there, and may have none of its own. Its
    strongest line is then one of the fraction's; folds alone cannot resolve fractions of a cycle of few refreshes.
    """
    while True:
        # Lines may be strongest where a period fits the refreshes, and folds at that would be out of phase.
        exact_s = refined_period(grid, level.period_s).period_s
        if abs(exact_s / level.period_s - 1) < _NEAR:
            level = replace(level, period_s=exact_s)
        parts = _parts(grid, level.period_s, shortest_s)
        if parts == 1:
            return level
        level = replace(level, period_s=level.period_s / parts)


def _parts(grid: Grid, period_s: float, shortest_s: float) -> int:
    """Return how many equal parts a period has, by its strongest line and folds."""
    lines = comb(grid, period_s)
    strongest = int(np.argmax(lines.on)) + 1 if lines is not None else 1
    for parts in range(min(strongest, int(period_s / shortest_s)), 1, -1):
        if strongest % parts:
            continue
        shorter, longer = folded_shares(grid, period_s / parts, period_s, length_s=CYCLES * period_s)
        if longer > _SOME and shorter > _AS_WELL * longer:
            return parts
    return 1


def _step_of(grid: Grid, part: PeriodCandidate, found: tuple[PeriodCandidate, ...]) -> PeriodCandidate | None:
    """Return the step that a micro-step is a part of; None where there is none."""
    longer: list[tuple[float, PeriodCandidate]] = []
    for level in found:
        if not 1.05 * part.period_s < level.period_s < MOST_PARTS * part.period_s:
            continue
        explained = _explained(grid, level, part)
        if explained > _HOLDS * part.explained and adds(grid, level.period_s, to_s=part.period_s, least=_STEP_ADDS):
            longer.append((explained, level))
    if not longer:
        return None
    most = max(explained for explained, _ in longer)
    step = next(level for explained, level in longer if explained > (1 - _ADDS) * most)
    step = _undivided(grid, step, 0.95 * part.period_s)
    return step if step.period_s > 1.05 * part.period_s else None


def candidates(grid: Grid, *, shortest_s: float, longest_s: float) -> tuple[PeriodCandidate, ...]:
    """Find every period that autocorrelation and spectrum agree on, the shortest first."""
    correlation = autocorrelation(grid, longest_s=longest_s)
    trials = max(grid.duration_s / grid.refresh_s / 2, 1.0)
    found: list[PeriodCandidate] = []
    for lag_s in _lags_s(correlation, shortest_s):
        period_s = refined_lag_s(correlation, lag_s)
        if period_s < 0.99 * shortest_s or any(abs(level.period_s / period_s - 1) < 0.004 for level in found):
            continue
        lines = comb(grid, period_s)
        if lines is not None and lines.chance * trials < FALSE_ALARM:
            found.append(_refined(grid, PeriodCandidate(period_s, lines.explained, lines.chance * trials)))
    return tuple(sorted(found, key=lambda level: level.period_s))


def _refined(grid: Grid, level: PeriodCandidate) -> PeriodCandidate:
    """Return the candidate at the period that fits the whole signal, where that explains no less."""
    exact_s = refined_period(grid, level.period_s).period_s
    # A peak of the autocorrelation is exact to a grid step and the effect of noise.
    if abs(exact_s - level.period_s) > grid.step_s + 0.01 * level.period_s:
        return level
    lines = comb(grid, exact_s)
    if lines is None or lines.explained < level.explained:
        return level
    return replace(level, period_s=exact_s, explained=lines.explained)


def refined_lag_s(correlation: Autocorrelation, lag_s: float) -> float:
    """Refine a lag by the peaks at its multiples."""
    period_s, cycles, first = lag_s, 1, None
    for many in _CLIMB:
        if many * period_s > 0.98 * correlation.longest_s:
            break
        # The error of the present lag times the cycles, and some jitter of the load.
        reach_s = min(0.3 * period_s, 1.5 * correlation.step_s * max(many / cycles, 1) + 0.04 * period_s)
        peak = correlation.peak_near(many * period_s, reach_s=reach_s)
        first = first or (peak[1] if peak else None)
        if peak is None or first is None or peak[1] < 0.5 * first:
            if many > 2:
                break
            continue
        period_s, cycles = peak[0] / many, many
    return period_s


def _explained(grid: Grid, longer: PeriodCandidate, shorter: PeriodCandidate) -> float:
    """Return how much a longer period explains in the band of a shorter one."""
    highest = min(MOST_LINES / shorter.period_s, 0.5 / grid.refresh_s)
    lines = comb(grid, longer.period_s, most_lines=int(longer.period_s * highest + 0.5))
    return lines.explained if lines is not None else 0.0


def adds(grid: Grid, period_s: float, *, to_s: float, least: float = _ADDS) -> bool:
    """Return whether a longer period explains what a shorter one does not, by lines and by folding.

    Each has a weakness: aliases of a load's higher lines may coincide with lines of the longer period, and folds need
    many values, and phases that differ: at a multiple of the refresh time and at its fractions they are equal.
    So both have to. Lines of periods that are no multiples of each other are too close to resolve: there folds decide.
    """
    length_s, many = CYCLES * period_s, period_s / to_s
    if abs(many - round(many)) < _MULTIPLE and not _lines_add(grid, period_s, to_s, length_s):
        return False
    shorter, longer = folded_shares(grid, to_s, period_s, length_s=length_s)
    return shorter < (1 - least) * longer


def _lines_add(grid: Grid, period_s: float, to_s: float, length_s: float) -> bool:
    """Return whether the lines of a longer period explain more, and those of its own are significant."""
    shorter = comb(grid, to_s, length_s=length_s)
    if shorter is None:
        return False
    # The same band for both, or the one with more lines would be favoured.
    longer = comb(grid, period_s, length_s=length_s, most_lines=int(period_s * shorter.frequency_hz[-1] + 0.5))
    if longer is None or shorter.explained > (1 - _ADDS) * longer.explained:
        return False
    distance_hz = np.abs(longer.frequency_hz * to_s - np.round(longer.frequency_hz * to_s)) / to_s
    own = np.asarray(distance_hz > 1.5 / length_s)
    trials = max(grid.duration_s / grid.refresh_s / 2, 1.0)
    return longer.share_of(own) > _ADDS * longer.explained and longer.chance_of(own) * trials < FALSE_ALARM


def _lags_s(correlation: Autocorrelation, shortest_s: float) -> list[float]:
    """Return the strongest peaks of every octave."""
    taken: dict[int, int] = {}
    lags_s = []
    for lag_s, contrast in peaks_s(correlation, shortest_s=shortest_s, most=256):
        octave = int(np.floor(np.log2(max(lag_s / shortest_s, 1.0))))
        if contrast > _LEAST_CONTRAST and taken.get(octave, 0) < _PER_OCTAVE:
            taken[octave] = taken.get(octave, 0) + 1
            lags_s.append(lag_s)
    return lags_s
