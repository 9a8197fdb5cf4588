"""The result of tuning a program: the whole run against its baseline, and what was measured at each setting.

Notation
    t0, e0   time and energy of a unit of work at the baseline, from all baseline windows of a phase, weighted by their
             errors; the error of the mean grows where they differ by more than these
    W        units of work done: steps that were counted, or a window's time over its step time, settling included
Nothing is claimed where nothing but the baseline was measured, with step times of one source. Time without a step time,
away from the baseline, was not compared. Up to 5 % of the run it counts with what physics allows: its work lies between
that of the baseline and that in proportion to the clocks. Beyond that the whole run is unknown, and only the part that
was compared has figures. Where steps are counted, the figures are those of the steps: what passed before the first
and after the last is left out.
A phase lies between two changes of the program. The baseline would have taken W·t0 and spent W·e0; the actual time and
energy, search included, are compared with that. Errors are half-widths of 95 % intervals; those of windows are
independent, that of a baseline is common to its phase, and that of the counter to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
COUNTER_ERROR = 0.001
"""Relative error of a difference of two powers by one counter, beyond the errors of its windows. Counters of one GPU
model differ by up to some percent, but alike at every power. Estimated."""
MOST_STALLED = 0.02
"""Share of a window in which its steps may have stalled if they count as they were; an evaluation takes longer."""
MOST_UNKNOWN = 0.05
"""Share of the time that may have been spent at other settings without a step time, if the whole run is to have
figures."""


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
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

    def __repr__(self) -> str:
        """Show the figures that matter, in two lines."""
        compared = self.compared_saving, self.compared_slowdown
        whole = (self.saving, self.slowdown) if self.saving is not None else compared
        part = (
            "" if self.saving is not None or compared[0] is None else f" in {self.compared_s:.0f} s that were compared"
        )
        held = (self.held_saving, self.held_slowdown)
        return f"search included: {_two(*whole)}{part}\nwhile held: {_two(*held)}"


def _two(saving: EstimateWithError | None, slowdown: EstimateWithError | None) -> str:
    """Write a saving and a slowdown."""
    return f"energy saved {_percent(saving)}, slowdown {_percent(slowdown)}"


def _percent(estimate: EstimateWithError | None) -> str:
    if estimate is None:
        return "unknown"
    error = "" if estimate.error is None else f" ± {100 * estimate.error:.2f}"
    return f"{estimate.percent:+z.2f}{error} %"


@dataclass(frozen=True, slots=True)
class _Errors:
    """Relative errors of a time and an energy."""

    time: float = 0.0
    energy: float = 0.0


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A window, the cost of its work at the baseline, and the relative errors of the comparison."""

    window: Window
    phase: int
    cost: Measurement
    base: Measurement
    own: _Errors
    of_base: _Errors


def figures_of(
    windows: tuple[Window, ...], *, gpus: int, slowdown_limit: float | None, was_set: bool = True
) -> RunFigures:
    """Compute the figures of a run from its windows, in order; those that nothing was compared for stay unknown.

    Where nothing was ever set, nothing was saved or lost.
    """
    if not was_set:
        none, total_s = EstimateWithError(0.0, 0.0), sum(window.total.time_s for window in windows)
        sure = None if slowdown_limit is None else 1.0
        return RunFigures(saving=none, slowdown=none, confidence=sure, search_s=total_s)
    windows = _of_steps(windows)
    part = _comparisons(windows) if _is_compared(windows) else []
    compared = _completed(part, windows)
    slowdown = _slowdown(compared)
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
        compared_slowdown=_slowdown(part),
        compared_s=part_s,
        compared_share=part_s / total_s if total_s > 0 else 0.0,
        held_saving=_saving(point),
        held_slowdown=_slowdown(point),
        evaluations=sum(window.purpose in (Purpose.TRIAL, Purpose.REFERENCE) for window in windows),
        search_s=search_s if isfinite(search_s) else sum(window.total.time_s for window in windows),
        search_extra_j=extra_j,
        break_even_s=_break_even_s(compared),
    )


