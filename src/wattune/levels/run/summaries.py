"""What was measured at each setting, phase by phase of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.window import PhaseSetting, Purpose, Window, by_phase_words, phases_of
from wattune.levels.run.estimate import (
    COUNTER_ERROR,
    EstimateWithError,
    pooled_power,
    pooled_step_time,
    unit_of,
    with_counter_error,
)


@dataclass(frozen=True, slots=True)
class SettingSummary:
    """A setting in one phase of the program: its windows, and their pooled step time and power."""

    setting: Setting
    windows: tuple[Window, ...]
    step_time: EstimateWithError | None
    """Seconds per unit of work."""
    power: EstimateWithError | None
    """Watts; None where no window was long enough to measure it."""
    by_phase: tuple[PhaseSetting, ...] = ()
    """The setting of each phase of a step, where there was one per phase."""

    @property
    def label(self) -> str:
        return by_phase_words(self.by_phase) or str(self.setting)

    @property
    def purposes(self) -> frozenset[Purpose]:
        return frozenset(window.purpose for window in self.windows)

    @property
    def seconds(self) -> float:
        """The time that it was set, settling included."""
        return sum(window.total.time_s for window in self.windows)

    @property
    def unit(self) -> Measurement | None:
        """Time and energy of a unit of work; None without a step time."""
        return None if self.step_time is None or self.power is None else unit_of(self.step_time, self.power)


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """A phase of the program, during which it did one thing: its settings in the order in which they were first set."""

    points: tuple[SettingSummary, ...] = ()

    @property
    def baseline(self) -> SettingSummary | None:
        """The setting that all others are compared with; None before it was measured."""
        return next((point for point in self.points if Purpose.BASELINE in point.purposes), None)

    def point(self, setting: Setting | None) -> SettingSummary | None:
        return next((point for point in self.points if point.setting == setting and not point.by_phase), None)

    def slowdown(self, point: SettingSummary) -> EstimateWithError | None:
        """Return how much longer a unit of work takes than at the baseline, as a share."""
        base = self.baseline
        if base is None or base.step_time is None or point.step_time is None:
            return None
        return point.step_time.excess(base.step_time) if point is not base else EstimateWithError(0.0, 0.0)

    def saving(self, point: SettingSummary) -> EstimateWithError | None:
        """Return how much less energy a unit of work takes than at the baseline, as a share."""
        base, own = self.baseline, point.unit
        if base is None or base.unit is None or own is None or base.unit.energy_j <= 0:
            return None
        if point is base:
            return EstimateWithError(0.0, 0.0)
        spent = EstimateWithError(own.energy_j, own.energy_error_j)
        more = spent.excess(EstimateWithError(base.unit.energy_j, base.unit.energy_error_j))
        return with_counter_error(more.value, more.error, COUNTER_ERROR)


def phase_summaries(windows: Sequence[Window]) -> tuple[PhaseSummary, ...]:
    """Summarize each phase of a run, setting by setting; phases without windows are left out."""
    return tuple(_phase_summary(phase) for phase in phases_of(windows) if phase)


def _phase_summary(windows: tuple[Window, ...]) -> PhaseSummary:
    by_point: dict[object, list[Window]] = {}
    for window in windows:
        by_point.setdefault(window.point, []).append(window)
    return PhaseSummary(tuple(_setting_summary(own) for own in by_point.values()))


def _setting_summary(own: Sequence[Window]) -> SettingSummary:
    """Summarize the windows of a setting; one that is held was chosen for its trial, which therefore does not count."""
    held = [one for one in own if one.purpose is Purpose.HOLD and one.step_time_s and one.cost.time_s > 0]
    based = any(one.purpose is Purpose.BASELINE for one in own)
    judged = held if held and not based else own
    return SettingSummary(own[0].setting, tuple(own), pooled_step_time(judged), pooled_power(judged), own[0].by_phase)
