"""Evidence of the other GPUs of a job on a period found in the power of one.

The sensors of GPUs refresh at the same rate, each in its own phase. GPUs that take their steps together rise and fall
together, within a refresh. A load too fast for the sensor has the same alias in all of them, but delayed by the
phase of each sensor: by any part of the apparent period.

Notation: τ time between two refreshes, T period. Of n GPUs with an alias all lie within τ by chance (2.5τ/T)ⁿ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.signals.active import running_mean
from wattune.signals.grid import Grid
from wattune.signals.samples import Floats, PowerSamples, quantiles

# Periods per segment, and the least segments: a pause disturbs few of them.
_CYCLES, _LEAST_SEGMENTS = 4.0, 5
# Excursions beyond these quantiles count no more than the quantiles.
_CLIP = 0.05
# Slower variation may be common to GPUs that share nothing but their room.
_SLOW_S = 30.0
# The least correlation of two GPUs, in a segment or in all, and the least share of segments that agree.
_CORRELATED, _MOST = 0.4, 0.7
# Refreshes by which GPUs in phase differ: each shows a value that is up to one old.
_WITHIN = 1.25
_CHANCE = 0.02


@dataclass(frozen=True, slots=True)
class PhaseEvidence:
    """The number of other GPUs that move with the period, together with the first one and delayed."""

    together: int = 0
    delayed: int = 0
    chance: float = 1.0
    """Probability that as many are together where the period is an alias."""

    @property
    def is_real(self) -> bool:
        return self.delayed == 0 and self.chance < _CHANCE


def phase_evidence(grid: Grid, others: tuple[PowerSamples, ...], period_s: float) -> PhaseEvidence:
    """Compare when the power of other GPUs moves with the power on the grid."""
    if period_s * _CYCLES * _LEAST_SEGMENTS > grid.duration_s:
        return PhaseEvidence()
    time_s = grid.time_s
    own = _band(grid.value, grid.step_s, period_s)
    together = delayed = 0
    for other in others:
        known = other.in_order()
        if len(known) < 2:
            continue
        values = _band(np.interp(time_s, known.time_s, known.power_w), grid.step_s, period_s)
        near = _near(own, values, grid, period_s)
        together += near > _MOST
        delayed += 0 <= near < 1 - _MOST
    share = min(2 * _WITHIN * grid.refresh_s / period_s, 1.0)
    return PhaseEvidence(together, delayed, share**together)


def move_together(grid: Grid, others: tuple[PowerSamples, ...]) -> bool:
    """Return whether the power of most other GPUs varies with that on the grid, as that of GPUs that share steps."""
    kept, time_s = grid.mask > 0, grid.time_s
    own = _band(grid.value, grid.step_s, _SLOW_S)[kept]
    known = [other for other in (other.in_order() for other in others) if len(other) >= 2]
    near = [
        np.corrcoef(own, _band(np.interp(time_s, one.time_s, one.power_w), grid.step_s, _SLOW_S)[kept])[0, 1]
        for one in known
    ]
    return len(near) > 0 and quantiles(np.nan_to_num(near), 0.5)[0] > _CORRELATED


def _band(value: Floats, step_s: float, period_s: float) -> Floats:
    """Return the signal without slow variation and excursions."""
    quick = value - running_mean(value, max(round(period_s / step_s), 1))
    low, high = quantiles(quick, _CLIP, 1 - _CLIP)
    return np.clip(quick, low, high)


def _near(first: Floats, second: Floats, grid: Grid, period_s: float) -> float:
    """Return the share of segments in which two signals correlate most within a refresh; -1 where they hardly do."""
    reach, points = round(period_s / 2 / grid.step_s), round(_CYCLES * period_s / grid.step_s)
    segments = (len(first) - 2 * reach) // points
    if segments < _LEAST_SEGMENTS or reach < 1:
        return -1.0
    inside = slice(reach, reach + segments * points)
    kept = grid.mask[inside].reshape(segments, points).mean(axis=1) > 0.9
    middle = first[inside].reshape(segments, points)
    lags = np.arange(-reach, reach + 1)
    moved = [second[reach + lag : reach + lag + segments * points].reshape(segments, points) for lag in lags]
    size = np.sqrt((middle**2).sum(axis=1) * np.array([(part**2).sum(axis=1) for part in moved]))
    level = np.array([(middle * part).sum(axis=1) for part in moved]) / np.maximum(size, 1e-12)
    clear = kept & (level.max(axis=0) > _CORRELATED)
    if clear.sum() < max(_LEAST_SEGMENTS, segments / 2):
        return -1.0
    late_s = lags[np.argmax(level[:, clear], axis=0)] * grid.step_s
    return float((np.abs(late_s) <= _WITHIN * grid.refresh_s).mean())
