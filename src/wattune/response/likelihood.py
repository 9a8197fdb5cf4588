"""Likelihood of observations for the members of an ensemble: residuals, levels and errors.

Notation
    r       residual of a quantity at a point. Programs: smooth in the clocks, a little at each point by itself, and the
            same at all points where a level or a gain is not known. Jobs: at each point by itself, by the member's
            spread
    S       covariance of r and of the errors, among the observations
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from wattune.response.ensemble import Ensemble
from wattune.response.evidence import EvidencePoint
from wattune.response.points import ClockPoint
from wattune.response.statistics import Floats, likelihood_weights

P = TypeVar("P")

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


_ENOUGH = 50.0
"""Least effective number of members: with fewer, their covariance is meaningless."""
_BISECTIONS = 18

_SPREAD_SD = 0.3
"""Standard deviation of the logarithm of a spread from one profile of a job to the next."""


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The observations in a row: kind, place of the point, value and standard error."""

    kind: tuple[int, ...]
    point: tuple[int, ...]
    value: Floats
    error: Floats

    def of(self, kind: int) -> list[int]:
        return [place for place, each in enumerate(self.kind) if each == kind]

    def column(self, kind: int) -> tuple[list[int], Floats, Floats]:
        """Return the places of the points where this kind was observed, the values and their errors."""
        rows = self.of(kind)
        return [self.point[row] for row in rows], self.value[rows], self.error[rows]


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


def observed_at(measured: Mapping[P, EvidencePoint], places: Mapping[P, int]) -> Observed:
    """Put the evidence in a row."""
    rows = [
        (kind, places[point], found.value, found.error)
        for point, entry in measured.items()
        for kind, found in enumerate((entry.log_time, entry.log_power, entry.log_waiting, entry.log_traffic))
        if found is not None
    ]
    kinds, at, values, errors = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Observed(kinds, at, np.array(values), np.array(errors))


def residuals(
    points: tuple[ClockPoint, ...], observed: Observed, off: Floats, *, free_power: bool
) -> tuple[ResidualModel, Floats, Floats]:
    """Return the likeliest residual model, its S, and (y−h)ᵀS⁻¹(y−h); `off` is y − h: (members, observed)."""
    best: tuple[float, ResidualModel, Floats, Floats] | None = None
    for factor, cost in _LIVE if WAITING in observed.kind else _RECORDED:
        single = (SINGLE[0] * factor, SINGLE[1] * factor, *SINGLE[2:])
        residual = ResidualModel(_coordinates(points), single, free_power)
        noise = _noise(observed, residual)
        lower = np.linalg.cholesky(noise)
        squares = (solve_triangular(lower, off.T, lower=True) ** 2).sum(axis=0)
        likely = float(logsumexp(-0.5 * squares)) - float(np.log(np.diag(lower)).sum()) + cost
        if best is None or likely > best[0]:
            best = (likely, residual, noise, squares)
    assert best is not None
    return best[1:]


def tempered_weights(squares: Floats) -> tuple[Floats, float]:
    """Return weights exp(−β/2·squares), which sum to 1, and the largest β that leaves enough members alive."""
    squares = squares - squares.min()

    def weights_at(beta: float) -> Floats:
        return likelihood_weights(-0.5 * beta * squares)

    def enough(beta: float) -> bool:
        return bool(1.0 / (weights_at(beta) ** 2).sum() >= _ENOUGH)

    low, high = (1.0, 1.0) if enough(1.0) else (0.0, 1.0)
    for _ in range(_BISECTIONS if low < high else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if enough(middle) else (low, middle)
    return weights_at(low), low


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


def likelihood(
    ensemble: Ensemble, observed: Observed, *, free_power: bool, shape_sd: float = 0.0, level_sd: float = 0.0
) -> tuple[Floats, Floats]:
    """Return the log-likelihood of observed points of a job for each member, and the logarithm of its time: (members,).

    The time of the unit of work is free, and so is the level of power where the highest limit is not known. Points of
    a similar profile may lie further off: each by itself by `shape_sd`, and the power of all together by `level_sd`.
    """
    if not observed.kind:
        return np.zeros(len(ensemble.log_time)), np.zeros(len(ensemble.log_time))
    total, levels = np.zeros(len(ensemble.log_time)), []
    for kind, field, spread, sd in (
        (TIME, ensemble.log_time, ensemble.time_spread, inf),
        (POWER, ensemble.log_power, ensemble.power_spread, inf if free_power else level_sd),
    ):
        places, value, error = observed.column(kind)
        variance = spread.T**2 + (error**2 + shape_sd**2)[:, None]
        found, level = _with_level(value[:, None] - field.T[places], variance, sd)
        total += found
        levels.append(level)
    return total, levels[0]


def _with_level(off: Floats, variance: Floats, sd: float) -> tuple[Floats, Floats]:
    """Return the log-likelihood of residuals around a level of standard deviation `sd`, and the likeliest level.

    The arrays are (points, members): sums over the first axis are several times as fast.
    """
    weight = 1.0 / variance
    weighted = weight * off
    total = weight.sum(axis=0) + (sd**-2 if sd > 0 else inf)
    summed = weighted.sum(axis=0)
    level = summed / total
    square = (weighted * off).sum(axis=0) - summed * level
    scale = np.log(total) if sd > 0 else 0.0
    return -0.5 * (square + np.log(variance).sum(axis=0) + scale), level


def spread_likelihood(ensemble: Ensemble, similar: Floats) -> Floats:
    """Return the log-likelihood of each member's spreads, given how well the members fit a similar profile: (members,).

    How far settings scatter around their curve is a trait of the job and its host rather than of the batch size.
    """
    weights = likelihood_weights(similar)
    total = np.zeros(len(similar))
    for spread in (ensemble.time_spread, ensemble.power_spread):
        log_spread = np.log(spread[:, 0])
        mean = weights @ log_spread
        variance = weights @ (log_spread - mean) ** 2 + _SPREAD_SD**2
        total -= 0.5 * (log_spread - mean) ** 2 / variance
    return total
