"""The settings that a run was at, and what its windows say of each: pace, power, and both against the baseline.

Errors are half-widths of 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import Purpose, Window, phases_of

_LEAST_ERROR = 1e-5
"""No pace is better known than to this share, whatever its window says: clocks of computers drift by as much."""


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
    """A setting in one chapter: its windows, and what they say together."""

    setting: Setting
    windows: tuple[Window, ...]
    step_time: EstimateWithError | None
    """Seconds per unit of work."""
    power: EstimateWithError
    """Watts."""

    @property
    def purposes(self) -> frozenset[Purpose]:
        """What it was set for."""
        return frozenset(window.purpose for window in self.windows)

    @property
    def seconds(self) -> float:
        """How long it was set, settling included."""
        return sum(window.cost.time_s + window.settling.time_s for window in self.windows)

    @property
    def unit(self) -> Measurement | None:
        """What a unit of work takes; None without a pace."""
        if self.step_time is None:
            return None
        energy_j = self.step_time.value * self.power.value
        share = _both(self.step_time.share, self.power.share)
        return Measurement(
            self.step_time.value, energy_j, self.step_time.error, None if share is None else energy_j * share
        )


@dataclass(frozen=True, slots=True)
class HeldInterval:
    """A stretch in which the program did one thing: its gears in the order in which they were first set."""

    windows: tuple[Window, ...]
    points: tuple[SettingSummary, ...]

    @property
    def baseline(self) -> SettingSummary | None:
        """The gear that everything is compared with; None before it was looked at."""
        return next((point for point in self.points if Purpose.BASELINE in point.purposes), None)

    def point(self, setting: Setting | None) -> SettingSummary | None:
        """The gear of a setting."""
        return next((point for point in self.points if point.setting == setting), None)

    def slowdown(self, point: SettingSummary) -> EstimateWithError | None:
        """How much longer a unit takes than at the baseline, as a share."""
        base = self.baseline
        if base is None or base.step_time is None or point.step_time is None:
            return None
        return _ratio_less_one(point.step_time, base.step_time) if point is not base else EstimateWithError(0.0, 0.0)

    def saving(self, point: SettingSummary) -> EstimateWithError | None:
        """How much less energy a unit takes than at the baseline, as a share."""
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


def held_intervals_of(windows: Sequence[Window]) -> tuple[HeldInterval, ...]:
    """The chapters of a run, setting by setting."""
    return tuple(_held_interval(part) for part in phases_of(windows) if part)


def _held_interval(windows: tuple[Window, ...]) -> HeldInterval:
    settings = dict.fromkeys(window.setting for window in windows)
    return HeldInterval(windows, tuple(_point(setting, windows) for setting in settings))


def _point(setting: Setting, windows: Iterable[Window]) -> SettingSummary:
    own = tuple(window for window in windows if window.setting == setting)
    return SettingSummary(setting, own, _pooled_step_time(own), _pooled_power(own))


def _pooled_step_time(windows: Sequence[Window]) -> EstimateWithError | None:
    """The mean pace, weighed by what each window knows; its error grows where they disagree more than they should."""
    told = [(one.step_time_s, one.step_time_error_s, one.cost.time_s) for one in windows if one.step_time_s]
    if not told:
        return None
    errors = [None if error is None else max(error, _LEAST_ERROR * step_time) for step_time, error, _ in told]
    known = [error for error in errors if error is not None]
    if len(known) < len(told):
        seconds = sum(time_s for *_, time_s in told)
        weights = [time_s / seconds if seconds > 0 else 1 / len(told) for *_, time_s in told]
        return EstimateWithError(sum(weight * step_time for weight, (step_time, *_) in zip(weights, told, strict=True)))
    weights = [error**-2 for error in known]
    mean = sum(weight * step_time for weight, (step_time, *_) in zip(weights, told, strict=True)) / sum(weights)
    error = sum(weights) ** -0.5
    if len(told) > 1:
        chi2 = sum(w * SIGMAS_95**2 * (step_time - mean) ** 2 for w, (step_time, *_) in zip(weights, told, strict=True))
        error *= sqrt(max(chi2 / (len(told) - 1), 1.0))
    return EstimateWithError(mean, error)


def _pooled_power(windows: Sequence[Window]) -> EstimateWithError:
    cost = _total(window.cost for window in windows)
    share = EstimateWithError(cost.energy_j, cost.energy_error_j).share
    return EstimateWithError(cost.power_w, None if share is None else cost.power_w * share)


def _total(costs: Iterable[Measurement]) -> Measurement:
    """All of these one after the other; nothing where there are none."""
    found: Measurement | None = None
    for cost in costs:
        found = cost if found is None else found + cost
    return found or Measurement(0.0, 0.0)


def _both(first: float | None, second: float | None) -> float | None:
    """Two independent errors together; unknown where one is."""
    return None if first is None or second is None else hypot(first, second)


def _ratio_less_one(value: EstimateWithError, reference: EstimateWithError) -> EstimateWithError:
    ratio, share = value.value / reference.value, _both(value.share, reference.share)
    return EstimateWithError(ratio - 1, None if share is None else ratio * share)
