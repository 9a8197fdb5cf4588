"""How much of a signal is the same in every cycle of a period, judged by the sensor's own values at their own times.

Values far apart in time but at the same phase of the cycle are compared. That is free of the images that sampling
makes in a spectrum: a value is what it is, however fast the load moves between two of them.
"""

from __future__ import annotations

import numpy as np

from wattune.signals.grid import Grid

_MOST_BINS = 48
# Values per bin, below which a fold describes its own noise.
_PER_BIN = 5.0


def folded_share(grid: Grid, period_s: float, *, like_s: float, length_s: float) -> float:
    """The share of the variance that folding explains, in stretches of `length_s`, allowing for its bins.

    Bins are as wide as those of a period `like_s` would be, so that the folds of two periods can be compared.
    """
    stretch_s = max(min(length_s, grid.duration_s), 1e-9)
    number = (grid.point_s / stretch_s).astype(np.int64)
    usual = len(grid.point) / max(int(number.max(initial=0)) + 1, 1)
    wide = max(min(_MOST_BINS, int(usual / _PER_BIN * like_s / period_s)), 4)
    bins = max(min(round(wide * period_s / like_s), int(usual / _PER_BIN)), 4)
    place = number * bins + np.minimum((grid.point_s / period_s % 1.0 * bins).astype(np.int64), bins - 1)
    count, stretches = np.bincount(place), np.bincount(number)
    mean = np.bincount(place, weights=grid.point) / np.maximum(count, 1)
    level = np.bincount(number, weights=grid.point) / np.maximum(stretches, 1)
    left = float(((grid.point - mean[place]) ** 2).sum())
    total = float(((grid.point - level[number]) ** 2).sum())
    spare = len(grid.point) - int((count > 0).sum())
    if total <= 0 or spare <= 0:
        return 0.0
    return 1 - left / spare / (total / max(len(grid.point) - int((stretches > 0).sum()), 1))
