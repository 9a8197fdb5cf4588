"""What is believed of every gear after some windows: physics that agrees with them, and how far it may be off.

Notation
    y       observations, h what a member of the bank says of them, c what it says of the gears that may be chosen
    r, S    departures, and the covariance of y − h (`gear_departure`)
    β       share of the evidence that weighs members; as much as leaves `_ENOUGH` of them alive
    w       weights: exp(−β/2·(y−h)ᵀS⁻¹(y−h))
    A       gain by which the rest of the evidence moves the weighted members, taken as normal:
            Cov(c,h)·(Cov(h,h) + S/(1−β))⁻¹
    G       departures given the members: Cov(r, r at y)·S⁻¹
For members that are normal the outcome is exact, whatever β is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from wattune.response.evidence import Evidence
from wattune.response.program_ensemble import ClockPoint, Fields, Floats, fields_at
from wattune.response.program_likelihood import FREE, POWER, TIME, Observed, ResidualModel, observed_at, residuals

_ENOUGH = 50.0
"""Members that carry the weight, at least: with fewer, their covariance means nothing."""
_NEGLIGIBLE = 1e-3
_BISECTIONS = 18


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPosterior:
    """Logarithms of the time and the power of a unit of work at each gear, as expected, and how surely."""

    points: tuple[ClockPoint, ...]
    pivots: tuple[ClockPoint, ...]
    """Those of the evidence."""
    log_time: Floats
    """(gears,)"""
    log_power: Floats
    time_cov: Floats
    """(gears, pivots): covariance of log_time with that of each pivot."""
    time_var: Floats
    """(gears,)"""
    power_var: Floats
    """(gears,): of log_power over that at the first pivot."""
    alive: int
    """Members that count."""

    def slower(self, pivot: ClockPoint) -> tuple[Floats, Floats]:
        """(gears,): log_time over that at a pivot, and its standard deviation."""
        base, place = self.pivots.index(pivot), self.points.index(pivot)
        variance = self.time_var + self.time_var[place] - 2.0 * self.time_cov[:, base]
        return self.log_time - self.log_time[place], np.sqrt(np.maximum(variance, 0.0))

    def mixed(self, pivot: ClockPoint, shares: dict[ClockPoint, float]) -> tuple[float, float, Floats]:
        """Mean and variance of Σ shares·(log_time − that at the pivot), and its covariance with each gear's own.

        The gears of `shares` are pivots.
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
    """What the evidence does to members and departures, the same for every field."""

    root: Floats
    """(members, 1): √w"""
    said: Floats
    """(members, observed): h over its mean, times √w."""
    among: Floats
    """Cov(h, h)"""
    off: Floats
    """(observed,): y over the mean of h."""
    noise: Floats
    """S"""
    left: float
    """1 − β"""

    def gain(self, cross: Floats) -> Floats:
        """A, of quantities whose covariance with h is given."""
        if self.left < 1e-9:
            return np.zeros_like(cross)
        return np.asarray(cho_solve(cho_factor(self.among + self.noise / self.left, lower=True), cross.T).T)

    def unexplained(self, has_residual: Floats) -> Floats:
        """G, of departures whose covariance with those at y is given."""
        return np.asarray(cho_solve(cho_factor(self.noise, lower=True), has_residual.T).T)


@dataclass(frozen=True, slots=True, eq=False)
class _Normal:
    """A quantity at every gear: mean, covariance with that at the pivots, variance."""

    mean: Floats
    cov: Floats
    var: Floats


def posterior_of(points: tuple[ClockPoint, ...], measured: Evidence, *, free_power: bool) -> ProgramPosterior:
    """The belief about gears, and about those of the evidence; `free_power` where no limit gives the scale of power."""
    known = frozenset(points)
    extra = tuple(point for point in measured if point not in known)
    everything = (*points, *extra)
    fields = _joined([fields_at(points), *(fields_at((point,)) for point in extra)])
    places = {point: place for place, point in enumerate(everything)}
    observed = observed_at(measured, places)
    if not observed.kind:
        return _prior(everything, fields, tuple(measured))
    said = np.stack(
        [_field(fields, kind)[:, at] for kind, at in zip(observed.kind, observed.point, strict=True)], axis=1
    )
    residual, noise = residuals(everything, observed, observed.value - said, free_power=free_power)
    weights, beta = _weights(observed.value - said, noise)
    members = np.flatnonzero(weights > _NEGLIGIBLE * weights.max())
    update = _update(said[members], weights[members], observed, noise=noise, left=1.0 - beta)
    return _believed(
        everything, tuple(measured), fields.at(members), observed=observed, residual=residual, update=update
    )


def _believed(
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
    # A level of power that is the same for all gears does not count.
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
    """A field after the evidence: members first, then departures given what the members leave unexplained."""
    weights = update.root[:, 0] ** 2
    mean = weights @ field
    own = (field - mean) * update.root
    cross = own.T @ update.said
    everywhere, rows = list(range(field.shape[1])), observed.of(kind)
    has_residual = np.zeros(cross.shape)
    has_residual[:, rows] = residual.between(kind, everywhere, [observed.point[row] for row in rows])
    a, g = update.gain(cross), update.unexplained(has_residual)
    a_said = update.gain(update.among)
    among, cross_left = update.among - a_said @ update.among, cross - a @ update.among
    mean = mean + a @ update.off + g @ (update.off - a_said @ update.off)
    cov = own.T @ own[:, pivots] - a @ cross[pivots].T
    cov += g @ among @ g[pivots].T - cross_left @ g[pivots].T - g @ cross_left[pivots].T
    cov += residual.between(kind, everywhere, pivots) - g @ has_residual[pivots].T
    var = (own**2).sum(axis=0) - (a * cross).sum(axis=1)
    var += ((g @ among) * g).sum(axis=1) - 2.0 * (cross_left * g).sum(axis=1)
    var += residual.variance(kind) - (g * has_residual).sum(axis=1)
    return _Normal(mean, cov, var)


def _update(said: Floats, weights: Floats, observed: Observed, *, noise: Floats, left: float) -> _Update:
    weights = weights / weights.sum()
    mean = weights @ said
    root = np.sqrt(weights)[:, None]
    over = (said - mean) * root
    return _Update(root, over, over.T @ over, observed.value - mean, noise, left)


def _weights(off: Floats, noise: Floats) -> tuple[Floats, float]:
    """(members,): w, together 1, and β."""
    squares = (solve_triangular(np.linalg.cholesky(noise), off.T, lower=True) ** 2).sum(axis=0)
    squares = squares - squares.min()

    def weighed(beta: float) -> Floats:
        weights = np.exp(-0.5 * beta * squares)
        return np.asarray(weights / weights.sum())

    def enough(beta: float) -> bool:
        return bool(1.0 / (weighed(beta) ** 2).sum() >= _ENOUGH)

    low, high = (1.0, 1.0) if enough(1.0) else (0.0, 1.0)
    for _ in range(_BISECTIONS if low < high else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if enough(middle) else (low, middle)
    return weighed(low), low


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
    """The fields of several rows of gears, side by side."""
    if len(parts) == 1:
        return parts[0]

    def beside(columns: list[NDArray[np.float64]]) -> Floats:
        return np.hstack(columns)

    return Fields(
        beside([part.log_time for part in parts]),
        beside([part.log_power for part in parts]),
        beside([part.log_waiting for part in parts]),
        beside([part.log_traffic for part in parts]),
    )
