"""The result of tuning a program: the whole run against its baseline, and what was measured at each setting.

Notation
    t0, e0   time and energy of a unit of work at the baseline, from all baseline windows of a phase
    W        units of work done: each window's time, settling included, over its step time
Nothing is claimed where nothing but the baseline was measured, with step times of one source. Time without a step time,
away from the baseline, was not compared. Up to 5 % of the run it counts with what physics allows: its work lies between
that of the baseline and that in proportion to the clocks. Beyond that the whole run is unknown, and only the part that
was compared has figures.
A phase lies between two changes of the program. The baseline would have taken W·t0 and spent W·e0; the actual time and
energy, search included, are compared with that. Errors are half-widths of 95 % intervals; those of windows are
independent, that of a baseline is common to its phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite, sqrt
from statistics import NormalDist

from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import PhaseSetting, Purpose, Window, by_phase_words, phases_of
from wattune.levels.run.turns import turns_of
from wattune.response.clock_doubt import window_doubt

UNSURE = 0.05
"""Relative error of a step time that has none."""
LEAST_ERROR = 1e-4
"""Least relative error of a step time: clocks and programs drift."""
POWER_ERROR = 0.002
"""Relative error of the mean power of a baseline; small, since one counter measures everything."""
MOST_UNKNOWN = 0.05
"""Share of the time that may have been spent at other settings without a step time, if the whole run is to have
figures."""
_SMALLEST_ERROR = 1e-5
"""The same in the summary of a setting: computer clocks drift by as much."""


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
        ratio, share = self.value / reference.value, _both(self.share, reference.share)
        return EstimateWithError(ratio - 1, None if share is None else ratio * share)


def _both(first: float | None, second: float | None) -> float | None:
    """Combine two independent errors; unknown where one is."""
    return None if first is None or second is None else hypot(first, second)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Savings and costs of tuning so far, search included; None where unknown."""

    saving: EstimateWithError | None = None
    """Share of the energy that the same work takes at the baseline."""
    slowdown: EstimateWithError | None = None
    """Share of the time that the same work takes at the baseline."""
    confidence: float | None = None
    """Probability that the slowdown is within its limit, 0 to 1."""
    compared_saving: EstimateWithError | None = None
    """The same as `saving` in the time that was compared; None where nothing but the baseline was."""
    compared_slowdown: EstimateWithError | None = None
    compared_s: float = 0.0
    """Seconds that were compared, those at the baseline included."""
    compared_share: float = 0.0
    """Their share of the time of all windows."""
    held_saving: EstimateWithError | None = None
    """At the setting that was held last, or at the two that took turns: the limit for a long run."""
    held_slowdown: EstimateWithError | None = None
    evaluations: int = 0
    """Windows at settings other than the baseline that were not for holding."""
    search_s: float = 0.0
    """Until a setting was held for the first time."""
    search_extra_j: float | None = None
    """Energy of the search beyond that of the baseline for the same work; negative if it saved."""
    break_even_s: float | None = None
    """The time from which the run has spent less than without tuning."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A window, the cost of its work at the baseline, and the relative errors of the comparison."""

    window: Window
    phase: int
    cost: Measurement
    base: Measurement
    own: float
    base_time: float
    base_energy: float


def figures_of(windows: tuple[Window, ...], *, gpus: int, slowdown_limit: float | None) -> RunFigures:
    """Compute the figures of a run from its windows, in order; those that nothing was compared for stay unknown."""
    part = _comparisons(windows) if _is_compared(windows) else []
    compared = _completed(part, windows)
    slowdown = _more(compared, _times)
    point = _held_last(part, windows)
    part_s, total_s = (sum(one.total.time_s for one in some) for some in ([one.window for one in part], windows))
    search_s = next((window.start_s for window in windows if window.purpose is Purpose.HOLD), inf)
    searched = [one for one in compared if one.window.start_s < search_s]
    extra_j = gpus * sum(one.cost.energy_j - one.base.energy_j for one in searched) if searched else None
    return RunFigures(
        saving=_saving(compared),
        slowdown=slowdown,
        confidence=None if slowdown_limit is None or slowdown is None else _confidence(slowdown, slowdown_limit),
        compared_saving=_saving(part),
        compared_slowdown=_more(part, _times),
        compared_s=part_s,
        compared_share=part_s / total_s if total_s > 0 else 0.0,
        held_saving=_saving(point),
        held_slowdown=_more(point, _times),
        evaluations=sum(window.purpose in (Purpose.TRIAL, Purpose.REFERENCE) for window in windows),
        search_s=search_s if isfinite(search_s) else sum(window.total.time_s for window in windows),
        search_extra_j=extra_j,
        break_even_s=_break_even_s(compared),
    )


