"""Areas dominated in two objectives, both to be made small, and how far found points are from a frontier.

Notation
    (a, b)  a point: the first and the second objective, say time and energy or their logarithms
    r       reference point, worse than all points that count
    strips  the frontier cuts the first axis into strips [lo, hi] with a ceiling c of the second objective
    HVI     area that a new point adds: Σ over strips of ((hi − a)⁺ − (lo − a)⁺)·(c − b)⁺
    ε       smallest factor by which found points, scaled down in both objectives, dominate a frontier, minus 1
            (multiplicative ε-indicator, Zitzler et al. 2003)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
