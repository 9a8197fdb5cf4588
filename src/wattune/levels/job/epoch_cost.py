"""What an epoch costs over batch size: c(b) = c₀·(s·b₀/b + r·b/b₀ + 1 − s − r).

Every iteration carries a fixed cost (s: its share at the default b₀), the work of the samples is the same at any size,
and very large batches may cost more again where they crowd the memory (r). A part that draws little power while the
job runs is waiting most of the time, so s is large: that is seen before a second size was ever tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from wattune.levels.job.smooth_curve import Belief, Departure, Floats, Site, believe

_FIXED = (0.0, 0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
_CROWDED = (0.0, 0.15, 0.4, 0.7)
"""r."""

_OFTEN_CROWDED, _BUSY_CROWDED = 0.4, 0.04
"""How likely r is above 0 on a part that is not kept busy, and on one that is: a crowded memory makes it wait."""

_IDLE_DRAW, _BUSY_DRAW = 0.25, 0.65
"""Share of its highest limit that a part draws when it mostly waits and when it is kept busy: from 0.15 to 0.3 and from
0.6 to 0.9 on parts of several generations."""

_HINT_SD = 0.3
"""How far the fixed share may be from what the draw suggests."""

_DEPARTURE = Departure(shared_sd=0.18, own_sd=0.12, octaves=2.5, single_sd=0.03, own_level_sd=1.5)
"""Recorded epochs stray from the form by a tenth over a few octaves, and a single size by 3 %."""


@lru_cache(maxsize=1)
def _hypotheses() -> Floats:
    """s and r, one hypothesis a row."""
    return np.array([(s, r) for s, r in product(_FIXED, _CROWDED) if s + r <= 1.0])


def cost_belief(grid: Floats, sites: Sequence[Site], *, default_x: float, draw: float | None) -> Belief:
    """What is believed of the logarithm of an epoch's cost at each log₂ batch size of the grid.

    `draw` is the power at the default size as a share of the highest limit, None where it was not measured.
    """
    at = np.array([site.x for site in sites])
    return believe(
        grid,
        sites,
        laws=_laws(grid - default_x),
        site_laws=_laws(at - default_x),
        prior=_prior(draw),
        departure=_DEPARTURE,
    )


def _prior(draw: float | None) -> Floats:
    fixed, crowded = _hypotheses().T
    busy = 0.5 if draw is None else _between(draw, _BUSY_DRAW - 0.1, _BUSY_DRAW + 0.1)
    some = _OFTEN_CROWDED + busy * (_BUSY_CROWDED - _OFTEN_CROWDED)
    prior = np.log(np.where(crowded > 0.0, some / (len(_CROWDED) - 1), 1.0 - some))
    if draw is None:
        return prior
    return np.asarray(prior - 0.5 * ((fixed - 1.0 + _between(draw, _IDLE_DRAW, _BUSY_DRAW)) / _HINT_SD) ** 2)


def _between(value: float, low: float, high: float) -> float:
    """Where a value lies from low (0) to high (1)."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _laws(octaves: Floats) -> Floats:
    fixed, crowded = _hypotheses().T
    smaller, larger = np.exp2(-octaves)[None, :], np.exp2(octaves)[None, :]
    steady = 1.0 - fixed - crowded
    return np.asarray(np.log(fixed[:, None] * smaller + crowded[:, None] * larger + steady[:, None] + 1e-3))