def _comparisons(windows: tuple[Window, ...]) -> list[_Comparison]:
    """Compare the windows of known work with the baseline of their phase; time at the baseline is as it is."""
    found: list[_Comparison] = []
    for number, phase in enumerate(phases_of(windows)):
        based = [window for window in phase if window.purpose is Purpose.BASELINE]
        points = {window.point for window in based}
        base = _pooled([window for window in based if not window.changed])
        source = next((window.source for window in based if window.step_time_s), None)
        for window in phase:
            if window.purpose is Purpose.BASELINE or (window.point in points and not window.step_time_s):
                found.append(_Comparison(window, number, window.total, window.total, 0.0, 0.0, 0.0))
            elif base is not None:
                alike = [other for other in phase if other.point == window.point and other.source == source]
                one = _compared(window, number, base=base, alike=alike)
                found += [] if one is None else [one]
    return found


def _is_compared(windows: tuple[Window, ...]) -> bool:
    """Return whether something but the baseline was compared, and followed the clock."""
    if any(window_doubt(phase) is not None for phase in phases_of(windows)):
        return False
    others = [one.window for one in _comparisons(windows) if one.window.purpose is not Purpose.BASELINE]
    return any(window.step_time_s for window in others)


def _completed(part: Sequence[_Comparison], windows: tuple[Window, ...]) -> list[_Comparison]:
    """Return the comparisons with bounds for the windows that were not compared; none where those are too many."""
    known = {id(one.window): one for one in part}
    unknown_s = sum(window.total.time_s for window in windows if id(window) not in known)
    if not part or unknown_s > MOST_UNKNOWN * sum(window.total.time_s for window in windows):
        return []
    found: list[_Comparison] = []
    for number, phase in enumerate(phases_of(windows)):
        based = [window for window in phase if window.purpose is Purpose.BASELINE]
        for window in phase:
            one = known.get(id(window)) or (_bounded(window, number, based[-1]) if based else None)
            if one is None:
                return []
            found.append(one)
    return found


def _bounded(window: Window, number: int, baseline: Window) -> _Comparison:
    """Compare a window of unknown work: its work is between that of the baseline and that in proportion to the clocks.

    Without clocks it may have done none.
    """
    least = 0.0
    if window.sm_mhz and baseline.sm_mhz and window.setting.mem_mhz == baseline.setting.mem_mhz:
        least = min(window.sm_mhz / baseline.sm_mhz, 1.0)
    middle, time_s = (1.0 + least) / 2.0, window.total.time_s
    would = Measurement(middle * time_s, middle * time_s * baseline.power_w)
    return _Comparison(window, number, window.total, would, (1.0 - middle) / middle, 0.0, 0.0)


def _held_last(part: Sequence[_Comparison], windows: tuple[Window, ...]) -> list[_Comparison]:
    """Return the windows that held what was held last, in the last phase: one setting, or two by turns."""
    last = next((window for window in reversed(windows) if window.purpose is Purpose.HOLD), None)
    if last is None or not part:
        return []
    held = [one for one in part if one.window.purpose is Purpose.HOLD and one.phase == part[-1].phase]
    turns = turns_of(windows)
    if turns:
        return [one for one in held if one.window.setting in turns and not one.window.by_phase]
    return [one for one in held if one.window.point == last.point]


def _pooled(windows: Sequence[Window]) -> Measurement | None:
    """Average the unit of work over windows at one setting, weighted by certainty; None where it is unknown."""
    units = [unit for window in windows if (unit := window.unit) is not None and unit.time_s > 0]
    if not units:
        return None
    weights = [1 / _share(unit) ** 2 for unit in units]
    total = sum(weights)
    time_s = sum(weight * unit.time_s for weight, unit in zip(weights, units, strict=True)) / total
    energy_j = sum(weight * unit.energy_j for weight, unit in zip(weights, units, strict=True)) / total
    share = 1 / sqrt(total)
    return Measurement(time_s, energy_j, share * time_s, hypot(share, POWER_ERROR) * energy_j)


def _share(unit: Measurement) -> float:
    return UNSURE if unit.time_error_s is None else max(unit.time_error_s / unit.time_s, LEAST_ERROR)


