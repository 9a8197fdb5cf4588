"""What windows show of each setting: its step time and power with their errors, phase by phase, and how it was held.

Errors are half-widths of 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import hypot, sqrt
from operator import attrgetter

from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import PhaseSetting, Purpose, Window, by_phase_words, phases_of, since_change

LEAST_ERROR = 1e-4
"""Least relative error of a step time: clocks and programs drift."""
COUNTER_ERROR = 0.001
"""Relative error of a difference of two powers by one counter, beyond the errors of its windows. Counters of one GPU
model differ by up to some percent, but alike at every power. Estimated."""


@dataclass(frozen=True, slots=True)
class EstimateWithError:
    """A value and the half-width of its 95 % interval, where that is known."""

    value: float
    error: float | None = None

    @property
    def share(self) -> float | None:
        return None if self.error is None or self.value == 0 else self.error / abs(self.value)

    @property
    def percent(self) -> float:
        return 100 * self.value

    @property
    def negative(self) -> EstimateWithError:
        return EstimateWithError(-self.value, self.error)

    def excess(self, reference: EstimateWithError) -> EstimateWithError:
        """Return by how much it exceeds another value, as a share of that."""
        ratio, share = self.value / reference.value, both(self.share, reference.share)
        return EstimateWithError(ratio - 1, None if share is None else ratio * share)


def both(first: float | None, second: float | None) -> float | None:
    """Combine two independent errors; unknown where one is."""
    return None if first is None or second is None else hypot(first, second)


def unit_of(step_time: EstimateWithError, power: EstimateWithError) -> Measurement:
    """Return time and energy of a unit of work."""
    energy_j, share = step_time.value * power.value, both(step_time.share, power.share)
    return Measurement(step_time.value, energy_j, step_time.error, None if share is None else energy_j * share)


def with_counter_error(more: float, error: float | None, counter: float) -> EstimateWithError:
    """Return the saving by a share of energy that was spent more, whose error does not have the counter's own yet."""
    return EstimateWithError(-more, None if error is None else hypot(error, (1 + more) * counter))


def pooled_step_time(windows: Sequence[Window]) -> EstimateWithError | None:
    """Average the step time of windows; None where none has one."""
    return _averaged([(one.step_time_s, one.step_time_error_s, one.cost.time_s) for one in windows if one.step_time_s])


def pooled_power(windows: Sequence[Window]) -> EstimateWithError | None:
    """Average the power of windows; None where none has a length."""
    costs = [one.cost for one in windows if one.cost.time_s > 0]
    shares = [None if one.energy_error_j is None else one.energy_error_j / one.time_s for one in costs]
    return _averaged([(one.power_w, error, one.time_s) for one, error in zip(costs, shares, strict=True)])


def _averaged(known: Sequence[tuple[float, float | None, float]]) -> EstimateWithError | None:
    """Average values with their errors and lengths, weighted by the errors or, without these, by the lengths.

    The error grows where the values differ by more than their errors allow.
    """
    if not known:
        return None
    values = [value for value, _, _ in known]
    errors = [max(error, LEAST_ERROR * value) for value, error, _ in known if error is not None]
    if len(errors) < len(known) or not all(errors):
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


LONGEST_TURN_S = 600.0
"""A setting that is held for longer does not take turns any more."""
LEAST_TURN_S = 30.0
"""A setting that was held for less was not a turn, but a step of the search."""


@dataclass(frozen=True, slots=True)
class HeldFor:
    """A setting, or one for each phase of a step, and how long it was held in all."""

    setting: Setting
    by_phase: tuple[PhaseSetting, ...]
    time_s: float

    @property
    def label(self) -> str:
        return by_phase_words(self.by_phase) or str(self.setting)


def held_for(windows: Sequence[Window]) -> tuple[HeldFor, ...]:
    """Return what was held and for how long, settling included, the longest first."""
    found: dict[object, HeldFor] = {}
    for window in windows:
        if window.purpose is Purpose.HOLD:
            before_s = found[window.point].time_s if window.point in found else 0.0
            found[window.point] = HeldFor(window.setting, window.by_phase, before_s + window.total.time_s)
    return tuple(sorted(found.values(), key=lambda one: -one.time_s))


def turns_of(windows: Sequence[Window]) -> tuple[Setting, ...]:
    """Return the two settings that are held by turns, the faster first; none where one is held."""
    held = [window for window in since_change(windows) if window.purpose is Purpose.HOLD]
    turns = [(setting, sum(one.total.time_s for one in own)) for setting, own in groupby(held, attrgetter("setting"))]
    if len(turns) < 3 or turns[-3][0] != turns[-1][0] or turns[-1][1] > LONGEST_TURN_S:
        return ()
    if min(length_s for _, length_s in turns[-3:-1]) < LEAST_TURN_S:
        return ()
    return tuple(sorted((turns[-2][0], turns[-1][0]), reverse=True))
