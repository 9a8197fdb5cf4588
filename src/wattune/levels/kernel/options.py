"""The options of one kind of operation, as a planner sees them.

Notation: an option takes t and spends e; while it runs its GPU does not wait, so what a plan pays for it beyond waiting
at blocking power P is its effective energy ê = e − P·t. Only options on the Pareto frontier of (t, ê) are ever worth
choosing, and only those on its lower convex hull are chosen by the relaxed problem (Perseus, Chung et al. SOSP'24).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import PlanError
from wattune.core.trial import C, Trial

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Options(Generic[C]):
    """The options worth choosing, fastest first, and which of them are corners of the lower convex hull."""

    trials: tuple[Trial[C], ...]
    times_s: Floats
    effective_j: Floats
    """ê, falling."""
    corners: tuple[int, ...]
    """Places of the hull's corners, the fastest and the slowest option among them."""

    @classmethod
    def of(cls, trials: Iterable[Trial[C]], *, blocking_power_w: float, kind: str) -> Options[C]:
        """The options of a kind; an error where there are none or one takes no time."""
        found = tuple(trials)
        if not found:
            raise PlanError(f"{kind} has no options", hint="give the profile at least one row for it")
        for trial in found:
            if not trial.cost.time_s > 0:
                raise PlanError(f"{kind} takes {trial.cost.time_s:g} s at {trial.choice}, which cannot be")
        kept = _worth_choosing(found, blocking_power_w)
        times_s = np.array([trial.cost.time_s for trial in kept])
        effective_j = np.array([effective(trial, blocking_power_w) for trial in kept])
        return cls(kept, times_s, effective_j, _lower_hull(times_s, effective_j))

    @property
    def hull_times_s(self) -> Floats:
        """Times of the hull's corners, rising."""
        return self.times_s[list(self.corners)]

    @property
    def hull_effective_j(self) -> Floats:
        """ê of the hull's corners, falling ever more slowly."""
        return self.effective_j[list(self.corners)]


def effective(trial: Trial[C], blocking_power_w: float) -> float:
    """ê of one option."""
    return trial.cost.energy_j - blocking_power_w * trial.cost.time_s


def _worth_choosing(trials: tuple[Trial[C], ...], blocking_power_w: float) -> tuple[Trial[C], ...]:
    """The Pareto frontier of (t, ê), fastest first."""
    kept: list[Trial[C]] = []
    for trial in sorted(trials, key=lambda trial: (trial.cost.time_s, trial.cost.energy_j)):
        if not kept or effective(trial, blocking_power_w) < effective(kept[-1], blocking_power_w) - 1e-9:
            kept.append(trial)
    return tuple(kept)


def _lower_hull(times_s: Floats, effective_j: Floats) -> tuple[int, ...]:
    """Places of the corners of the lower convex hull (Andrew's monotone chain)."""
    hull: list[int] = []
    for place in range(len(times_s)):
        while len(hull) >= 2 and not _turns_up(times_s, effective_j, hull[-2], hull[-1], place):
            hull.pop()
        hull.append(place)
    return tuple(hull)


def _turns_up(times_s: Floats, effective_j: Floats, one: int, two: int, three: int) -> bool:
    first = (effective_j[two] - effective_j[one]) * (times_s[three] - times_s[one])
    return bool(first < (effective_j[three] - effective_j[one]) * (times_s[two] - times_s[one]))