def _compared(window: Window, number: int, *, base: Measurement, alike: Sequence[Window]) -> _Comparison | None:
    """Compare a window with the baseline by its own step time, or else by those at the same setting."""
    cost = window.total
    unit = window.unit if window in alike and window.unit is not None else _pooled(alike)
    if unit is None or unit.time_s <= 0 or base.energy_j <= 0:
        return None
    units = cost.time_s / unit.time_s
    would = Measurement(units * base.time_s, units * base.energy_j)
    base_time, base_energy = (base.time_error_s or 0.0) / base.time_s, (base.energy_error_j or 0.0) / base.energy_j
    return _Comparison(window, number, cost, would, _share(unit), base_time, base_energy)


_Sides = Callable[[_Comparison], tuple[float, float, float]]
"""Actual cost, cost at the baseline, and relative error of the baseline."""


def _times(one: _Comparison) -> tuple[float, float, float]:
    return one.cost.time_s, one.base.time_s, one.base_time


def _more(compared: Sequence[_Comparison], sides: _Sides) -> EstimateWithError | None:
    """Return the excess of all windows over the baseline, as a share."""
    found = [(one, *sides(one)) for one in compared]
    would = sum(side for _, _, side, _ in found)
    if would <= 0:
        return None
    ratio = sum(took for _, took, _, _ in found) / would
    alone = [one.own * side / would for one, _, side, _ in found]
    common: dict[int, float] = {}
    for one, _, side, error in found:
        common[one.phase] = common.get(one.phase, 0.0) + error * side / would
    return EstimateWithError(ratio - 1, ratio * hypot(*alone, *common.values()))


def _saving(compared: Sequence[_Comparison]) -> EstimateWithError | None:
    more = _more(compared, lambda one: (one.cost.energy_j, one.base.energy_j, one.base_energy))
    return None if more is None else more.negative


def _confidence(slowdown: EstimateWithError, slowdown_limit: float) -> float:
    room = slowdown_limit - slowdown.value
    if not slowdown.error:
        return float(room >= 0)
    return NormalDist().cdf(SIGMAS_95 * room / slowdown.error)


def _break_even_s(compared: Sequence[_Comparison]) -> float | None:
    """Return when the run had finally spent less than without tuning, extrapolated from the last window if needed.

    None where only the baseline was measured, or where the last window saves nothing.
    """
    if all(one.window.purpose is Purpose.BASELINE for one in compared):
        return None
    ahead_j, even_s = 0.0, 0.0
    for one in compared:
        gain_j = one.base.energy_j - one.cost.energy_j
        if ahead_j < 0 <= ahead_j + gain_j:
            even_s = _start_s(one) - one.cost.time_s * ahead_j / gain_j
        ahead_j += gain_j
    if ahead_j >= 0:
        return even_s
    last = compared[-1]
    gain_w = (last.base.energy_j - last.cost.energy_j) / last.cost.time_s if last.cost.time_s > 0 else 0.0
    return _start_s(last) + last.cost.time_s - ahead_j / gain_w if gain_w > 0 else None


def _start_s(one: _Comparison) -> float:
    return max(one.window.start_s - one.window.settling.time_s, 0.0)


@dataclass(frozen=True, slots=True)
class SettingSummary:
    """A setting in one phase of the program: its windows, and their pooled step time and power."""

    setting: Setting
    windows: tuple[Window, ...]
    step_time: EstimateWithError | None
    """Seconds per unit of work."""
    power: EstimateWithError
    """Watts."""
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
        return spent.excess(EstimateWithError(base.unit.energy_j, base.unit.energy_error_j)).negative


def phase_summaries(windows: Sequence[Window]) -> tuple[PhaseSummary, ...]:
    """Summarize each phase of a run, setting by setting; phases without windows are left out."""
    return tuple(_phase_summary(phase) for phase in phases_of(windows) if phase)


def _phase_summary(windows: tuple[Window, ...]) -> PhaseSummary:
    by_point: dict[object, list[Window]] = {}
    for window in windows:
        by_point.setdefault(window.point, []).append(window)
    return PhaseSummary(
        tuple(
            SettingSummary(own[0].setting, tuple(own), _pooled_step_time(own), _pooled_power(own), own[0].by_phase)
            for own in by_point.values()
        )
    )


def _pooled_step_time(windows: Sequence[Window]) -> EstimateWithError | None:
    """Average step times, weighted by their errors; the error grows where they differ more than their errors allow."""
    known = [(one.step_time_s, one.step_time_error_s, one.cost.time_s) for one in windows if one.step_time_s]
    if not known:
        return None
    values = [step_time_s for step_time_s, _, _ in known]
    errors = [max(error, _SMALLEST_ERROR * value) for value, error, _ in known if error is not None]
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
