"""Posteriors of the time and power at every setting, given some measurements.

Two levels ask two things of one ensemble. A run must know how surely a setting keeps the slowdown limit, with errors of
a tenth of a percent: `ProgramPosterior` is normal, with the covariances of times. A job compares settings whose costs
it knows to a percent: `CurvePosterior` keeps every member that is still likely, and averages over them what one more
window would gain.

Notation
    y       observations; h their prediction by a member of the ensemble; c its prediction of the candidates
    r, S    residuals, and the covariance of y − h (`likelihood`)
    β       share of the evidence that weights members; as much as leaves enough of them alive (tempering)
    w       weights: exp(−β/2·(y−h)ᵀS⁻¹(y−h))
    A       gain by which the rest of the evidence moves the weighted members, taken as normal:
            Cov(c,h)·(Cov(h,h) + S/(1−β))⁻¹
    G       residuals given the members: Cov(r, r at y)·S⁻¹
    ρ       s²/(s² + m²): how far the prediction of a setting measured with error m moves from the curve of a member
            with spread s to the measurement
    v       logarithm of the objective's value, plus a penalty for breaking one of its limits
For members that are normal `ProgramPosterior` is exact for any β.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from wattune.core.frontier import History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.objective import Objective, PowerBudget
from wattune.core.setting import Setting
from wattune.response.cost_values import values
from wattune.response.ensemble import Ensemble, programs_at
from wattune.response.evidence import Evidence
from wattune.response.likelihood import (
    FREE,
    POWER,
    TIME,
    Observed,
    ResidualModel,
    observed_at,
    residuals,
    tempered_weights,
)
from wattune.response.normal import expected_gain
from wattune.response.points import ClockPoint
from wattune.response.statistics import Floats

_NEGLIGIBLE = 1e-3
"""Members of less weight than this share of the highest are left out."""

PENALTY = 30.0
"""Percent that are added to the value of a setting for each percent by which it breaks the limit of time or power."""

_FAR = 100.0
"""A difference of logarithms beyond which there is no gain."""

_TINY = 1e-300
_STEP = 1e-3


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


def posterior_of(points: tuple[ClockPoint, ...], measured: Evidence, *, free_power: bool) -> ProgramPosterior:
    """Return the posterior at the points and those of the evidence.

    `free_power` is for GPUs without a limit that gives the scale of power.
    """
    known, pivots = frozenset(points), tuple(measured)
    extra = tuple(point for point in measured if point not in known)
    everything = (*points, *extra)
    parts = [programs_at(points), *(programs_at((point,)) for point in extra)]
    fields = [
        np.hstack(columns)
        for columns in zip(
            *((part.log_time, part.log_power, part.log_waiting, part.log_traffic) for part in parts), strict=True
        )
    ]
    places = {point: place for place, point in enumerate(everything)}
    observed = observed_at(measured, places)
    if not observed.kind:
        return _prior(everything, fields[TIME], fields[POWER], pivots)
    predicted = np.stack([fields[kind][:, at] for kind, at in zip(observed.kind, observed.point, strict=True)], axis=1)
    residual, noise, squares = residuals(everything, observed, observed.value - predicted, free_power=free_power)
    weights, beta = tempered_weights(squares)
    members = np.flatnonzero(weights > _NEGLIGIBLE * weights.max())
    update = _update(predicted[members], weights[members], observed, noise=noise, left=1.0 - beta)
    at = [places[point] for point in pivots]
    time, time_cov, time_var = _conditioned(
        fields[TIME][members], TIME, at, observed=observed, residual=residual, update=update
    )
    power, power_cov, power_var = _conditioned(
        fields[POWER][members], POWER, at, observed=observed, residual=residual, update=update
    )
    # A level of power that all points share does not count.
    power_var = power_var + power_var[at[0]] - 2.0 * power_cov[:, 0]
    return ProgramPosterior(
        points=everything,
        pivots=pivots,
        log_time=time,
        log_power=power,
        time_cov=time_cov,
        time_var=np.maximum(time_var, 0.0),
        power_var=np.maximum(power_var, 0.0),
        alive=len(members),
    )


def _conditioned(
    field: Floats, kind: int, pivots: list[int], *, observed: Observed, residual: ResidualModel, update: _Update
) -> tuple[Floats, Floats, Floats]:
    """Condition a field on the evidence: members first, then residuals that the members leave unexplained.

    Return its mean, its covariance with that at the pivots, and its variance.
    """
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
    return mean, cov, var


def _update(predicted: Floats, weights: Floats, observed: Observed, *, noise: Floats, left: float) -> _Update:
    weights = weights / weights.sum()
    mean = weights @ predicted
    root = np.sqrt(weights)[:, None]
    over = (predicted - mean) * root
    return _Update(root, over, over.T @ over, observed.value - mean, noise, left)


def _prior(
    points: tuple[ClockPoint, ...], log_time: Floats, log_power: Floats, pivots: tuple[ClockPoint, ...]
) -> ProgramPosterior:
    return ProgramPosterior(
        points=points,
        pivots=pivots,
        log_time=log_time.mean(axis=0),
        log_power=log_power.mean(axis=0),
        time_cov=np.full((len(points), len(pivots)), FREE**2),
        time_var=log_time.var(axis=0) + FREE**2,
        power_var=log_power.var(axis=0),
        alive=len(log_time),
    )


@dataclass(frozen=True, slots=True, eq=False)
class CurvePosterior:
    """Predictions of each curve that is still likely: (curves, settings), settings ascending."""

    settings: tuple[Setting, ...]
    windows: Floats
    """(settings,): number of measurements of each."""
    weights: Floats
    """(curves,): probability of each; their sum is 1."""
    log_time: Floats
    log_power: Floats
    value: Floats
    """v"""
    value_error: Floats
    """Standard error of v, the curve given."""
    time_error: Floats
    power_error: Floats

    @property
    def mean(self) -> Floats:
        """(settings,): expected v."""
        return np.asarray(self.weights @ self.value)

    def incumbent(self, allowed: Floats) -> int:
        """Return the measured setting of least expected v, among those allowed where one of them was measured."""
        measured = self.windows > 0
        eligible = measured & (allowed > 0)
        return int(np.argmin(np.where(eligible if eligible.any() else measured, self.mean, np.inf)))

    def gains(self, b: int) -> Floats:
        """Return how far one more window at each setting is expected to lower v below that of b: (settings,)."""
        lead = self.value[:, [b]] - self.value
        gain = self.weights @ expected_gain(lead, np.hypot(self.value_error, self.value_error[:, [b]]))
        return np.asarray(np.where(self.windows > 0, self._gains_again(b), gain))

    def _gains_again(self, b: int) -> Floats:
        """Return the same for measured settings, where another window only reduces the error of the mean.

        It takes that error from m/√n to m/√(n+1), and so moves the mean by m/√n·√(1/(n+1)).
        """
        here = np.arange(len(self.settings)) == b
        runner_up = np.where((self.windows > 0) & ~here, self.mean, self.mean[b] + _FAR).min()
        lead = np.where(here, self.mean[b] - runner_up, self.mean[b] - self.mean)
        return expected_gain(lead, (self.weights @ self.value_error) / np.sqrt(self.windows + 1.0))

    def excess(self, b: int) -> Floats:
        """Return the expected share by which each setting costs more than b, at least 0: (settings,)."""
        return np.asarray(self.weights @ np.expm1(np.clip(self.value - self.value[:, [b]], 0.0, 5.0)))

    def costs(self) -> History[Setting]:
        """Return a trial per setting with its expected cost and 95 % errors."""
        time, power = self.weights @ self.log_time, self.weights @ self.log_power
        time_error = self._error(self.log_time - time, self.time_error)
        energy_error = self._error(
            self.log_time + self.log_power - time - power, np.hypot(self.time_error, self.power_error)
        )
        times_s, energies_j = np.exp(time), np.exp(time + power)
        columns = (times_s, energies_j, times_s * time_error, energies_j * energy_error)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(Trial(setting, Measurement(*row)) for setting, row in zip(self.settings, rows, strict=True))

    def _error(self, off: Floats, error: Floats) -> Floats:
        """Return the half-width of the 95 % interval, over all curves: (settings,)."""
        return np.asarray(SIGMAS_95 * np.sqrt(self.weights @ (off**2 + error**2)))


def curve_posterior(
    ensemble: Ensemble,
    settings: tuple[Setting, ...],
    observed: Observed,
    *,
    windows: Floats,
    weights: Floats,
    level: Floats,
    watts: float,
    objective: Objective,
    reference: Measurement | None,
) -> CurvePosterior:
    """Put each curve at its level of time and move it towards the observations by ρ; `watts` is the unit of power."""
    log_time, time_error = _moved(ensemble.log_time + level[:, None], ensemble.time_spread, *observed.column(TIME))
    log_power, power_error = _moved(ensemble.log_power, ensemble.power_spread, *observed.column(POWER))
    log_power = log_power + log(watts)
    return valued_curves(
        settings,
        windows=windows,
        weights=weights,
        log_time=log_time,
        log_power=log_power,
        time_error=time_error,
        power_error=power_error,
        objective=objective,
        reference=reference,
    )


def valued_curves(
    settings: tuple[Setting, ...],
    *,
    windows: Floats,
    weights: Floats,
    log_time: Floats,
    log_power: Floats,
    time_error: Floats,
    power_error: Floats,
    objective: Objective,
    reference: Measurement | None,
) -> CurvePosterior:
    """Add the value of the objective to curves of time and power, with its error."""

    def value_at(log_power: Floats) -> Floats:
        found = values(objective, np.exp(log_time), np.exp(log_time + log_power))
        breach = _breach(objective, reference, log_time, log_power)
        return np.asarray(np.log(np.maximum(found, _TINY)) + PENALTY * breach)

    value = value_at(log_power)
    by_power = (value_at(log_power + _STEP) - value) / _STEP
    value_error = np.hypot(time_error, by_power * power_error)
    return CurvePosterior(settings, windows, weights, log_time, log_power, value, value_error, time_error, power_error)


def _moved(curve: Floats, spread: Floats, places: list[int], found: Floats, error: Floats) -> tuple[Floats, Floats]:
    """Return each curve's prediction of each setting after the measurements, and the standard error.

    A curve that fits worse than its spread allows has a wider spread here.
    """
    predicted, sd = curve.copy(), np.repeat(spread, curve.shape[1], axis=1)
    if places:
        off = found - curve[:, places]
        wide = np.maximum(spread**2, np.mean(off**2, axis=1, keepdims=True))
        trust = wide / (wide + error**2)
        predicted[:, places] += trust * off
        sd[:, places] = np.sqrt(trust) * error
    return predicted, sd


def _breach(objective: Objective, reference: Measurement | None, log_time: Floats, log_power: Floats) -> Floats | float:
    """Return by how much each setting breaks a limit of the objective, as a logarithm.

    Without a reference, the highest setting is the reference.
    """
    if isinstance(objective, PowerBudget):
        return np.asarray(np.clip(log_power - log(max(objective.watts, _TINY)), 0.0, None))
    limit_s = objective.limit_s(reference)
    if limit_s is not None:
        return np.asarray(np.clip(log_time - log(max(limit_s, _TINY)), 0.0, None))
    slower = objective.limit_s(Measurement(1.0, 1.0))
    if slower is None:
        return 0.0
    return np.asarray(np.clip(log_time - log_time[:, -1:] - log(slower), 0.0, None))
