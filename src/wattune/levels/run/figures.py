"""What the tuning of a program came to: net saving, slowdown, how surely the promise was kept, and what it cost.

Notation
    t0, e0   time and energy of a unit of work at the baseline, from all baseline windows of a stage
    W        units of work done: each window's time over its pace, what passed while it settled included
A stage is what lies between two changes of what the program does. The driver's own clocks would have taken W·t0 and
spent W·e0; everything that really passed, the search too, is compared with that. Errors are half-widths of 95 %
intervals; those of windows are taken as independent, that of a baseline as common to its stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite, sqrt
from statistics import NormalDist

from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.setting import Setting
from wattune.core.window import Purpose, Window, phases_of
from wattune.levels.run.setting_summary import EstimateWithError

UNSURE = 0.05
"""Relative error of a pace that comes without one."""
LEAST_ERROR = 1e-4
"""No pace is better known than to this share: clocks of computers drift, and programs do."""
POWER_ERROR = 0.002
"""What the mean power of a baseline may be off beyond its pace; the same counter measures everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What tuning saved and cost so far, everything that the search spent included; None where it is unknown."""

    saving: EstimateWithError | None = None
    """Share of the energy that the same work takes at the baseline."""
    slowdown: EstimateWithError | None = None
    """Share of the time that the same work takes at the baseline."""
    confidence: float | None = None
    """Probability that the slowdown is within its limit, 0 to 1."""
    held_saving: EstimateWithError | None = None
    """At the setting that was held last: what a longer run tends to."""
    held_slowdown: EstimateWithError | None = None
    evaluations: int = 0
    """Windows at settings other than the baseline that were not for holding."""
    search_s: float = 0.0
    """Until a setting was held for the first time."""
    search_extra_j: float | None = None
    """What the search spent more than the baseline would have on the same work; below zero it saved."""
    break_even_s: float | None = None
    """When the run has spent less than without tuning."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A window beside what its work would have taken at the baseline, and the errors of that, relative."""

    window: Window
    stage: int
    cost: Measurement
    base: Measurement
    own: float
    base_time: float
    base_energy: float


def figures_of(windows: tuple[Window, ...], *, gpus: int, slowdown_limit: float | None) -> RunFigures:
    """What these windows, of one run and in their order, say of it."""
    parts = _parts(windows)
    slowdown = _more(parts, _times)
    held = _last_held(windows)
    point = [part for part in parts if part.window.setting == held and part.window.purpose is Purpose.HOLD]
    point = [part for part in point if part.stage == parts[-1].stage]
    search_s = _search_s(windows)
    searched = [part for part in parts if part.window.start_s < search_s]
    extra_j = gpus * sum(part.cost.energy_j - part.base.energy_j for part in searched) if searched else None
    return RunFigures(
        saving=_less(_more(parts, _energies)),
        slowdown=slowdown,
        confidence=None if slowdown_limit is None or slowdown is None else _confidence(slowdown, slowdown_limit),
        held_saving=_less(_more(point, _energies)),
        held_slowdown=_more(point, _times),
        evaluations=sum(window.purpose in (Purpose.TRIAL, Purpose.REFERENCE) for window in windows),
        search_s=search_s if isfinite(search_s) else sum(_cost(window).time_s for window in windows),
        search_extra_j=extra_j,
        break_even_s=_break_even_s(parts),
    )


def _parts(windows: tuple[Window, ...]) -> list[_Part]:
    """The windows whose work can be told, in stages that have a baseline."""
    found: list[_Part] = []
    for number, stage in enumerate(phases_of(windows)):
        base = _pooled([window for window in stage if window.purpose is Purpose.BASELINE and not window.changed])
        if base is None:
            continue
        for window in stage:
            part = _part(window, number, base=base, stage=stage)
            if part is not None:
                found.append(part)
    return found


