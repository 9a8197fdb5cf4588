"""Epochs to the target over batch size: E(b) = E_min·(1 + b/B_c + B_s/b), never known exactly.

Above the critical batch size B_c every further sample in a batch teaches little (McCandlish et al., "An empirical
model of large-batch training", 2018, eq. 2.11, written in epochs); below B_s the steps are so noisy that learning slows
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from wattune.levels.job.smooth_curve import Belief, Departure, Floats, Site, believe

_CRITICAL = range(-2, 9)
"""log₂(B_c/b₀), b₀ the default: owners seldom train far above the critical size, and often far below."""

_SMALL = range(-10, 2)
"""log₂(B_s/b₀)."""

_DEPARTURE = Departure(shared_sd=0.15, own_sd=0.3, octaves=1.0, single_sd=0.07, own_level_sd=1.0)
"""Recorded trainings (Zeus, NSDI'23, to all their targets) stray from the law by an eighth over an octave or so, which
is where the marginal likelihood of five jobs is highest, and single sizes of the two that stray most by another 7 %. A
change of the data moves the level by any factor near 1, and the ratios of neighbouring sizes by a fifth or so."""


@lru_cache(maxsize=1)
def _pairs() -> Floats:
    """log₂ of B_c/b₀ and B_s/b₀, one hypothesis a row; the fall ends before the rise begins."""
    return np.array([(c, s) for c, s in product(_CRITICAL, _SMALL) if s <= c - 1], dtype=float)


def epochs_belief(grid: Floats, sites: Sequence[Site], *, default_x: float) -> Belief:
    """What is believed of the logarithm of the epochs to the target at each log₂ batch size of the grid."""
    at = np.array([site.x for site in sites])
    return believe(
        grid,
        sites,
        laws=_laws(grid - default_x),
        site_laws=_laws(at - default_x),
        prior=np.zeros(len(_pairs())),
        departure=_DEPARTURE,
    )


def _laws(octaves: Floats) -> Floats:
    critical, small = _pairs().T
    above = np.exp2(octaves[None, :] - critical[:, None])
    below = np.exp2(small[:, None] - octaves[None, :])
    return np.asarray(np.log1p(above + below))
