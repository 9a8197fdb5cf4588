"""Stretches in which a program does something else: saving, evaluating, waiting for a disk."""

from __future__ import annotations

import numpy as np

from wattune.signals.grid import Grid
from wattune.signals.samples import Flags, Floats

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
