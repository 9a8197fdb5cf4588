"""Residuals between programs and the physics of `program_ensemble`, and errors of the observations.

Notation
    r       residual of a quantity at a point: smooth in the clocks, a little at each point by itself, and the same at
            all points where a level or a gain is not known
    S       covariance of r and of the errors, among the observations
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from wattune.response.ensemble import Floats
from wattune.response.evidence import Evidence, EvidencePoint, WindowEvidence
from wattune.response.program_ensemble import ClockPoint

TIME, POWER, WAITING, TRAFFIC = range(4)
"""Kinds of quantities; all are logarithms."""

FREE = 3.0
"""Standard deviation of an unknown logarithm: the unit of the step time; watts where no limit is known."""

SMOOTH = (0.004, 0.025, 0.003, 0.006)
"""Standard deviation of the smooth part. Time: error of a p-norm plus a constant on published sweeps (0.3 %). Power:
twice the error of P0 + a·f·V² (1 %), because the members are few where their parameters are many. Busy share: a third
of a point. Traffic: half a percent; bytes per unit of work do not depend on clocks."""
SINGLE = (0.001, 0.003, 0.0025, 0.004)
"""The same at each point by itself."""
_LIVE = ((1.0, 0.0),)
_RECORDED = ((3.0, 0.0), (10.0, -4.0), (30.0, -6.0))
"""Factors on the scatter of time and power at single points, and their log-prior. Live windows follow each other and
include utilisation; rows of recorded tables may be days apart, have noise of their own, and include none."""
_GAIN = (0.0, 0.0, 0.02, 0.03)
"""Relative error of the utilisation that a driver reports, the same at all points."""
_REACH_X, _REACH_Y = 0.35, 0.4
"""Correlation lengths of the residuals, in logarithms of the core and memory clock."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The observations in a row: kind, place of the point, value and standard error."""

    kind: tuple[int, ...]
    point: tuple[int, ...]
    value: Floats
    error: Floats

    def of(self, kind: int) -> list[int]:
        return [place for place, each in enumerate(self.kind) if each == kind]


@dataclass(frozen=True, slots=True, eq=False)
class ResidualModel:
    """r over some points: their coordinates, and the scatter of single points by kind."""

    coordinates: Floats
    single: tuple[float, ...]
    free_power: bool

    def between(self, kind: int, first: list[int], second: list[int]) -> Floats:
        """Return the covariance of r of one kind: (first, second)."""
        smooth, same = _correlation(self.coordinates, first, second)
        return np.asarray(SMOOTH[kind] ** 2 * smooth + self.single[kind] ** 2 * same + self.level(kind) ** 2)

    def variance(self, kind: int) -> float:
        return SMOOTH[kind] ** 2 + self.single[kind] ** 2 + self.level(kind) ** 2

    def level(self, kind: int) -> float:
        """Return the standard deviation of the part that all points share."""
        return FREE if kind == TIME or (kind == POWER and self.free_power) else 0.0


def observed_at(measured: Evidence, places: dict[ClockPoint, int]) -> Observed:
    """Put the evidence in a row."""
    rows: list[tuple[int, int, WindowEvidence]] = [
        (kind, places[point], found)
        for point, entry in measured.items()
        for kind, found in enumerate(_quantities(entry))
        if found is not None
    ]
    return Observed(
        tuple(kind for kind, _, _ in rows),
        tuple(place for _, place, _ in rows),
        np.array([found.value for _, _, found in rows]),
        np.array([found.error for _, _, found in rows]),
    )


def residuals(
    points: tuple[ClockPoint, ...], observed: Observed, off: Floats, *, free_power: bool
) -> tuple[ResidualModel, Floats]:
    """Return the likeliest residual model and its S; `off` is y − h: (members, observed)."""
    best: tuple[float, ResidualModel, Floats] | None = None
    for factor, cost in _LIVE if WAITING in observed.kind else _RECORDED:
        single = (SINGLE[0] * factor, SINGLE[1] * factor, *SINGLE[2:])
        residual = ResidualModel(_coordinates(points), single, free_power)
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
    """S"""
    total = np.diag(observed.error**2)
    for kind in range(4):
        rows = observed.of(kind)
        if rows:
            at = [observed.point[row] for row in rows]
            block = residual.between(kind, at, at)
            total[np.ix_(rows, rows)] += _with_driver_error(kind, block, observed.value[rows])
    return total


def _with_driver_error(kind: int, block: Floats, value: Floats) -> Floats:
    """Add the error of the utilisation that the driver reports.

    Errors of the busy share are given in that share; in the logarithm of the rest they grow as the rest shrinks.
    """
    if kind == WAITING:
        steep = np.exp(-value)
        return np.asarray(block * np.outer(steep, steep) + _GAIN[kind] ** 2 * np.outer(steep - 1.0, steep - 1.0))
    return block + _GAIN[kind] ** 2


def _coordinates(points: tuple[ClockPoint, ...]) -> Floats:
    """Return the coordinates of the points, in correlation lengths: (points, 3)."""
    x = np.log([1.0 if point.x is None else point.x for point in points]) / _REACH_X
    y = np.log([point.y for point in points]) / _REACH_Y
    limit = np.log([1.0 if point.limit == np.inf else point.limit for point in points]) / _REACH_X
    return np.stack([x, y, limit], axis=1)


def _correlation(coordinates: Floats, first: list[int], second: list[int]) -> tuple[Floats, Floats]:
    """Return the correlation of the smooth residuals, and whether it is the same point: (first, second)."""
    distance = ((coordinates[first][:, None, :] - coordinates[second][None, :, :]) ** 2).sum(axis=2)
    same = np.asarray(np.array(first)[:, None] == np.array(second)[None, :], dtype=np.float64)
    return np.exp(-0.5 * distance), same