def _of_steps(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Leave out the windows before the first counted step, where nothing but the baseline was measured in them."""
    if not any(window.counted for window in windows):
        return windows
    left = list(phases_of(windows))
    while left and not any(window.step_time_s or window.purpose is not Purpose.BASELINE for window in left[0]):
        del left[0]
    return tuple(window for phase in left for window in phase)


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
                found.append(_Comparison(window, number, window.total, window.total, _Errors(), _Errors()))
            elif base is not None:
                alike = [other for other in phase if other.point == window.point and other.source == source]
                one = _compared(window, number, based=based, base=base, alike=alike)
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
    unsure = (1.0 - middle) / middle
    return _Comparison(window, number, window.total, would, _Errors(unsure, unsure), _Errors())


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
    """Average the unit of work over windows at one setting; None where it is unknown."""
    step_time, power = _pooled_step_time(windows), _pooled_power([one for one in windows if one.step_time_s])
    return None if step_time is None or power is None else _unit(step_time, power)


def _unit(step_time: EstimateWithError, power: EstimateWithError) -> Measurement:
    """Return time and energy of a unit of work."""
    energy_j, share = step_time.value * power.value, _both(step_time.share, power.share)
    return Measurement(step_time.value, energy_j, step_time.error, None if share is None else energy_j * share)


def _errors(unit: Measurement) -> _Errors:
    return _Errors(_share(unit.time_error_s, unit.time_s), _share(unit.energy_error_j, unit.energy_j))


def _share(error: float | None, value: float) -> float:
    return UNSURE if error is None or value <= 0 else max(error / value, LEAST_ERROR)


def _compared(
    window: Window, number: int, *, based: Sequence[Window], base: Measurement, alike: Sequence[Window]
) -> _Comparison | None:
    """Compare a window with the baseline by the steps that were counted in it, or else by its step time.

    Without one of its own that is the step time of other windows at the same setting.
    """
    cost = window.total
    unit = window.unit if window in alike and window.unit is not None else _pooled(alike)
    counted = _counted(window)
    if base.energy_j <= 0 or (counted is None and (unit is None or unit.time_s <= 0)):
        return None
    if unit is None:  # too short for an error of its own: that of the baseline, for as long
        unit = _for_as_long(base, sum(one.cost.time_s for one in based), cost.time_s)
    units = counted if counted is not None else cost.time_s / unit.time_s
    would = Measurement(units * base.time_s, units * base.energy_j)
    return _Comparison(window, number, cost, would, _errors(unit), _errors(base))


def _counted(window: Window) -> float | None:
    """Return the steps of a window by its count, with those that fit into the time of their delays.

    None where a stall shows in it, which is no part of steps.
    """
    if not window.steps or window.steps <= 0:
        return None
    steps = window.steps / (1.0 - window.delayed)
    if window.step_time_s is None:
        return steps
    stalled_s = window.total.time_s - steps * window.step_time_s
    return steps if abs(stalled_s) <= MOST_STALLED * window.total.time_s else None


def _for_as_long(unit: Measurement, had_s: float, has_s: float) -> Measurement:
    """Return a unit of work with the errors that it would have in a window of another length."""
    wider = sqrt(had_s / has_s) if has_s > 0 else 1.0
    time_error_s = None if unit.time_error_s is None else wider * unit.time_error_s
    return replace(
        unit,
        time_error_s=time_error_s,
        energy_error_j=None if unit.energy_error_j is None else wider * unit.energy_error_j,
    )


def _slowdown(compared: Sequence[_Comparison]) -> EstimateWithError | None:
    sides = [(one.phase, one.cost.time_s, one.base.time_s, one.own.time, one.of_base.time) for one in compared]
    return _excess(sides)


def _saving(compared: Sequence[_Comparison]) -> EstimateWithError | None:
    sides = [(one.phase, one.cost.energy_j, one.base.energy_j, one.own.energy, one.of_base.energy) for one in compared]
    more = _excess(sides)
    if more is None:
        return None
    counter = (
        COUNTER_ERROR * sum(base for _, _, base, _, error in sides if error) / sum(base for _, _, base, *_ in sides)
    )
    return _with_counter_error(more.value, more.error, counter)


def _with_counter_error(more: float, error: float | None, counter: float) -> EstimateWithError:
    """Return the saving by a share of energy that was spent more, whose error does not have the counter's own yet."""
    return EstimateWithError(-more, None if error is None else hypot(error, (1 + more) * counter))


def _excess(sides: Sequence[tuple[int, float, float, float, float]]) -> EstimateWithError | None:
    """Return the excess of what windows took over the baseline, as a share.

    `sides` are the phase, what was taken, what the baseline would have taken, and the relative errors of both.
    """
    would = sum(base for _, _, base, _, _ in sides)
    if would <= 0:
        return None
    ratio = sum(took for _, took, _, _, _ in sides) / would
    alone = [own * base / would for _, _, base, own, _ in sides]
    common: dict[int, float] = {}
    for phase, _, base, _, error in sides:
        common[phase] = common.get(phase, 0.0) + error * base / would
    return EstimateWithError(ratio - 1, ratio * hypot(*alone, *common.values()))


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
        return None if self.step_time is None or self.power is None else _unit(self.step_time, self.power)


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
        return _with_counter_error(more.value, more.error, COUNTER_ERROR)


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
    return SettingSummary(own[0].setting, tuple(own), _pooled_step_time(judged), _pooled_power(judged), own[0].by_phase)


def _pooled_step_time(windows: Sequence[Window]) -> EstimateWithError | None:
    return _averaged([(one.step_time_s, one.step_time_error_s, one.cost.time_s) for one in windows if one.step_time_s])


def _pooled_power(windows: Sequence[Window]) -> EstimateWithError | None:
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
