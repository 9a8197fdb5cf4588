"""How far programs depart from the physics of `gear_bank`, and how far what is seen of them is off.

Notation
    r       departure of a quantity at a gear: smooth in the clocks, a little at each gear by itself, and the same at
            all gears where a level or a gain is not known
    S       covariance of r and of the errors, among the observations
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from wattune.response.evidence import Evidence, EvidencePoint, WindowEvidence
from wattune.response.program_ensemble import ClockPoint, Floats

TIME, POWER, WAITING, TRAFFIC = range(4)
"""Kinds of quantity; all are logarithms."""

FREE = 3.0
"""Standard deviation of a logarithm that nothing is known of: the unit of the pace; watts where no limit is known."""

SMOOTH = (0.004, 0.025, 0.003, 0.006)
"""Standard deviation of what is smooth. Time: what a p-norm plus a constant misses on published sweeps (0.3 %). Power:
twice what P0 + a·f·V² misses (1 %), because the members are few where their parameters are many. Busy share: a third of
a point. Traffic: half a percent; bytes per unit of work do not depend on clocks."""
SINGLE = (0.001, 0.003, 0.0025, 0.004)
"""The same at each gear by itself."""
_LIVE = ((1.0, 0.0),)
_RECORDED = ((3.0, 0.0), (10.0, -4.0), (30.0, -6.0))
"""How many times as far time and power at single gears may lie off, and what that costs in likelihood. Live windows
follow each other and bring utilisation; rows of recorded tables may lie days apart, have noise of their own, and bring
none."""
_GAIN = (0.0, 0.0, 0.02, 0.03)
"""How far a driver's idea of busy is off, as a share of it, at all gears alike."""
_REACH_X, _REACH_Y = 0.35, 0.4
"""Logarithms of the core and memory clock over which departures are alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The observations in a row: of which kind, at which gear, what, and its standard error."""

    kind: tuple[int, ...]
    point: tuple[int, ...]
    value: Floats
    error: Floats

    def of(self, kind: int) -> list[int]:
        """The places of one kind."""
        return [place for place, each in enumerate(self.kind) if each == kind]


@dataclass(frozen=True, slots=True, eq=False)
class ResidualModel:
    """r over some gears: where they lie, and how far single ones are off, by kind."""

    where: Floats
    single: tuple[float, ...]
    free_power: bool

    def between(self, kind: int, first: list[int], second: list[int]) -> Floats:
        """(first, second): covariance of r of one kind."""
        alike, same = _alike(self.where, first, second)
        return np.asarray(SMOOTH[kind] ** 2 * alike + self.single[kind] ** 2 * same + self.level(kind) ** 2)

    def variance(self, kind: int) -> float:
        """Of r at any gear."""
        return SMOOTH[kind] ** 2 + self.single[kind] ** 2 + self.level(kind) ** 2

    def level(self, kind: int) -> float:
        """Standard deviation of what is the same at all gears."""
        return FREE if kind == TIME or (kind == POWER and self.free_power) else 0.0


def observed_at(measured: Evidence, places: dict[ClockPoint, int]) -> Observed:
    """The evidence in a row."""
    rows: list[tuple[int, int, WindowEvidence]] = [
        (kind, places[point], seen)
        for point, entry in measured.items()
        for kind, seen in enumerate(_quantities(entry))
        if seen is not None
    ]
    return Observed(
        tuple(kind for kind, _, _ in rows),
        tuple(place for _, place, _ in rows),
        np.array([seen.value for _, _, seen in rows]),
        np.array([seen.error for _, _, seen in rows]),
    )


def residuals(
    points: tuple[ClockPoint, ...], observed: Observed, off: Floats, *, free_power: bool
) -> tuple[ResidualModel, Floats]:
    """The departure that the observations make likeliest, and S; `off` is (members, observed): y − h."""
    best: tuple[float, ResidualModel, Floats] | None = None
    for factor, cost in _LIVE if WAITING in observed.kind else _RECORDED:
        single = (SINGLE[0] * factor, SINGLE[1] * factor, *SINGLE[2:])
        residual = ResidualModel(_where(points), single, free_power)
        noise = _noise(observed, residual)
        lower = np.linalg.cholesky(noise)
        squares = (solve_triangular(lower, off.T, lower=True) ** 2).sum(axis=0)
        likely = float(logsumexp(-0.5 * squares)) - float(np.log(np.diag(lower)).sum()) + cost
        if best is None or likely > best[0]:
            best = (likely, residual, noise)
    assert best is not None
    return best[1], best[2]


def _quantities(entry: EvidencePoint) -> tuple[WindowEvidence | None, ...]:
    return (entry.log_step_time, entry.log_power, entry.log_waiting, entry.log_traffic)


def _noise(observed: Observed, residual: ResidualModel) -> Floats:
    """S."""
    total = np.diag(observed.error**2)
    for kind in range(4):
        rows = observed.of(kind)
        if rows:
            at = [observed.point[row] for row in rows]
            block = residual.between(kind, at, at)
            total[np.ix_(rows, rows)] += _seen_as(kind, block, observed.value[rows])
    return total


def _seen_as(kind: int, block: Floats, value: Floats) -> Floats:
    """The covariance with what the driver's counting adds.

    Errors of the busy share are given in that share; what they do to the logarithm of the rest grows as that shrinks.
    """
    if kind == WAITING:
        steep = np.exp(-value)
        return np.asarray(block * np.outer(steep, steep) + _GAIN[kind] ** 2 * np.outer(steep - 1.0, steep - 1.0))
    return block + _GAIN[kind] ** 2


def _where(points: tuple[ClockPoint, ...]) -> Floats:
    """(gears, 3): where each lies, in units over which departures are alike."""
    x = np.log([1.0 if point.x is None else point.x for point in points]) / _REACH_X
    y = np.log([point.y for point in points]) / _REACH_Y
    limit = np.log([1.0 if point.limit == np.inf else point.limit for point in points]) / _REACH_X
    return np.stack([x, y, limit], axis=1)


def _alike(where: Floats, first: list[int], second: list[int]) -> tuple[Floats, Floats]:
    """(first, second): how alike the departures at two gears are, and whether it is the same gear."""
    distance = ((where[first][:, None, :] - where[second][None, :, :]) ** 2).sum(axis=2)
    same = np.asarray(np.array(first)[:, None] == np.array(second)[None, :], dtype=np.float64)
    return np.exp(-0.5 * distance), same
