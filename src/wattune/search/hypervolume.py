"""Areas dominated in two objectives, both to be made small, and how far found points are from a frontier.

Notation
    (a, b)  a point: the first and the second objective, say time and energy or their logarithms
    r       reference point, worse than all points that count
    strips  the frontier cuts the first axis into strips [lo, hi] with a ceiling c of the second objective
    HVI     area that a new point adds: Σ over strips of ((hi − a)⁺ − (lo − a)⁺)·(c − b)⁺
    EHVI    its expectation for independent normal a and b: a product of two expected gains per strip, hence exact
            (Emmerich, Deutz and Klinkenberg 2011; Yang et al. 2019)
    MI      largest shift u of both objectives at which a new point is still not dominated by points that are made
            better by u: what it adds to an additive ε (maximin improvement, Svenson and Santner 2016)
    EMI     its expectation beyond a tolerance for independent normal a and b: ∫ P(not dominated after shift u) du, the
            probability being a sum over strips
    ε       smallest factor by which found points, scaled down in both objectives, dominate a frontier, minus 1
            (multiplicative ε-indicator, Zitzler et al. 2003)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattune.core.normal import expected_gain

Floats = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_TAIL = 4.0
"""Standard deviations beyond the expected improvement at which its integral ends."""


def front_places(points: Floats) -> NDArray[np.int64]:
    """Return the rows of (n, 2) points that no other dominates, the smallest first objective first."""
    order = np.lexsort((points[:, 1], points[:, 0]))
    second = points[order, 1]
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
    return np.asarray(order[second < best_before])


def hypervolume(points: Floats, reference: Floats) -> float:
    """Return the area between the points and the reference."""
    low, high, ceiling = _strips(points, reference)
    inside = np.isfinite(low)
    return float(((high - low)[inside] * (reference[1] - ceiling[inside])).sum())


def improvement(points: Floats, new: Floats, reference: Floats) -> Floats:
    """(candidates,): the area that each of the (m, 2) new points adds by itself to those of the points."""
    low, high, ceiling = _strips(points, reference)
    first, second = new[:, :1], new[:, 1:]
    width = np.maximum(high - np.maximum(first, low), 0.0)
    return np.asarray((width * np.maximum(ceiling - second, 0.0)).sum(axis=1))


def expected_improvement(points: Floats, mean: Floats, sd: Floats, reference: Floats) -> Floats:
    """(candidates,): the expected area that each adds, for (m, 2) means and deviations of independent values."""
    low, high, ceiling = _strips(points, reference)
    first, first_sd = mean[:, :1], sd[:, :1]
    # A strip without a left end contributes all of its gain.
    left = np.where(np.isfinite(low), expected_gain(np.where(np.isfinite(low), low, 0.0) - first, first_sd), 0.0)
    width = expected_gain(high - first, first_sd) - left
    return np.asarray((width * expected_gain(ceiling - mean[:, 1:], sd[:, 1:])).sum(axis=1))


def expected_maximin(points: Floats, mean: Floats, sd: Floats, tolerance: float) -> Floats:
    """(candidates,): by how much each is expected to extend the points beyond a tolerance, in both objectives."""
    front = points[front_places(points)]
    certain = (front[None] - mean[:, None]).max(axis=2).min(axis=1)
    span = np.maximum(certain - tolerance, 0.0) + _TAIL * sd.max(axis=1)
    shifts = tolerance + span[:, None] * (_NODES + 1.0) / 2.0
    below = ndtr((front[:, 0] - shifts[..., None] - mean[:, :1, None]) / sd[:, :1, None])
    lower = ndtr((front[:, 1] - shifts[..., None] - mean[:, 1:, None]) / sd[:, 1:, None])
    # Strip by strip: left of all points, between each and the next, and right of all.
    left, right = np.insert(below, 0, 0.0, axis=2), np.insert(below, below.shape[2], 1.0, axis=2)
    undominated = ((right - left) * np.insert(lower, 0, 1.0, axis=2)).sum(axis=2)
    return np.asarray(span / 2.0 * (undominated @ _WEIGHTS))


def epsilon(found: Floats, frontier: Floats) -> float:
    """Return ε of found points to a frontier, both (n, 2) and positive; inf without points."""
    return max(float(distances(found, frontier).max()), 0.0)


def distances(found: Floats, frontier: Floats) -> Floats:
    """(points of the frontier,): ε of found points to each of them; below 0 where they dominate it."""
    if not len(found):
        return np.full(len(frontier), np.inf)
    front = found[front_places(found)]
    # Along a frontier a/b grows, so the best point for another is one of the two between which its a/b lies.
    after = np.searchsorted(front[:, 0] / front[:, 1], frontier[:, 0] / frontier[:, 1])
    near = np.stack([np.maximum(after - 1, 0), np.minimum(after, len(front) - 1)])
    return np.asarray((front[near] / frontier[None]).max(axis=2).min(axis=0) - 1.0)


def _strips(points: Floats, reference: Floats) -> tuple[Floats, Floats, Floats]:
    """Return left ends, right ends and ceilings; the first strip starts at minus infinity."""
    inside = points[(points < reference).all(axis=1)]
    front = inside[front_places(inside)]
    ends = np.concatenate([front[:, 0], reference[:1]])
    return np.concatenate([[-np.inf], front[:, 0]]), ends, np.concatenate([reference[1:], front[:, 1]])