def _pooled(windows: Sequence[Window]) -> Measurement | None:
    """The unit of work in some windows at one setting, each counting by its certainty; None where none tells it."""
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
    """The relative error of its time."""
    return UNSURE if unit.time_error_s is None else max(unit.time_error_s / unit.time_s, LEAST_ERROR)


def _part(window: Window, number: int, *, base: Measurement, stage: Sequence[Window]) -> _Part | None:
    cost = _cost(window)
    if window.purpose is Purpose.BASELINE:
        return _Part(window, number, cost, cost, 0.0, 0.0, 0.0)
    unit = window.unit or _pooled([other for other in stage if other.setting == window.setting])
    if unit is None or unit.time_s <= 0 or base.energy_j <= 0:
        return None
    units = cost.time_s / unit.time_s
    return _Part(
        window,
        number,
        cost,
        Measurement(units * base.time_s, units * base.energy_j),
        _share(unit),
        (base.time_error_s or 0.0) / base.time_s,
        (base.energy_error_j or 0.0) / base.energy_j,
    )


def _cost(window: Window) -> Measurement:
    return Measurement(window.cost.time_s + window.settling.time_s, window.cost.energy_j + window.settling.energy_j)


_Sides = Callable[[_Part], tuple[float, float, float]]
"""What a part took, what it would have taken, and the relative error of its baseline."""


def _times(part: _Part) -> tuple[float, float, float]:
    return part.cost.time_s, part.base.time_s, part.base_time


def _energies(part: _Part) -> tuple[float, float, float]:
    return part.cost.energy_j, part.base.energy_j, part.base_energy


def _more(parts: Sequence[_Part], sides: _Sides) -> EstimateWithError | None:
    """How much more all parts took than they would have, as a share."""
    found = [(part, *sides(part)) for part in parts]
    would = sum(side for _, _, side, _ in found)
    if would <= 0:
        return None
    ratio = sum(took for _, took, _, _ in found) / would
    alone = [part.own * side / would for part, _, side, _ in found]
    common: dict[int, float] = {}
    for part, _, side, error in found:
        common[part.stage] = common.get(part.stage, 0.0) + error * side / would
    return EstimateWithError(ratio - 1, ratio * hypot(*alone, *common.values()))


def _less(more: EstimateWithError | None) -> EstimateWithError | None:
    return None if more is None else EstimateWithError(-more.value, more.error)


def _confidence(slowdown: EstimateWithError, slowdown_limit: float) -> float:
    room = slowdown_limit - slowdown.value
    if not slowdown.error:
        return float(room >= 0)
    return NormalDist().cdf(SIGMAS_95 * room / slowdown.error)


def _last_held(windows: Sequence[Window]) -> Setting | None:
    return next((window.setting for window in reversed(windows) if window.purpose is Purpose.HOLD), None)


def _search_s(windows: Sequence[Window]) -> float:
    """When something was held for the first time; infinity where nothing was."""
    return next((window.start_s for window in windows if window.purpose is Purpose.HOLD), inf)


def _break_even_s(parts: Sequence[_Part]) -> float | None:
    """When the run had spent less than without tuning, for good; ahead, at the rate of the last part, if need be.

    None where nothing but the baseline was looked at, or where that is not in sight.
    """
    if all(part.window.purpose is Purpose.BASELINE for part in parts):
        return None
    ahead_j, even_s = 0.0, 0.0
    for part in parts:
        gain_j = part.base.energy_j - part.cost.energy_j
        if ahead_j < 0 <= ahead_j + gain_j:
            even_s = _start_s(part) - part.cost.time_s * ahead_j / gain_j
        ahead_j += gain_j
    if ahead_j >= 0:
        return even_s
    last = parts[-1]
    gain_w = (last.base.energy_j - last.cost.energy_j) / last.cost.time_s if last.cost.time_s > 0 else 0.0
    return _start_s(last) + last.cost.time_s - ahead_j / gain_w if gain_w > 0 else None


def _start_s(part: _Part) -> float:
    return max(part.window.start_s - part.window.settling.time_s, 0.0)
