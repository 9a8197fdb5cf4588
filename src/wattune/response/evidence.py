"""Measured windows grouped by setting, as the ensembles compare themselves with them.

Windows at one setting are averaged. A step time is that of some unit of work, and the detector may mistake half or
twice of it for the unit. No clock that is tried changes the step time that far, so such a step time is converted to the
unit of the first window, unless the units were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from wattune.core.frontier import History
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import Window
from wattune.response.ensemble import LEAST_WAITING
from wattune.response.points import ClockPoint, PointScale
from wattune.response.statistics import weighted_mean

LEAST_STEP_TIME, USUAL_STEP_TIME = 0.0007, 0.01
"""Standard error of a step time: the least of any window, and that of a window without an error of its own."""
LEAST_POWER, USUAL_POWER = 0.004, 0.01
"""The same of a mean power: temperature changes it by some tenths of a percent from window to window."""
SHARE = 0.0015
"""Standard error of a utilisation, in addition to that of the setting: it is read in whole percents."""

_LEAST_TRAFFIC = 0.002

_FACTORS = (1.0, 0.5, 2.0, 1.0 / 3.0, 3.0)
_FOLD = 0.3
"""A step time whose logarithm differs from the first by more than this is taken for another multiple of the unit."""
_IMPOSSIBLE = 10.0


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """Logarithm of a quantity and its standard error."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class EvidencePoint:
    """Logarithms of the quantities measured at one point; None where one was not."""

    log_time: LogEstimate | None
    """Of a unit of work: a step, an iteration or an epoch."""
    log_power: LogEstimate | None
    """Over the limit that powers are relative to, where the GPU has one; otherwise in watts."""
    log_waiting: LogEstimate | None = None
    log_traffic: LogEstimate | None = None
    windows: int = 1
    """Number of windows or trials."""


Evidence = dict[ClockPoint, EvidencePoint]


def evidence(windows: tuple[Window, ...], scale: PointScale) -> Evidence:
    """Group the windows by point and average each group."""
    first = next((log(window.step_time_s) for window in windows if window.step_time_s), None)
    groups: dict[ClockPoint, list[Window]] = {}
    for window in windows:
        if not window.held and window.sm_mhz is None:
            continue
        groups.setdefault(scale.point(window.setting, window.sm_mhz), []).append(window)
    watts = scale.limit_w or 1.0
    return {point: _point(same, first, watts) for point, same in groups.items()}


def _point(windows: list[Window], first: float | None, watts: float) -> EvidencePoint:
    step_times = [_step_time(window, first) for window in windows if window.step_time_s and first is not None]
    powers = [_power(window, watts) for window in windows if window.power_w > 0]
    waiting = [
        _share(1.0 - window.sm_util, LEAST_WAITING, error=window.sm_util_error)
        for window in windows
        if window.sm_util is not None
    ]
    traffic = [
        _share(window.mem_util, _LEAST_TRAFFIC, error=window.mem_util_error) for window in windows if window.mem_util
    ]
    return EvidencePoint(
        _mean(step_times, LEAST_STEP_TIME / 2),
        _mean(powers, LEAST_POWER),
        _mean(waiting, SHARE),
        _mean(traffic, SHARE),
        windows=len(windows),
    )


def _step_time(window: Window, first: float) -> LogEstimate:
    assert window.step_time_s is not None
    factors = (1.0,) if window.counted else _FACTORS
    value = min((log(window.step_time_s * factor) for factor in factors), key=lambda each: _off(each - first))
    error = _share_of(window.step_time_error_s, window.step_time_s, USUAL_STEP_TIME)
    return LogEstimate(value, max(error, LEAST_STEP_TIME))


def _off(distance: float) -> float:
    """Return the distance of a step time from the first, which favours slower: no other clock makes it much faster."""
    return abs(distance - _FOLD / 3) + (_IMPOSSIBLE if distance < -_FOLD / 3 else 0.0)


def _power(window: Window, watts: float) -> LogEstimate:
    error = _share_of(window.cost.energy_error_j, max(window.cost.energy_j, 1e-12), USUAL_POWER)
    return LogEstimate(log(window.power_w / watts), max(error, LEAST_POWER))


def _share_of(half_width: float | None, value: float, usual: float) -> float:
    """Return the relative standard error, or the usual one where the half-width is not known."""
    return usual if half_width is None else half_width / SIGMAS_95 / value


def _share(share: float, least: float, *, error: float | None) -> LogEstimate:
    share = max(share, least)
    return LogEstimate(log(share), max(SHARE, (error or 0.0) / SIGMAS_95) / share)


def _mean(values: list[LogEstimate], least: float) -> LogEstimate | None:
    if not values:
        return None
    mean, error = weighted_mean([(each.value, each.error) for each in values])
    return LogEstimate(mean, max(error, least))


USUAL_ERROR = 0.01
"""Standard error of a trial without an error of its own, as a share: the scatter of five seconds of training."""

LEAST_W, MOST_W = 1e-3, 1e6
"""Powers beyond which a measurement is none."""
LEAST_ERROR = 0.002
"""Least standard error of a trial: clocks, temperature and data differ from one to the next."""


def trial_evidence(history: History[Setting], *, watts: float = 1.0) -> dict[Setting, EvidencePoint]:
    """Average the trials of each setting; those that no GPU can have taken are left out. Powers are relative to
    `watts`."""
    costs: dict[Setting, list[Measurement]] = {}
    for trial in history:
        if trial.cost.time_s > 0 and LEAST_W <= trial.cost.power_w <= MOST_W:
            costs.setdefault(trial.choice, []).append(trial.cost)
    return {setting: _trial_point(same, watts) for setting, same in costs.items()}


def _trial_point(costs: list[Measurement], watts: float) -> EvidencePoint:
    times, powers = [], []
    for cost in costs:
        time_error = _share_of(cost.time_error_s, cost.time_s, USUAL_ERROR)
        times.append(LogEstimate(log(cost.time_s), max(time_error, LEAST_ERROR)))
        # Time and energy of a window scatter together, so power scatters no more than energy does.
        power_error = _share_of(cost.energy_error_j, cost.energy_j, USUAL_ERROR)
        powers.append(LogEstimate(log(cost.power_w / watts), max(power_error, LEAST_ERROR)))
    return EvidencePoint(_mean(times, 0.0), _mean(powers, 0.0), windows=len(costs))
