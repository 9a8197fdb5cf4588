"""Find the period among the peaks of the autocorrelation: neither a fraction nor a multiple of it.

A candidate comes from the autocorrelation and counts only where the spectrum has its harmonics. Of two candidates, one
a multiple of the other, the longer is preferred only where it has significant lines of its own, and where folding at it
explains more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.signals.autocorrelation import Autocorrelation, autocorrelation, folded_shares, peaks_s
from wattune.signals.comb import CYCLES, MOST_LINES, comb
from wattune.signals.grid import Grid
from wattune.signals.phase import refined_period
from wattune.signals.samples import Work

FALSE_ALARM = 1e-3
"""Probability of finding a period in a trace that has none, over all candidates."""
# Peaks of the autocorrelation that are tried per octave of lags.
_PER_OCTAVE = 4
# A peak of less contrast than this occurs by noise in any trace of a few hundred samples.
_LEAST_CONTRAST = 0.02
# The least share of the explained variance that the lines of a longer period must add.
_ADDS = 0.05
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


def find_periods(grid: Grid, *, shortest_s: float, longest_s: float) -> Work[tuple[PeriodCandidate, ...]]:
    """Find the periods between two lags, the shortest first: none, a step, or a micro-step and its step."""
    found = yield from candidates(grid, shortest_s=shortest_s, longest_s=longest_s)
    if not found:
        return ()
    best = max(found, key=lambda level: level.explained)
    for level in found:
        if level.period_s >= 0.95 * best.period_s:
            break
        yield
        if not adds(grid, best.period_s, to_s=level.period_s):
            best = level
            break
    best = yield from _undivided(grid, best, shortest_s)
    step = yield from _step_of(grid, best, found)
    return (best,) if step is None else (best, step)


def _undivided(grid: Grid, level: PeriodCandidate, shortest_s: float) -> Work[PeriodCandidate]:
    """Return the shortest fraction of a period that explains as much as the whole.

    A step whose multiple is a multiple of the refresh time has its lines there, and may have none of its own. Its
    strongest line is then one of the fraction's; folds alone cannot resolve fractions of a cycle of few refreshes.
    """
    while True:
        yield
        # Lines may be strongest where a period fits the refreshes, and folds at that would be out of phase.
        exact_s = refined_period(grid, level.period_s).period_s
        if abs(exact_s / level.period_s - 1) < _NEAR:
            level = replace(level, period_s=exact_s)
        yield
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


def _step_of(grid: Grid, part: PeriodCandidate, found: tuple[PeriodCandidate, ...]) -> Work[PeriodCandidate | None]:
    """Return the step that a micro-step is a part of; None where there is none."""
    longer: list[tuple[float, PeriodCandidate]] = []
    for level in found:
        if not 1.05 * part.period_s < level.period_s < MOST_PARTS * part.period_s:
            continue
        yield
        explained = _explained(grid, level, part)
        if explained > _HOLDS * part.explained and adds(grid, level.period_s, to_s=part.period_s):
            longer.append((explained, level))
    if not longer:
        return None
    most = max(explained for explained, _ in longer)
    step = next(level for explained, level in longer if explained > (1 - _ADDS) * most)
    step = yield from _undivided(grid, step, 0.95 * part.period_s)
    return step if step.period_s > 1.05 * part.period_s else None


def candidates(grid: Grid, *, shortest_s: float, longest_s: float) -> Work[tuple[PeriodCandidate, ...]]:
    """Find every period that autocorrelation and spectrum agree on, the shortest first."""
    correlation = autocorrelation(grid, longest_s=longest_s)
    trials = max(grid.duration_s / grid.refresh_s / 2, 1.0)
    found: list[PeriodCandidate] = []
    for lag_s in _lags_s(correlation, shortest_s):
        yield
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


def adds(grid: Grid, period_s: float, *, to_s: float) -> bool:
    """Return whether a longer period explains what a shorter one does not, by lines and by folding.

    Each has a weakness: aliases of a load's higher lines may coincide with lines of the longer period, and folds need
    many values. Lines of periods that are no multiples of each other are too close to resolve, and folds alone decide.
    """
    length_s, many = CYCLES * period_s, period_s / to_s
    if abs(many - round(many)) < _MULTIPLE and not _shows_more(grid, period_s, to_s, length_s):
        return False
    shorter, longer = folded_shares(grid, to_s, period_s, length_s=length_s)
    return shorter < (1 - _ADDS) * longer


def _shows_more(grid: Grid, period_s: float, to_s: float, length_s: float) -> bool:
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
