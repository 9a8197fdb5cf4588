"""How much of a signal is the same in every cycle of a period, judged by the sensor's own values at their own times.

Values far apart in time but at the same phase of the cycle are compared. That is free of the images that sampling
makes in a spectrum: a value is what it is, however fast the load moves between two of them.
"""

from __future__ import annotations

import numpy as np

from wattune.signals.grid import Grid
from wattune.signals.samples import Ints

_MOST_BINS = 48
# Values per bin, below which a fold describes its own noise.
_PER_BIN = 5.0
# Values per stretch, below which a cycle would have too few bins to show its shape.
_LEAST_VALUES = 120


def folded_shares(grid: Grid, shorter_s: float, longer_s: float, *, length_s: float) -> tuple[float, float]:
    """The shares of the variance that folding at two periods explains, in stretches of `length_s` or more.

    Each gets as many bins as the values allow. So the shorter has the finer ones, which show what is faster than the
    sensor as well, and a longer one that merely falls in step with the sensor gains nothing. A share allows for the
    number of its bins.
    """
    stretch_s = max(min(max(length_s, _LEAST_VALUES * grid.refresh_s), grid.duration_s), 1e-9)
    number = (grid.point_s / stretch_s).astype(np.int64)
    values = len(grid.point) / max(int(number.max(initial=0)) + 1, 1)
    most = max(int(values / _PER_BIN), 4)
    shorter = _share(grid, number, shorter_s, min(_MOST_BINS, most))
    return shorter, _share(grid, number, longer_s, min(round(_MOST_BINS * longer_s / shorter_s), most))


def _share(grid: Grid, number: Ints, period_s: float, bins: int) -> float:
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
