"""Measured windows grouped by setting, as the ensembles compare themselves with them.

Windows at one setting are averaged. A step time is that of some unit of work, and the detector may mistake half or
twice of it for the unit. No clock that is tried changes the step time that far, so such a step time is converted to the
unit of the first window, unless the units were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from wattune.core.frontier import History
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import Window
from wattune.response.ensemble import weighted_mean
from wattune.response.program_ensemble import LEAST_WAITING, ClockPoint

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


@dataclass(frozen=True, slots=True)
class EvidenceScale:
    """The highest values of a GPU, to which points are relative; None where the GPU does not report one."""

    sm_mhz: float | None
    mem_mhz: float | None
    limit_w: float | None

    @classmethod
    def of(cls, spec: GpuSpec) -> EvidenceScale:
        clocks = spec.sm_clocks_mhz
        mem = spec.mem_clocks_mhz
        limits = spec.power_limits
        return cls(clocks[-1] if clocks else None, mem[0] if mem else None, limits.default_w if limits else None)

    def point(self, setting: Setting, sm_mhz: float | None = None) -> ClockPoint:
        """Convert a setting; where the effective clock was read it is used, and no limit applies."""
        y = 1.0 if setting.mem_mhz is None or self.mem_mhz is None else round(setting.mem_mhz / self.mem_mhz, 4)
        if sm_mhz is not None and self.sm_mhz is not None:
            return ClockPoint(round(min(sm_mhz / self.sm_mhz, 1.0), 3), y, float("inf"))
        x = None if setting.sm_mhz is None or self.sm_mhz is None else round(min(setting.sm_mhz / self.sm_mhz, 1.0), 4)
        limit = 1.0
        if setting.power_limit_w is not None and self.limit_w is not None:
            limit = round(setting.power_limit_w / self.limit_w, 4)
        return ClockPoint(x, y, limit)


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """A value and its standard error."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class EvidencePoint:
    """Quantities measured at one point; None where one was not."""

    log_step_time: WindowEvidence | None
    log_power: WindowEvidence | None
    """Over the default limit, where the GPU has one; otherwise in watts."""
    log_waiting: WindowEvidence | None
    log_traffic: WindowEvidence | None


Evidence = dict[ClockPoint, EvidencePoint]


def evidence(windows: tuple[Window, ...], scale: EvidenceScale) -> Evidence:
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
        _mean(step_times, LEAST_STEP_TIME / 2), _mean(powers, LEAST_POWER), _mean(waiting, SHARE), _mean(traffic, SHARE)
    )


def _step_time(window: Window, first: float) -> WindowEvidence:
    assert window.step_time_s is not None
    factors = (1.0,) if window.counted else _FACTORS
    value = min((log(window.step_time_s * factor) for factor in factors), key=lambda each: _off(each - first))
    share = (
        USUAL_STEP_TIME
        if window.step_time_error_s is None
        else window.step_time_error_s / SIGMAS_95 / window.step_time_s
    )
    return WindowEvidence(value, max(share, LEAST_STEP_TIME))


def _off(distance: float) -> float:
    """Return the distance of a step time from the first, which favours slower over faster."""
    return abs(distance - _FOLD / 3)


def _power(window: Window, watts: float) -> WindowEvidence:
    error_j = window.cost.energy_error_j
    share = USUAL_POWER if error_j is None else error_j / SIGMAS_95 / max(window.cost.energy_j, 1e-12)
    return WindowEvidence(log(window.power_w / watts), max(share, LEAST_POWER))


def _share(share: float, least: float, *, error: float | None) -> WindowEvidence:
    share = max(share, least)
    return WindowEvidence(log(share), max(SHARE, (error or 0.0) / SIGMAS_95) / share)


def _mean(values: list[WindowEvidence], least: float) -> WindowEvidence | None:
    if not values:
        return None
    mean, error = weighted_mean([(each.value, each.error) for each in values])
    return WindowEvidence(mean, max(error, least))


USUAL_ERROR = 0.01
"""Standard error of a trial without an error of its own, as a share: the scatter of five seconds of training."""

LEAST_ERROR = 0.002
"""Least standard error of a trial: clocks, temperature and data differ from one to the next."""


@dataclass(frozen=True, slots=True)
class RepeatedPoint:
    """Logarithms of the time and the mean power of a unit of work, with their standard errors."""

    log_time: float
    log_power: float
    time_error: float
    power_error: float
    windows: int = 1


def averaged_trials(history: History[Setting]) -> dict[Setting, RepeatedPoint]:
    """Average the trials of each setting; those without time or energy are left out."""
    costs: dict[Setting, list[Measurement]] = {}
    for trial in history:
        if trial.cost.time_s > 0 and trial.cost.energy_j > 0:
            costs.setdefault(trial.choice, []).append(trial.cost)
    return {setting: _repeated(same) for setting, same in costs.items()}


def _repeated(costs: list[Measurement]) -> RepeatedPoint:
    time = [(log(cost.time_s), _relative_error(cost.time_error_s, cost.time_s)) for cost in costs]
    # Time and energy of a window scatter together, so power scatters no more than energy does.
    power = [(log(cost.power_w), _relative_error(cost.energy_error_j, cost.energy_j)) for cost in costs]
    (log_time, time_error), (log_power, power_error) = weighted_mean(time), weighted_mean(power)
    return RepeatedPoint(log_time, log_power, time_error, power_error, len(costs))


def _relative_error(half_width: float | None, value: float) -> float:
    return USUAL_ERROR if half_width is None else max(half_width / SIGMAS_95 / value, LEAST_ERROR)
