"""What windows say of a program at each gear, in the terms of `gear_bank`.

Windows at one gear count together. A pace is that of some unit, and a detector may take half or twice of it for the
unit; as no clock that is tried changes the pace that far, such a pace is folded back onto the first one, unless the
units were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95
from wattune.core.setting import Setting
from wattune.core.window import Window
from wattune.response.program_ensemble import LEAST_WAITING, ClockPoint

LEAST_STEP_TIME, USUAL_STEP_TIME = 0.0007, 0.01
"""Standard errors of a pace: no window is better than the first, one whose own is not known has the second."""
LEAST_POWER, USUAL_POWER = 0.004, 0.01
"""The same of a mean power: temperature moves it by some tenths of a percent from window to window."""
SHARE = 0.0015
"""Standard error of a utilisation, in addition to what the setting itself adds: it is read in whole percents."""

_LEAST_TRAFFIC = 0.002

_FACTORS = (1.0, 0.5, 2.0, 1.0 / 3.0, 3.0)
_FOLD = 0.3
"""Logarithms of pace that lie further than this from the first are taken for another multiple of the unit."""


@dataclass(frozen=True, slots=True)
class EvidenceScale:
    """The highest values of a part, over which gears are given; None where the part does not tell."""

    sm_mhz: float | None
    mem_mhz: float | None
    limit_w: float | None

    @classmethod
    def of(cls, spec: GpuSpec) -> EvidenceScale:
        """Of a part."""
        clocks = spec.sm_clocks_mhz
        mem = spec.mem_clocks_mhz
        limits = spec.power_limits
        return cls(clocks[-1] if clocks else None, mem[0] if mem else None, limits.default_w if limits else None)

    def point(self, setting: Setting, sm_mhz: float | None = None) -> ClockPoint:
        """A setting; where the clock that holds was read, that is the gear, and no limit holds it lower."""
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
    """A quantity: its value and the standard error of that."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class EvidencePoint:
    """What was seen at a gear; None where nothing was."""

    log_step_time: WindowEvidence | None
    log_power: WindowEvidence | None
    """Over the default limit, where the part has one; otherwise in watts."""
    log_waiting: WindowEvidence | None
    log_traffic: WindowEvidence | None


Evidence = dict[ClockPoint, EvidencePoint]


def evidence(windows: tuple[Window, ...], scale: EvidenceScale) -> Evidence:
    """A point for each gear at which there was a window."""
    first = next((log(window.step_time_s) for window in windows if window.step_time_s), None)
    groups: dict[ClockPoint, list[Window]] = {}
    for window in windows:
        if not window.held and window.sm_mhz is None:
            continue
        groups.setdefault(scale.point(window.setting, window.sm_mhz), []).append(window)
    watts = scale.limit_w or 1.0
    return {point: _point(some, first, watts) for point, some in groups.items()}


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
    """How far a pace is from the first: it may be slower by much, and faster by little."""
    return abs(distance - _FOLD / 3)


def _power(window: Window, watts: float) -> WindowEvidence:
    error_j = window.cost.energy_error_j
    share = USUAL_POWER if error_j is None else error_j / SIGMAS_95 / max(window.cost.energy_j, 1e-12)
    return WindowEvidence(log(window.power_w / watts), max(share, LEAST_POWER))


def _share(share: float, least: float, *, error: float | None) -> WindowEvidence:
    share = max(share, least)
    return WindowEvidence(log(share), max(SHARE, (error or 0.0) / SIGMAS_95) / share)


def _mean(some: list[WindowEvidence], least: float) -> WindowEvidence | None:
    """The mean, each weighed by its error; where they differ by more than their errors, those grow."""
    if not some:
        return None
    weights = [each.error**-2 for each in some]
    mean = sum(weight * each.value for weight, each in zip(weights, some, strict=True)) / sum(weights)
    error = 1.0 / sqrt(sum(weights))
    if len(some) > 1:
        surplus = sum(((each.value - mean) / each.error) ** 2 for each in some) / (len(some) - 1)
        error *= sqrt(max(surplus, 1.0))
    return WindowEvidence(mean, max(error, least))
