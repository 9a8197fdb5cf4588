"""A signal on an even grid: its busy interval, with stalls and gaps masked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.signals.active import busy_interval_s, running_mean
from wattune.signals.samples import Flags, Floats, SensorUpdates, median, quantiles

# Grid points per refresh: two, so that linear interpolation costs a line at the Nyquist limit little.
_PER_REFRESH = 2
_MOST_POINTS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Values at `start_s + k·step_s`, mean removed; `mask` is 1 where a value counts, else 0."""

    start_s: float
    step_s: float
    value: Floats
    mask: Floats
    refresh_s: float
    point_s: Floats
    """Times of the sensor's updates since the start; `point` has their values."""
    point: Floats

    @property
    def time_s(self) -> Floats:
        return np.asarray(self.start_s + np.arange(len(self.value)) * self.step_s, dtype=np.float64)

    @property
    def duration_s(self) -> float:
        """Length, masked parts included."""
        return len(self.value) * self.step_s

    @property
    def variance(self) -> float:
        """Variance of the unmasked values."""
        total = float(self.mask.sum())
        return float((self.mask * self.value**2).sum() / total) if total else 0.0

    def masked(self, hidden: Flags) -> Grid:
        """Mask some of the points and remove the mean again."""
        mask = np.where(hidden, 0.0, self.mask)
        place = np.clip(np.round(self.point_s / self.step_s).astype(np.int64), 0, len(mask) - 1)
        kept = mask[place] > 0
        return replace(self, mask=mask, point_s=self.point_s[kept], point=self.point[kept])._levelled()

    def clipped(self, *, share: float) -> Grid:
        """Clip values to these quantiles, so that rare excursions count little."""
        known = self.value[self.mask > 0]
        if not len(known):
            return self
        low, high = quantiles(known, share, 1 - share)
        clipped = replace(self, value=np.clip(self.value, low, high), point=np.clip(self.point, low, high))
        return clipped._levelled()

    def middle(self, most: int) -> Grid:
        """Return the middle part of so many points; the whole where it has no more."""
        first = (len(self.value) - most) // 2
        if first <= 0:
            return self
        from_s, to_s = first * self.step_s, (first + most) * self.step_s
        inside = (self.point_s >= from_s) & (self.point_s < to_s)
        part = replace(
            self,
            start_s=self.start_s + from_s,
            value=self.value[first : first + most],
            mask=self.mask[first : first + most],
            point_s=self.point_s[inside] - from_s,
            point=self.point[inside],
        )
        return part._levelled()

    def averaged(self, over_s: float) -> Grid:
        """Return the means of intervals of so many seconds, as a coarser grid."""
        coarse = self.thinned(max(round(over_s / self.step_s), 1))
        place = np.flatnonzero(coarse.mask)
        point_s = (place * coarse.step_s).astype(np.float64)
        return replace(coarse, refresh_s=coarse.step_s, point_s=point_s, point=coarse.value[place])._levelled()

    def thinned(self, every: int) -> Grid:
        """Average `every` neighbours; the sensor's own updates stay."""
        points = len(self.value) // every * every
        mask = self.mask[:points].reshape(-1, every).sum(axis=1)
        value = (self.value * self.mask)[:points].reshape(-1, every).sum(axis=1) / np.maximum(mask, 1.0)
        return replace(self, step_s=self.step_s * every, value=value, mask=(mask > every / 2).astype(np.float64))

    def _levelled(self) -> Grid:
        """Remove the mean of the unmasked values, and set masked ones to 0."""
        total = float(self.mask.sum())
        if not total:
            return replace(self, value=np.zeros_like(self.value))
        mean = float((self.mask * self.value).sum()) / total
        return replace(self, value=(self.value - mean) * (self.mask > 0), point=self.point - mean)


def even_grid(signal: SensorUpdates) -> Grid:
    """Interpolate the busy interval of a signal on an even grid, and mask gaps."""
    first_s, last_s = busy_interval_s(signal)
    step_s = max(signal.refresh_s / _PER_REFRESH, (last_s - first_s) / _MOST_POINTS)
    time_s = np.arange(first_s, last_s, step_s)
    value = np.interp(time_s, signal.time_s, signal.value)
    mask = np.ones_like(value)
    for begin_s, end_s in signal.gaps:
        mask[(time_s > begin_s) & (time_s < end_s)] = 0.0
    inside = (signal.time_s >= first_s) & (signal.time_s < last_s)
    points = signal.time_s[inside] - first_s, signal.value[inside]
    return Grid(first_s, step_s, value, mask, signal.refresh_s, *points)._levelled()


# How far from the median a stall is, in robust standard deviations and as a share of the whole range.
_FAR = 5.0
_LEAST_SHARE = 0.12
# Where more of a trace than this would be a stall, none of it is.
MOST_HIDDEN = 0.25


def stalls(grid: Grid, *, smooth_s: float) -> Flags:
    """Mark the points whose running mean over `smooth_s` is far from the median; none where too many would be."""
    width = max(round(smooth_s / grid.step_s), 1)
    smooth = running_mean(grid.value, width)
    known = smooth[grid.mask > 0]
    if len(known) < 8:
        return np.zeros(len(smooth), dtype=np.bool_)
    middle = median(known)
    spread = 1.4826 * median(np.abs(known - middle))
    reach = quantiles(np.abs(known - middle), 0.995)[0]
    far = np.abs(smooth - middle) > max(_FAR * spread, _LEAST_SHARE * reach)
    hidden = np.asarray(running_mean(far.astype(np.float64), width) > 0.0)
    return hidden if 0 < hidden.mean() <= MOST_HIDDEN else np.zeros(len(smooth), dtype=np.bool_)


def fast_length(least: int) -> int:
    """Return the smallest length from `least` on that has no other factors than 2, 3 and 5."""
    best = 1 << max(least - 1, 0).bit_length()
    for fives in (1, 5, 25, 125):
        for threes in (1, 3, 9, 27, 81):
            odd = fives * threes
            twos = 1 << max(-(-least // odd) - 1, 0).bit_length()
            best = min(best, odd * twos)
    return best
