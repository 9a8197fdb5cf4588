"""How likely each curve of the bank is, given what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log

import numpy as np

from wattune.core.setting import Setting
from wattune.response.curve_ensemble import CurveEnsemble, Floats
from wattune.response.repeats import RepeatedPoint

_SPREAD_APART = 0.3
"""Standard deviation of the logarithm of a spread from one profile of a job to the next."""


def likelihood(
    ensemble: CurveEnsemble,
    settings: tuple[Setting, ...],
    points: Mapping[Setting, RepeatedPoint],
    *,
    top_w: float | None,
    apart: float = 0.0,
    level_distance: float = 0.0,
) -> tuple[Floats, Floats]:
    """(curves,): the log-likelihood of the points, and the logarithm of the time with which each curve fits them best.

    The time of the unit of work is free, and so is the level of power where the highest limit is not known. Points of
    something alike but not the same may lie further off: each for itself by the standard deviation `apart`, and the
    power of all together by `level_distance`.
    """
    if not points:
        return np.zeros(len(ensemble.log_time)), np.zeros(len(ensemble.log_time))
    places = [settings.index(setting) for setting in points]
    some = list(points.values())
    time_var = ensemble.time_spread[:, None] ** 2 + np.array([point.time_error**2 + apart**2 for point in some])
    power_var = ensemble.power_spread[:, None] ** 2 + np.array([point.power_error**2 + apart**2 for point in some])
    slower = np.array([point.log_time for point in some]) - ensemble.log_time[:, places]
    hotter = np.array([point.log_power for point in some]) - ensemble.log_power[:, places]
    likely, level = _with_level(slower, time_var, inf)
    more, _ = _with_level(hotter - log(top_w or 1.0), power_var, inf if top_w is None else level_distance)
    return likely + more, level


def _with_level(off: Floats, variance: Floats, sd: float) -> tuple[Floats, Floats]:
    """Log-likelihood of deviations from a level that has a standard deviation of its own, and the likeliest level."""
    weight = 1.0 / variance
    total = weight.sum(axis=1) + (sd**-2 if sd > 0 else inf)
    level = (weight * off).sum(axis=1) / total
    square = (weight * off**2).sum(axis=1) - (weight * off).sum(axis=1) * level
    scale = np.log(total) if sd > 0 else 0.0
    return -0.5 * (square + np.log(variance).sum(axis=1) + scale), level


def same_spread(ensemble: CurveEnsemble, likely: Floats) -> Floats:
    """(curves,): the log-likelihood of their spreads, if settings lie off their curve as far as something alike shows.

    That is a trait of the job and its host rather than of the batch size. `likely` is how well each curve fits there.
    """
    weights = np.exp(likely - likely.max())
    weights /= weights.sum()
    total = np.zeros(len(likely))
    for spread in (ensemble.time_spread, ensemble.power_spread):
        log_spread = np.log(spread)
        mean = weights @ log_spread
        variance = weights @ (log_spread - mean) ** 2 + _SPREAD_APART**2
        total -= 0.5 * (log_spread - mean) ** 2 / variance
    return total
