"""Refine a period over a whole trace, and its error, by the phase of its strongest line from segment to segment.

Notation: d(s) delay of segment s against the period, in seconds. Reading errors of d are white;
steps that vary in length make d a random walk. Both are estimated from the differences D(s) = d(s+1) − d(s):
their covariance with the next one is −r (reading), and var D + 2 cov = q (walk). The slope of d over n segments H
seconds apart then has the variance 12 r/(n³ H²) + 1.2 q/(n H²).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from wattune.signals.comb import folded_lines
from wattune.signals.grid import Grid
from wattune.signals.samples import Floats

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
    best = RefinedPeriod(period_s, _unrefined_error_s(grid, period_s))
    for _ in range(_ROUNDS):
        found = _once(grid, best.period_s)
        if found is None or abs(found.period_s / period_s - 1) > 0.05:
            return best
        best = found
    return best


def _unrefined_error_s(grid: Grid, period_s: float) -> float:
    """Return the error of a lag: half a grid step over the cycles that were compared, at least two."""
    return 2 * grid.step_s / max(grid.duration_s / (3 * period_s), 2.0)


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
    slopes = np.array([np.polyfit(np.arange(len(run)) * hop_s, run, 1)[0] for run in behind])
    weights = counts * (counts**2 - 1)
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
