"""Posterior of the time and power of a program at every setting, given some windows.

Notation
    y       observations; h their prediction by a member of the ensemble; c its prediction of the candidates
    r, S    residuals, and the covariance of y − h (`program_likelihood`)
    β       share of the evidence that weights members; as much as leaves `_ENOUGH` of them alive (tempering)
    w       weights: exp(−β/2·(y−h)ᵀS⁻¹(y−h))
    A       gain by which the rest of the evidence moves the weighted members, taken as normal:
            Cov(c,h)·(Cov(h,h) + S/(1−β))⁻¹
    G       residuals given the members: Cov(r, r at y)·S⁻¹
For members that are normal the result is exact for any β.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from wattune.response.ensemble import Floats, likelihood_weights
from wattune.response.evidence import Evidence
from wattune.response.program_ensemble import ClockPoint, Fields, fields_at
from wattune.response.program_likelihood import FREE, POWER, TIME, Observed, ResidualModel, observed_at, residuals

_ENOUGH = 50.0
"""Least effective number of members: with fewer, their covariance is meaningless."""
_NEGLIGIBLE = 1e-3
_BISECTIONS = 18


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPosterior:
    """Expected logarithms of the time and power of a unit of work at each point, with covariances."""

    points: tuple[ClockPoint, ...]
    pivots: tuple[ClockPoint, ...]
    """Points of the evidence."""
    log_time: Floats
    """(points,)"""
    log_power: Floats
    time_cov: Floats
    """(points, pivots): covariance of log_time with that of each pivot."""
    time_var: Floats
    """(points,)"""
    power_var: Floats
    """(points,): of log_power over that at the first pivot."""
    alive: int
    """Number of members with weight."""

    def slower(self, pivot: ClockPoint) -> tuple[Floats, Floats]:
        """Return log_time over that at a pivot, and its standard deviation: (points,)."""
        base, place = self.pivots.index(pivot), self.points.index(pivot)
        variance = self.time_var + self.time_var[place] - 2.0 * self.time_cov[:, base]
        return self.log_time - self.log_time[place], np.sqrt(np.maximum(variance, 0.0))

    def mixed(self, pivot: ClockPoint, shares: dict[ClockPoint, float]) -> tuple[float, float, Floats]:
        """Return mean and variance of Σ shares·(log_time − that at the pivot), and its covariance with each point.

        The points of `shares` are pivots.
        """
        base = self.pivots.index(pivot)
        weights = np.zeros(len(self.pivots))
        for point, share in shares.items():
            weights[self.pivots.index(point)] += share
        weights[base] -= sum(shares.values())
        places = [self.points.index(point) for point in self.pivots]
        among = self.time_cov[places]
        with_each = self.time_cov @ weights - float(among[base] @ weights)
        return float(weights @ self.log_time[places]), max(float(weights @ among @ weights), 0.0), with_each


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """The effect of the evidence on members and residuals, the same for every field."""

    root: Floats
    """(members, 1): √w"""
    predicted: Floats
    """(members, observed): h minus its mean, times √w."""
    among: Floats
    """Cov(h, h)"""
    off: Floats
    """(observed,): y minus the mean of h."""
    noise: Floats
    """S"""
    left: float
    """1 − β"""

    def gain(self, cross: Floats) -> Floats:
        """Return A of quantities whose covariance with h is given."""
        if self.left < 1e-9:
            return np.zeros_like(cross)
        return np.asarray(cho_solve(cho_factor(self.among + self.noise / self.left, lower=True), cross.T).T)

    def unexplained(self, has_residual: Floats) -> Floats:
        """Return G of residuals whose covariance with those at y is given."""
        return np.asarray(cho_solve(cho_factor(self.noise, lower=True), has_residual.T).T)


@dataclass(frozen=True, slots=True, eq=False)
class _Normal:
    """A quantity at every point: mean, covariance with that at the pivots, variance."""

    mean: Floats
    cov: Floats
    var: Floats


def posterior_of(points: tuple[ClockPoint, ...], measured: Evidence, *, free_power: bool) -> ProgramPosterior:
    """Return the posterior at the points and those of the evidence.

    `free_power` is for GPUs without a limit that gives the scale of power.
    """
    known = frozenset(points)
    extra = tuple(point for point in measured if point not in known)
    everything = (*points, *extra)
    fields = _joined([fields_at(points), *(fields_at((point,)) for point in extra)])
    places = {point: place for place, point in enumerate(everything)}
    observed = observed_at(measured, places)
    if not observed.kind:
        return _prior(everything, fields, tuple(measured))
    predicted = np.stack(
        [_field(fields, kind)[:, at] for kind, at in zip(observed.kind, observed.point, strict=True)], axis=1
    )
    residual, noise = residuals(everything, observed, observed.value - predicted, free_power=free_power)
    weights, beta = _weights(observed.value - predicted, noise)
    members = np.flatnonzero(weights > _NEGLIGIBLE * weights.max())
    update = _update(predicted[members], weights[members], observed, noise=noise, left=1.0 - beta)
    return _posterior(
        everything, tuple(measured), fields.subset(members), observed=observed, residual=residual, update=update
    )


def _posterior(
    points: tuple[ClockPoint, ...],
    pivots: tuple[ClockPoint, ...],
    fields: Fields,
    *,
    observed: Observed,
    residual: ResidualModel,
    update: _Update,
) -> ProgramPosterior:
    places = [points.index(point) for point in pivots]
    time = _conditioned(fields.log_time, TIME, places, observed=observed, residual=residual, update=update)
    power = _conditioned(fields.log_power, POWER, places, observed=observed, residual=residual, update=update)
    # A level of power that all points share does not count.
    power_var = power.var + power.var[places[0]] - 2.0 * power.cov[:, 0]
    return ProgramPosterior(
        points=points,
        pivots=pivots,
        log_time=time.mean,
        log_power=power.mean,
        time_cov=time.cov,
        time_var=np.maximum(time.var, 0.0),
        power_var=np.maximum(power_var, 0.0),
        alive=len(update.root),
    )


def _conditioned(
    field: Floats, kind: int, pivots: list[int], *, observed: Observed, residual: ResidualModel, update: _Update
) -> _Normal:
    """Condition a field on the evidence: members first, then residuals that the members leave unexplained."""
    weights = update.root[:, 0] ** 2
    mean = weights @ field
    own = (field - mean) * update.root
    cross = own.T @ update.predicted
    everywhere, rows = list(range(field.shape[1])), observed.of(kind)
    has_residual = np.zeros(cross.shape)
    has_residual[:, rows] = residual.between(kind, everywhere, [observed.point[row] for row in rows])
    a, g = update.gain(cross), update.unexplained(has_residual)
    a_predicted = update.gain(update.among)
    among, cross_left = update.among - a_predicted @ update.among, cross - a @ update.among
    mean = mean + a @ update.off + g @ (update.off - a_predicted @ update.off)
    cov = own.T @ own[:, pivots] - a @ cross[pivots].T
    cov += g @ among @ g[pivots].T - cross_left @ g[pivots].T - g @ cross_left[pivots].T
    cov += residual.between(kind, everywhere, pivots) - g @ has_residual[pivots].T
    var = (own**2).sum(axis=0) - (a * cross).sum(axis=1)
    var += ((g @ among) * g).sum(axis=1) - 2.0 * (cross_left * g).sum(axis=1)
    var += residual.variance(kind) - (g * has_residual).sum(axis=1)
    return _Normal(mean, cov, var)


def _update(predicted: Floats, weights: Floats, observed: Observed, *, noise: Floats, left: float) -> _Update:
    weights = weights / weights.sum()
    mean = weights @ predicted
    root = np.sqrt(weights)[:, None]
    over = (predicted - mean) * root
    return _Update(root, over, over.T @ over, observed.value - mean, noise, left)


def _weights(off: Floats, noise: Floats) -> tuple[Floats, float]:
    """Return w, which sums to 1, (members,) and β."""
    squares = (solve_triangular(np.linalg.cholesky(noise), off.T, lower=True) ** 2).sum(axis=0)
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


def _prior(points: tuple[ClockPoint, ...], fields: Fields, pivots: tuple[ClockPoint, ...]) -> ProgramPosterior:
    return ProgramPosterior(
        points=points,
        pivots=pivots,
        log_time=fields.log_time.mean(axis=0),
        log_power=fields.log_power.mean(axis=0),
        time_cov=np.full((len(points), len(pivots)), FREE**2),
        time_var=fields.log_time.var(axis=0) + FREE**2,
        power_var=fields.log_power.var(axis=0),
        alive=len(fields.log_time),
    )


def _field(fields: Fields, kind: int) -> Floats:
    return (fields.log_time, fields.log_power, fields.log_waiting, fields.log_traffic)[kind]


def _joined(parts: list[Fields]) -> Fields:
    """Join the fields of several sets of points."""
    if len(parts) == 1:
        return parts[0]

    columns = zip(*((part.log_time, part.log_power, part.log_waiting, part.log_traffic) for part in parts), strict=True)
    return Fields(*(np.hstack(column) for column in columns))
