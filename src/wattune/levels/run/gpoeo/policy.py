"""The policy of GPOEO for a running program: read counters once, predict, search, hold, watch the power.

Source: Wang et al., "GPOEO", IEEE TPDS 2022, and the program that its authors released. The policy measures
a reference clock for long and the default once, takes the setting that the models predict, searches the memory clock
and the core clock around it, and fits a cubic. Then it watches the power; a shift starts the search again. Settling
times and window lengths are those of the original, so that the search costs the same.

Two things are better than in the original: step times come from the windows, whose period detector is better, and the
memory clock is predicted by models of its own (`gpoeo.models`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, Window
from wattune.levels.run.gpoeo.models import FEATURES, ClockPredictor, Predicted, reference_setting
from wattune.levels.run.gpoeo.search import (
    UNMEASURED,
    CoreSearch,
    GpoeoPoint,
    GpoeoRule,
    Ladder,
    ladder_of,
    search_memory,
)
from wattune.levels.run.procedure import Procedure, PublishedPolicy, forever, ordered, watched, work_rate

_SETTLE_S = 4.0
_FIRST_S = 25.0
_FIRST_PERIODS = 5.3
_LONGEST_FIRST_S = 82.5
_COUNTING_PERIODS = 4.4
"""Four groups of counters, 1.1 periods each."""
_LATER_S, _LATER_PERIODS = 10.0, 3.0
_LONGEST_PERIOD_S = 15.0
_FIXED_S = 4.0
"""Length of a window where there is no period."""


@dataclass(frozen=True, slots=True)
class GpoeoWindows:
    """The result of the first windows, and how later windows are ordered and read."""

    spec: GpuSpec
    reference: Setting
    floor_w: float
    periodic: bool
    unit_s: float
    """The period, or the fixed window where there is none."""
    point: GpoeoPoint
    """The reference itself."""
    features: Mapping[str, float]

    @classmethod
    def started(cls, spec: GpuSpec, reference: Setting, *, floor_w: float) -> Procedure[GpoeoWindows]:
        """Measure the period and the counters at the reference."""
        first = yield ordered(reference, Purpose.REFERENCE, _FIRST_S, settle_s=2 * _SETTLE_S, why="counters and period")
        if first.step_time_s is None:
            more_s = _LONGEST_FIRST_S - _FIRST_S
        else:
            missing_s = min(_FIRST_PERIODS * first.step_time_s, _LONGEST_FIRST_S) - _FIRST_S
            more_s = max(missing_s, 0.0) + _COUNTING_PERIODS * min(first.step_time_s, _LONGEST_PERIOD_S)
        second = yield ordered(reference, Purpose.REFERENCE, more_s, settle_s=0.0, why="counters and period")
        period_s = _mean_step_time_s(first, second)
        periodic = period_s is not None and period_s <= _LONGEST_PERIOD_S
        features = second.features or first.features
        unit_s = period_s if period_s is not None and periodic else _FIXED_S
        found = cls(spec, reference, floor_w, periodic, unit_s, UNMEASURED, features)
        if not periodic:
            return replace(found, point=found.point_of(second))
        power_w = (first.cost + second.cost).power_w
        return replace(found, point=GpoeoPoint(unit_s, max(power_w - floor_w, 0.0) * unit_s))

    @property
    def length_s(self) -> float:
        return max(_LATER_S, _LATER_PERIODS * self.unit_s) if self.periodic else max(_FIXED_S, self.unit_s)

    def point_of(self, window: Window) -> GpoeoPoint:
        unit_s = window.step_time_s
        if not self.periodic:
            rate = work_rate(window, self.spec)
            unit_s = None if rate is None else 1.0 / rate
        if unit_s is None:
            return UNMEASURED
        return GpoeoPoint(unit_s, max(window.power_w - self.floor_w, 0.0) * unit_s)

    def measured(self, setting: Setting, why: str, purpose: Purpose = Purpose.TRIAL) -> Procedure[GpoeoPoint]:
        """Measure a setting; where no period is found, measure it again for longer."""
        purpose = purpose if self.periodic else Purpose.REFERENCE
        point = self.point_of((yield ordered(setting, purpose, self.length_s, settle_s=_SETTLE_S, why=why)))
        if point == UNMEASURED and self.periodic:
            again_s = min(2 * self.length_s, _LONGEST_FIRST_S)
            point = self.point_of((yield ordered(setting, purpose, again_s, settle_s=0.0, why=f"{why}, again")))
        return point


def _mean_step_time_s(*windows: Window) -> float | None:
    """Average the step times of the windows that have one, weighted by length."""
    shown = [(window.step_time_s, window.cost.time_s) for window in windows if window.step_time_s is not None]
    seconds = sum(length_s for _, length_s in shown)
    return sum(step_time_s * length_s for step_time_s, length_s in shown) / seconds if seconds else None


_MARGIN = 0.9
"""The search allows 4.5 % where the slowdown limit is 5 %."""
_SHIFT, _APERIODIC_SHIFT = 0.18, 0.30
_OTHER_PROGRAM = 0.5
"""Shift of the power from which counters are read again."""
_LEAST_PERIOD_S = 0.4
"""Shorter periods are taken several at a time."""


def learned(spec: GpuSpec) -> ClockPredictor | None:
    """Return the models of a GPU, which take some seconds at the first call; None where there can be none."""
    from wattune.levels.run.gpoeo.training import learned as trained

    return trained(spec)


def untaught(spec: GpuSpec) -> None:
    """Return no models."""
    del spec


@dataclass(frozen=True, slots=True)
class GpoeoPolicy(PublishedPolicy):
    """GPOEO; without models or without counters the search starts at the highest clock."""

    slowdown: float = 0.05
    learn: Callable[[GpuSpec], ClockPredictor | None] = learned
    """Called at the first step."""
    floor_w: float = 30.0
    """Energy counts above this: 30 W on the RTX 3080 Ti in the released program."""

    name: ClassVar[str] = "gpoeo"
    needs_counters: ClassVar[bool] = True

    def learned_beforehand(self, spec: GpuSpec, on_learning: Callable[[str], None]) -> tuple[str, ...]:
        """Learn, after a line about that, or return a note why that is impossible."""
        from wattune.levels.run.gpoeo.training import missing_for

        missing = missing_for(spec)
        if missing is not None:
            return (
                f"{self.name} learned nothing beforehand, because {missing}: its search begins at the highest clock",
            )
        on_learning(f"{self.name} learns from simulated programs on a {spec.name}, which takes some seconds")
        self.learn(spec)
        return ()

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        if not spec.sm_clocks_mhz:
            yield from forever(DRIVER_DEFAULT, why="the core clock cannot be set")
        ladder, models = ladder_of(spec), self.learn(spec)
        reference = reference_setting(spec)
        if models is not None and models.reference != reference:
            models = None  # it was trained on counters at a clock that was refused here
        while True:
            windows = yield from GpoeoWindows.started(spec, reference, floor_w=self.floor_w)
            base = yield from windows.measured(DRIVER_DEFAULT, "the default", Purpose.BASELINE)
            if base == UNMEASURED or windows.point == UNMEASURED:
                yield from forever(DRIVER_DEFAULT, why="neither a period nor counters show how fast the program is")
            rule = GpoeoRule(base, _MARGIN * self.slowdown)
            point, mem_mhz = self._predicted(models, windows, rule, ladder)
            while True:
                setting = yield from _searched(windows, rule, ladder, point=point, mem_mhz=mem_mhz)
                shift = yield from watched(
                    setting,
                    bound=_SHIFT if windows.periodic else _APERIODIC_SHIFT,
                    period_s=max(windows.unit_s, _LEAST_PERIOD_S),
                    length_s=windows.length_s,
                    floor_w=self.floor_w,
                )
                if shift >= _OTHER_PROGRAM:
                    break

    def _predicted(
        self, models: ClockPredictor | None, windows: GpoeoWindows, rule: GpoeoRule, ladder: Ladder
    ) -> tuple[int, int | None]:
        """Return the core clock's index and the memory clock that are predicted best, one at a time."""
        reference = windows.reference
        start = reference.mem_mhz if ladder.mem_mhz else None
        if models is None or not windows.features:
            return ladder.top, start
        point = self._best(models, windows, rule, settings=ladder.settings(start))
        allowed = tuple(Setting(reference.sm_mhz, mhz) for mhz in ladder.mem_mhz if ladder.allows(point, mhz))
        if not allowed:
            return point, start
        return point, allowed[self._best(models, windows, rule, settings=allowed)].mem_mhz

    def _best(
        self, models: ClockPredictor, windows: GpoeoWindows, rule: GpoeoRule, *, settings: tuple[Setting, ...]
    ) -> int:
        """Return the index of the setting with the best prediction, relative to the predicted default."""
        counters = tuple(windows.features[name] for name in FEATURES)
        predicted = _prediction(models, counters, (*settings, DRIVER_DEFAULT))
        time, energy = predicted.time / predicted.time[-1], predicted.energy / predicted.energy[-1]
        # The models predict all energy; the rule counts the energy above the floor.
        floor = self.floor_w * rule.base.time_s
        above = np.maximum((rule.base.energy_j + floor) * energy - floor * time, 0.0)
        points = [GpoeoPoint(rule.base.time_s * one, other) for one, other in zip(time[:-1], above[:-1], strict=True)]
        return rule.best(points)


@lru_cache(maxsize=512)
def _prediction(models: ClockPredictor, counters: tuple[float, ...], settings: tuple[Setting, ...]) -> Predicted:
    """Predict, with a cache: a policy replays its windows at every step."""
    return models.predict(dict(zip(FEATURES, counters, strict=True)), settings)


def _searched(
    windows: GpoeoWindows, rule: GpoeoRule, ladder: Ladder, *, point: int, mem_mhz: int | None
) -> Procedure[Setting]:
    """Search the memory clock, then the core clock, and return the best setting."""
    chosen = mem_mhz
    if mem_mhz is not None:
        chosen = yield from search_memory(windows.measured, rule, ladder, point=point, predicted=mem_mhz)
    wide = chosen is not None and chosen < (windows.reference.mem_mhz or 0)
    clocks = ladder.at(chosen)
    search = CoreSearch(windows.measured, rule, clocks, mem_mhz=chosen, wide=wide)
    best = yield from search.run(clocks.nearest(ladder.sm_mhz[point]))
    return clocks.setting(best, chosen)
