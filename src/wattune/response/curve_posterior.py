"""Posterior of the time and power of every setting, given the settings of a job that were measured.

Notation
    y, m    logarithm of a measured time (or power) and its standard error
    r       scatter of single settings around their curve (rₜ, rₚ of `curve_ensemble`)
    ρ       r²/(r² + m²): how far the prediction of a measured setting moves from its curve to the measurement
    v       logarithm of the objective's value, plus a penalty for breaking one of its limits
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from wattune.core.frontier import History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.objective import Objective, PowerBudget
from wattune.core.setting import Setting
from wattune.response.cost_values import values
from wattune.response.curve_ensemble import CurveEnsemble
from wattune.response.ensemble import Floats, expected_gain, likelihood_weights
from wattune.response.evidence import RepeatedPoint

PENALTY = 30.0
"""Percent that are added to the value of a setting for each percent by which it breaks the limit of time or power."""

_SPREAD_SD = 0.3
"""Standard deviation of the logarithm of a spread from one profile of a job to the next."""

_FAR = 100.0
"""A difference of logarithms beyond which there is no gain."""

_TINY = 1e-300
_STEP = 1e-3


def likelihood(
    ensemble: CurveEnsemble,
    settings: tuple[Setting, ...],
    points: Mapping[Setting, RepeatedPoint],
    *,
    top_w: float | None,
    shape_sd: float = 0.0,
    level_sd: float = 0.0,
) -> tuple[Floats, Floats]:
    """Return the log-likelihood of the points for each curve, and the logarithm of its best-fitting time: (curves,).

    The time of the unit of work is free, and so is the level of power where the highest limit is not known. Points of
    a similar profile may lie further off: each by itself by `shape_sd`, and the power of all together by `level_sd`.
    """
    if not points:
        return np.zeros(len(ensemble.log_time)), np.zeros(len(ensemble.log_time))
    places = [settings.index(setting) for setting in points]
    some = list(points.values())
    time_var = ensemble.time_spread[:, None] ** 2 + np.array([point.time_error**2 + shape_sd**2 for point in some])
    power_var = ensemble.power_spread[:, None] ** 2 + np.array([point.power_error**2 + shape_sd**2 for point in some])
    slower = np.array([point.log_time for point in some]) - ensemble.log_time[:, places]
    hotter = np.array([point.log_power for point in some]) - ensemble.log_power[:, places]
    time_likelihood, level = _with_level(slower, time_var, inf)
    power_likelihood, _ = _with_level(hotter - log(top_w or 1.0), power_var, inf if top_w is None else level_sd)
    return time_likelihood + power_likelihood, level


def _with_level(off: Floats, variance: Floats, sd: float) -> tuple[Floats, Floats]:
    """Return the log-likelihood of residuals around a level of standard deviation `sd`, and the likeliest level."""
    weight = 1.0 / variance
    total = weight.sum(axis=1) + (sd**-2 if sd > 0 else inf)
    level = (weight * off).sum(axis=1) / total
    square = (weight * off**2).sum(axis=1) - (weight * off).sum(axis=1) * level
    scale = np.log(total) if sd > 0 else 0.0
    return -0.5 * (square + np.log(variance).sum(axis=1) + scale), level


def spread_likelihood(ensemble: CurveEnsemble, similar: Floats) -> Floats:
    """Return the log-likelihood of each curve's spreads, given how well the curves fit a similar profile: (curves,).

    How far settings scatter around their curve is a trait of the job and its host rather than of the batch size.
    """
    weights = likelihood_weights(similar)
    total = np.zeros(len(similar))
    for spread in (ensemble.time_spread, ensemble.power_spread):
        log_spread = np.log(spread)
        mean = weights @ log_spread
        variance = weights @ (log_spread - mean) ** 2 + _SPREAD_SD**2
        total -= 0.5 * (log_spread - mean) ** 2 / variance
    return total


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
    ensemble: CurveEnsemble,
    settings: tuple[Setting, ...],
    points: Mapping[Setting, RepeatedPoint],
    *,
    weights: Floats,
    level: Floats,
    top_w: float | None,
    objective: Objective,
    reference: Measurement | None,
) -> CurvePosterior:
    """Put each curve at its level of time and move it towards the measurements by ρ."""
    some = [points.get(setting) for setting in settings]
    log_time, time_error = _moved(
        ensemble.log_time + level[:, None],
        ensemble.time_spread,
        [None if point is None else (point.log_time, point.time_error) for point in some],
    )
    log_power, power_error = _moved(
        ensemble.log_power + (log(top_w) if top_w else 0.0),
        ensemble.power_spread,
        [None if point is None else (point.log_power, point.power_error) for point in some],
    )

    def value_at(log_power: Floats) -> Floats:
        found = values(objective, np.exp(log_time), np.exp(log_time + log_power))
        breach = _breach(objective, reference, log_time, log_power)
        return np.asarray(np.log(np.maximum(found, _TINY)) + PENALTY * breach)

    value = value_at(log_power)
    by_power = (value_at(log_power + _STEP) - value) / _STEP
    value_error = np.hypot(time_error, by_power * power_error)
    windows = np.array([0.0 if point is None else point.windows for point in some])
    return CurvePosterior(settings, windows, weights, log_time, log_power, value, value_error, time_error, power_error)


def _moved(curve: Floats, spread: Floats, points: Sequence[tuple[float, float] | None]) -> tuple[Floats, Floats]:
    """Return each curve's prediction of each setting after its measurement (y, m), and the standard error.

    A curve that fits worse than its spread allows has a wider spread here.
    """
    predicted, sd = curve.copy(), np.repeat(spread[:, None], curve.shape[1], axis=1)
    places = [place for place, point in enumerate(points) if point is not None]
    if places:
        found, error = (np.array(column) for column in zip(*(point for point in points if point), strict=True))
        off = found - curve[:, places]
        wide = np.maximum(spread**2, np.mean(off**2, axis=1))[:, None]
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
