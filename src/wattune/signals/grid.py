"""A signal on an even grid: its busy stretch, stalls and gaps masked, slow drift taken off."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.signals.held import Fresh
from wattune.signals.samples import Flags, Floats

# Grid points per refresh: two, so that linear interpolation costs a line at the Nyquist limit little.
_PER_REFRESH = 2
_MOST_POINTS = 1 << 16
# A stretch counts as busy above this share of the way from the quietest to the busy level.
_BUSY = 0.35
# The quiet level must lie this far below the busy one for the two to be told apart at all.
_APART = 0.25
_COARSE_S = 1.0
# Fewer busy values than this are spikes, and the whole is looked at.
_LEAST_BUSY = 16
# Thermal drift and ageing are smooth; a cubic follows them and leaves everything with three cycles or more.
_DEGREE = 3
# Where a cubic explains less than this share of the variance there is no drift, and cycles would only lose by it.
_LEAST_DRIFT = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Values at `start_s + k·step_s`, mean taken off; `seen` is 1 where a value counts and 0 where it is masked."""

    start_s: float
    step_s: float
    value: Floats
    seen: Floats
    refresh_s: float
    point_s: Floats
    """When the sensor was refreshed, since the start: the values themselves, where the grid is between them."""
    point: Floats

    @property
    def duration_s(self) -> float:
        """The whole stretch, masked parts included."""
        return len(self.value) * self.step_s

    @property
    def variance(self) -> float:
        """Of what counts."""
        total = float(self.seen.sum())
        return float((self.seen * self.value**2).sum() / total) if total else 0.0

    def masked(self, hidden: Flags) -> Grid:
        """The grid without some of its points, mean taken off anew."""
        seen = np.where(hidden, 0.0, self.seen)
        place = np.clip(np.round(self.point_s / self.step_s).astype(np.int64), 0, len(seen) - 1)
        kept = seen[place] > 0
        return replace(self, seen=seen, point_s=self.point_s[kept], point=self.point[kept])._levelled()

    def clipped(self, *, share: float) -> Grid:
        """The grid with values beyond these quantiles brought back to them, so that rare excursions count little."""
        known = self.value[self.seen > 0]
        if not len(known):
            return self
        low, high = np.quantile(known, (share, 1 - share))
        clipped = replace(self, value=np.clip(self.value, low, high), point=np.clip(self.point, low, high))
        return clipped._levelled()

    def averaged(self, over_s: float) -> Grid:
        """The mean of each stretch of so many seconds, as a grid of its own."""
        every = max(round(over_s / self.step_s), 1)
        points = len(self.value) // every * every
        seen = self.seen[:points].reshape(-1, every).sum(axis=1)
        value = (self.value * self.seen)[:points].reshape(-1, every).sum(axis=1) / np.maximum(seen, 1.0)
        known = (seen > every / 2).astype(np.float64)
        step_s = self.step_s * every
        place = np.flatnonzero(known)
        return Grid(
            self.start_s, step_s, value, known, step_s, (place * step_s).astype(np.float64), value[place]
        )._levelled()

    def _levelled(self) -> Grid:
        """The grid with the mean of what counts taken off, and 0 where nothing counts."""
        total = float(self.seen.sum())
        if not total:
            return replace(self, value=np.zeros_like(self.value))
        mean = float((self.seen * self.value).sum()) / total
        return replace(self, value=(self.value - mean) * (self.seen > 0), point=self.point - mean)


def even_grid(signal: Fresh) -> Grid:
    """The busy stretch of a signal on an even grid, drift taken off, gaps masked."""
    first_s, last_s = busy_interval_s(signal)
    step_s = max(signal.refresh_s / _PER_REFRESH, (last_s - first_s) / _MOST_POINTS)
    time_s = np.arange(first_s, last_s, step_s)
    value = np.interp(time_s, signal.time_s, signal.value)
    seen = np.ones_like(value)
    for begin_s, end_s in signal.gaps:
        seen[(time_s > begin_s) & (time_s < end_s)] = 0.0
    inside = (signal.time_s >= first_s) & (signal.time_s < last_s)
    points = signal.time_s[inside] - first_s, signal.value[inside]
    grid = Grid(first_s, step_s, value, seen, signal.refresh_s, *points)._levelled()
    return _without_drift(grid)


def busy_interval_s(signal: Fresh) -> tuple[float, float]:
    """Where the program begins and ends: without quiet at both ends, such as loading before the first step."""
    time_s, value = signal.time_s, signal.value
    coarse = _coarse(signal)
    quiet, busy = np.quantile(coarse, (0.02, 0.8))
    if busy - quiet < _APART * abs(busy):
        return float(time_s[0]), float(time_s[-1])
    level = quiet + _BUSY * (busy - quiet)
    above = np.flatnonzero(value > level)
    # A lone spike before the start is not the start: the second around it has to be busy too.
    inside = above[coarse[above] > level]
    above = inside if len(inside) else above
    if len(above) < _LEAST_BUSY:
        return float(time_s[0]), float(time_s[-1])
    return float(time_s[above[0]]), float(time_s[above[-1]])


def _coarse(signal: Fresh) -> Floats:
    """A running mean over about a second."""
    width = max(round(_COARSE_S / signal.refresh_s), 1)
    total = np.concatenate(([0.0], np.cumsum(signal.value)))
    place = np.arange(len(signal.value))
    low, high = np.maximum(place - width // 2, 0), np.minimum(place + (width + 1) // 2, len(signal.value))
    return np.asarray((total[high] - total[low]) / (high - low))


def _without_drift(grid: Grid) -> Grid:
    known = grid.seen > 0
    if known.sum() < 8:
        return grid
    place = np.linspace(-1.0, 1.0, len(grid.value))
    series = np.polynomial.legendre.legfit(place[known], grid.value[known], _DEGREE)
    smooth = np.polynomial.legendre.legval(place, series)
    left = replace(
        grid,
        value=grid.value - smooth,
        point=grid.point - np.interp(grid.point_s, np.arange(len(smooth)) * grid.step_s, smooth),
    )._levelled()
    return left if left.variance < (1 - _LEAST_DRIFT) * grid.variance else grid


# How far from the usual a stretch must be, in robust standard deviations and as a share of the whole range.
_FAR = 5.0
_LEAST_SHARE = 0.12
# Where more of a trace than this is unusual, it is not.
MOST_HIDDEN = 0.25


def stalls(grid: Grid, *, smooth_s: float) -> Flags:
    """Which points lie in a stretch whose running mean over `smooth_s` is far from the usual.

    None do where much of the trace would.
    """
    width = max(round(smooth_s / grid.step_s), 1)
    smooth = _running_mean(grid.value, width)
    known = smooth[grid.seen > 0]
    if len(known) < 8:
        return np.zeros(len(smooth), dtype=np.bool_)
    middle = float(np.median(known))
    spread = 1.4826 * float(np.median(np.abs(known - middle)))
    reach = float(np.quantile(np.abs(known - middle), 0.995))
    far = np.abs(smooth - middle) > max(_FAR * spread, _LEAST_SHARE * reach)
    hidden = np.asarray(_running_mean(far.astype(np.float64), width) > 0.0)
    return hidden if 0 < hidden.mean() <= MOST_HIDDEN else np.zeros(len(smooth), dtype=np.bool_)


def _running_mean(value: Floats, width: int) -> Floats:
    total = np.concatenate(([0.0], np.cumsum(value)))
    place = np.arange(len(value))
    low, high = np.maximum(place - width // 2, 0), np.minimum(place + (width + 1) // 2, len(value))
    return np.asarray((total[high] - total[low]) / (high - low))
