"""Plans of a layer: settings of all partitions at common clocks, which plans suffice, and what they lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattune.levels.overlap.hypervolume import distances, epsilon, front_places, hypervolume
from wattune.levels.overlap.joint_state import JointPart
from wattune.levels.overlap.search import Floats, Places

_MARGIN, _MARGIN_SHARE = 0.06, 0.2
"""The reference lies beyond the ends of the frontier by this, or by this share of its extent."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """What a search expects to be still missing."""

    hypervolume_share: float
    """Of the hypervolume that all choices together would have."""
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class ComposedPlans:
    """Settings of all partitions at a common clock, a row per plan."""

    costs: Floats
    """(plans, 2): seconds and joules of a layer."""
    places: Places
    """(plans, partitions): of the settings in their spaces; −1 where a partition does not run."""


def missing(have: Floats, every: Floats) -> tuple[float, float]:
    """Return the share of hypervolume and the ε that plans lack, if all of these exist."""
    both = np.concatenate([have, every])
    front = both[front_places(both)]
    limit = _reference(np.log(have), np.log(front))
    return 1.0 - hypervolume(np.log(have), limit) / hypervolume(np.log(front), limit), epsilon(have, front)


def _reference(points: Floats, expected: Floats) -> Floats:
    """Return the reference point of logarithms: somewhat beyond the ends of the measured and the expected frontier."""
    both = np.concatenate([points, expected])
    front = both[front_places(both)]
    extent = np.ptp(front, axis=0)
    ends = np.maximum(front.max(axis=0), points[front_places(points)].max(axis=0))
    return np.asarray(ends + np.maximum(_MARGIN_SHARE * extent, _MARGIN))


def composed_plans(
    parts: Sequence[JointPart], direction: str, costs: Sequence[Floats], *, tolerance: float = 0.0
) -> ComposedPlans:
    """Compose a layer of one direction by these costs of settings; where a cost is infinite, there is no plan.

    Above a tolerance of 0 settings, and sums of them, are left out that others come so near to.
    """
    clocks = [np.array([choice.sm_mhz for choice in part.space.choices]) for part in parts]
    found = []
    for clock in np.unique(clocks[0]):
        total, picks = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
        for part, own, cost in zip(parts, clocks, costs, strict=True):
            count = part.partition.per_layer(direction)
            if not count:
                picks = np.column_stack([picks, np.full(len(picks), -1)])
                continue
            at = np.flatnonzero((own == clock) & np.isfinite(cost[:, 0]))
            kept = at[sufficient(cost[at], tolerance)]
            sums = (total[:, None] + count * cost[kept][None]).reshape(-1, 2)
            rows = np.array(sufficient(sums, tolerance / len(parts)), dtype=np.int64)
            before, added = np.divmod(rows, max(len(kept), 1))
            total, picks = sums[rows], np.column_stack([picks[before], kept[added]])
        found.append(ComposedPlans(total, picks))
    return ComposedPlans(np.concatenate([own.costs for own in found]), np.concatenate([own.places for own in found]))


def uncovered(points: Floats, known: Floats, tolerance: float) -> list[int]:
    """Return few rows of points that, beside known ones, have an ε to all points of at most the tolerance."""
    front = front_places(points)
    left = front[distances(known, points[front]) > tolerance]
    return [int(left[row]) for row in sufficient(points[left], tolerance)] if len(left) else []


def sufficient(points: Floats, tolerance: float) -> list[int]:
    """Return few rows whose ε to all points is at most the tolerance: from the fastest on, the furthest that do."""
    front = front_places(points)
    if not tolerance:
        return [int(row) for row in front]
    ordered, kept, at = points[front], [], 0
    while at < len(front):
        within = np.flatnonzero(ordered[:, 0] <= ordered[at, 0] * (1.0 + tolerance))
        kept.append(int(front[within[-1]]))
        done = ordered[:, 1] * (1.0 + tolerance) >= ordered[within[-1], 1]
        at = int(np.flatnonzero(done)[-1]) + 1
    return kept
