"""The settings that a run was at, and what the windows at each measured: step time, power, both against the baseline.

Errors are half-widths of 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt

from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import Purpose, Window, phases_of

_LEAST_ERROR = 1e-5
"""Smallest relative error of a step time, whatever its window reports: computer clocks drift by as much."""


@dataclass(frozen=True, slots=True)
class EstimateWithError:
    """A value and the half-width of its 95 % interval, where that is known."""

    value: float
    error: float | None = None

    @property
    def share(self) -> float | None:
        """The error over the value."""
        return None if self.error is None or self.value == 0 else self.error / abs(self.value)


@dataclass(frozen=True, slots=True)
class SettingSummary:
    """A setting in one phase of the program: its windows, and their pooled step time and power."""

    setting: Setting
    windows: tuple[Window, ...]
    step_time: EstimateWithError | None
    """Seconds per unit of work."""
    power: EstimateWithError
    """Watts."""

    @property
    def purposes(self) -> frozenset[Purpose]:
        return frozenset(window.purpose for window in self.windows)

    @property
    def seconds(self) -> float:
        """How long it was set, settling included."""
        return sum(window.cost.time_s + window.settling.time_s for window in self.windows)

    @property
    def unit(self) -> Measurement | None:
        """Time and energy of a unit of work; None without a step time."""
        if self.step_time is None:
            return None
        energy_j = self.step_time.value * self.power.value
        share = _both(self.step_time.share, self.power.share)
        error_j = None if share is None else energy_j * share
        return Measurement(self.step_time.value, energy_j, self.step_time.error, error_j)


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """A phase of the program, during which it did one thing: its settings in the order in which they were first set."""

    points: tuple[SettingSummary, ...] = ()

    @property
    def baseline(self) -> SettingSummary | None:
        """The setting that all others are compared with; None before it was measured."""
        return next((point for point in self.points if Purpose.BASELINE in point.purposes), None)

    def point(self, setting: Setting | None) -> SettingSummary | None:
        """Find the summary of a setting."""
        return next((point for point in self.points if point.setting == setting), None)

    def slowdown(self, point: SettingSummary) -> EstimateWithError | None:
        """Return how much longer a unit of work takes than at the baseline, as a share."""
        base = self.baseline
        if base is None or base.step_time is None or point.step_time is None:
            return None
        return _ratio_less_one(point.step_time, base.step_time) if point is not base else EstimateWithError(0.0, 0.0)

    def saving(self, point: SettingSummary) -> EstimateWithError | None:
        """Return how much less energy a unit of work takes than at the baseline, as a share."""
        base = self.baseline
        if base is None or base.unit is None or point.unit is None or base.unit.energy_j <= 0:
            return None
        if point is base:
            return EstimateWithError(0.0, 0.0)
        own, other = point.unit, base.unit
        more = _ratio_less_one(
            EstimateWithError(own.energy_j, own.energy_error_j), EstimateWithError(other.energy_j, other.energy_error_j)
        )
        return EstimateWithError(-more.value, more.error)


def phase_summaries(windows: Sequence[Window]) -> tuple[PhaseSummary, ...]:
    """Summarize each phase of a run, setting by setting; phases without windows are left out."""
    return tuple(_summary(phase) for phase in phases_of(windows) if phase)


def _summary(windows: tuple[Window, ...]) -> PhaseSummary:
    points = []
    for setting in dict.fromkeys(window.setting for window in windows):
        own = tuple(window for window in windows if window.setting == setting)
        points.append(SettingSummary(setting, own, _pooled_step_time(own), _pooled_power(own)))
    return PhaseSummary(tuple(points))


def _pooled_step_time(windows: Sequence[Window]) -> EstimateWithError | None:
    """Average step times, weighted by their errors; the error grows where they differ more than their errors allow."""
    known = [(one.step_time_s, one.step_time_error_s, one.cost.time_s) for one in windows if one.step_time_s]
    if not known:
        return None
    values = [step_time_s for step_time_s, _, _ in known]
    errors = [max(error, _LEAST_ERROR * value) for value, error, _ in known if error is not None]
    if len(errors) < len(known):
        seconds = sum(time_s for *_, time_s in known)
        weights = [time_s / seconds if seconds > 0 else 1 / len(known) for *_, time_s in known]
        return EstimateWithError(_dot(weights, values))
    weights = [error**-2 for error in errors]
    mean = _dot(weights, values) / sum(weights)
    error = sum(weights) ** -0.5
    if len(known) > 1:
        chi2 = _dot(weights, [SIGMAS_95**2 * (value - mean) ** 2 for value in values])
        error *= sqrt(max(chi2 / (len(known) - 1), 1.0))
    return EstimateWithError(mean, error)


def _dot(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _pooled_power(windows: Sequence[Window]) -> EstimateWithError:
    cost = windows[0].cost
    for window in windows[1:]:
        cost += window.cost
    share = EstimateWithError(cost.energy_j, cost.energy_error_j).share
    return EstimateWithError(cost.power_w, None if share is None else cost.power_w * share)


def _both(first: float | None, second: float | None) -> float | None:
    """Combine two independent errors; unknown where one is."""
    return None if first is None or second is None else hypot(first, second)


def _ratio_less_one(value: EstimateWithError, reference: EstimateWithError) -> EstimateWithError:
    ratio, share = value.value / reference.value, _both(value.share, reference.share)
    return EstimateWithError(ratio - 1, None if share is None else ratio * share)
