"""Windows at one setting taken together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log, sqrt

from wattune.core.frontier import History
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting

USUAL_ERROR = 0.01
"""Standard error of a window whose own error is not known, as a share: what five seconds of training scatter by."""

LEAST_ERROR = 0.002
"""No window is better than this: clocks, temperature and data differ from one to the next."""


@dataclass(frozen=True, slots=True)
class RepeatedPoint:
    """Logarithms of the time and the mean power of a unit of work, with their standard errors."""

    log_time: float
    log_power: float
    time_error: float
    power_error: float
    windows: int = 1


def merged(history: History[Setting]) -> dict[Setting, RepeatedPoint]:
    """One point per setting, the mean of its windows; those that spent nothing or took no time are left out."""
    windows: dict[Setting, list[RepeatedPoint]] = {}
    for trial in history:
        if trial.cost.time_s > 0 and trial.cost.energy_j > 0:
            windows.setdefault(trial.choice, []).append(_point(trial.cost))
    return {setting: _mean(points) for setting, points in windows.items()}


def _point(cost: Measurement) -> RepeatedPoint:
    time_error = _share(cost.time_error_s, cost.time_s)
    energy_error = _share(cost.energy_error_j, cost.energy_j)
    # Time and energy of a window scatter together, so power scatters no more than energy does.
    return RepeatedPoint(log(cost.time_s), log(cost.power_w), time_error, energy_error)


def _share(half_width: float | None, value: float) -> float:
    return USUAL_ERROR if half_width is None else max(half_width / SIGMAS_95 / value, LEAST_ERROR)


def _mean(points: Iterable[RepeatedPoint]) -> RepeatedPoint:
    """The mean, each window weighed by its error; where the windows differ by more than their errors, those grow."""
    some = tuple(points)
    log_time, time_error = _weighed([(point.log_time, point.time_error) for point in some])
    log_power, power_error = _weighed([(point.log_power, point.power_error) for point in some])
    return RepeatedPoint(log_time, log_power, time_error, power_error, len(some))


def _weighed(found: list[tuple[float, float]]) -> tuple[float, float]:
    total = sum(error**-2 for _, error in found)
    mean = sum(value * error**-2 for value, error in found) / total
    if len(found) == 1:
        return mean, 1.0 / sqrt(total)
    surplus = sum(((value - mean) / error) ** 2 for value, error in found) / (len(found) - 1)
    return mean, sqrt(max(surplus, 1.0) / total)
