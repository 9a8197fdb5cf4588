"""GPOEO's rule for a running program: look at counters once, predict, search, hold, watch the power.

Source: Wang et al., "GPOEO", IEEE TPDS 2022, and the program that its authors released. In their order: a long look at
a reference clock, a look at the default, the gear that models predict, a search of the memory clock and of the core
clock around it, a cubic fit; then the power is watched, and a shift begins the search anew. Settling times and lengths
of windows are theirs, so that the search costs here what it costs there.

Two things are kinder than the original. The pace comes from the windows, and so from a better detector than theirs.
And predictions of the memory clock use the models that were made for it (`gpoeo_models`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.gpoeo.models import FEATURES, ClockPredictor, Predicted, reference_setting
from wattune.levels.run.gpoeo.search import UNSEEN, CoreSearch, GpoeoPoint, GpoeoRule, Ladder, ladder_of, search_memory
from wattune.levels.run.procedure import Procedure, forever, next_order, watched, work_rate

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
    """What is known after the first look, and how to look from then on."""

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
    def begun(cls, spec: GpuSpec, reference: Setting, *, floor_w: float) -> Procedure[GpoeoWindows]:
        """What the long look at the reference tells: the period and the counters."""
        first = yield _look(reference, Purpose.REFERENCE, _FIRST_S, settle_s=2 * _SETTLE_S, why="counters and period")
        if first.step_time_s is None:
            more_s = _LONGEST_FIRST_S - _FIRST_S
        else:
            missing_s = min(_FIRST_PERIODS * first.step_time_s, _LONGEST_FIRST_S) - _FIRST_S
            more_s = max(missing_s, 0.0) + _COUNTING_PERIODS * min(first.step_time_s, _LONGEST_PERIOD_S)
        second = yield _look(reference, Purpose.REFERENCE, more_s, settle_s=0.0, why="counters and period")
        period_s = _mean_step_time_s(first, second)
        periodic = period_s is not None and period_s <= _LONGEST_PERIOD_S
        features = second.features or first.features
        unit_s = period_s if period_s is not None and periodic else _FIXED_S
        looks = cls(spec, reference, floor_w, periodic, unit_s, UNSEEN, features)
        if not periodic:
            return cls(spec, reference, floor_w, periodic, unit_s, looks.told(second), features)
        power_w = (first.cost + second.cost).power_w
        point = GpoeoPoint(unit_s, max(power_w - floor_w, 0.0) * unit_s)
        return cls(spec, reference, floor_w, periodic, unit_s, point, features)

    @property
    def length_s(self) -> float:
        """How long a gear is looked at."""
        return max(_LATER_S, _LATER_PERIODS * self.unit_s) if self.periodic else max(_FIXED_S, self.unit_s)

    def default(self) -> Procedure[GpoeoPoint]:
        """The default, which is looked at once."""
        purpose = Purpose.BASELINE if self.periodic else Purpose.REFERENCE
        return (yield from self._point(DRIVER_DEFAULT, purpose, "the default"))

    def trial(self, setting: Setting, why: str) -> Procedure[GpoeoPoint]:
        """A gear of the search."""
        return (yield from self._point(setting, Purpose.TRIAL if self.periodic else Purpose.REFERENCE, why))

    def told(self, window: Window) -> GpoeoPoint:
        """What a window tells of its gear."""
        unit_s = window.step_time_s
        if not self.periodic:
            rate = work_rate(window, self.spec)
            unit_s = None if rate is None else 1.0 / rate
        if unit_s is None:
            return UNSEEN
        return GpoeoPoint(unit_s, max(window.power_w - self.floor_w, 0.0) * unit_s)

    def _point(self, setting: Setting, purpose: Purpose, why: str) -> Procedure[GpoeoPoint]:
        """A gear; where its period does not show, it is looked at once more and longer."""
        point = self.told((yield _look(setting, purpose, self.length_s, settle_s=_SETTLE_S, why=why)))
        if point == UNSEEN and self.periodic:
            again_s = min(2 * self.length_s, _LONGEST_FIRST_S)
            point = self.told((yield _look(setting, purpose, again_s, settle_s=0.0, why=f"{why}, once more")))
        return point


def _look(setting: Setting, purpose: Purpose, seconds: float, *, settle_s: float, why: str) -> Order:
    return Order(setting=setting, purpose=purpose, least_s=seconds, most_s=seconds, settle_s=settle_s, why=why)


def _mean_step_time_s(*windows: Window) -> float | None:
    """The pace of all windows that show one, the longer counting more."""
    shown = [(window.step_time_s, window.cost.time_s) for window in windows if window.step_time_s is not None]
    seconds = sum(length_s for _, length_s in shown)
    return sum(step_time_s * length_s for step_time_s, length_s in shown) / seconds if seconds else None


_MARGIN = 0.9
"""4.5 % are searched for where 5 % are promised."""
_SHIFT, _APERIODIC_SHIFT = 0.18, 0.30
_OTHER_PROGRAM = 0.5
"""A shift of the power by so much, and counters are read again."""
_LEAST_PERIOD_S = 0.4
"""Shorter periods are taken several at a time."""


@dataclass(frozen=True, slots=True)
class GpoeoPolicy:
    """GPOEO; without models, or where nothing reads counters, the search begins at the highest clock."""

    models: ClockPredictor | None
    slowdown: float = 0.05
    floor_w: float = 30.0
    """Energy counts above this: 30 W on the RTX 3080 Ti in the released program."""

    name: ClassVar[str] = "gpoeo"
    tunes: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    needs_counters: ClassVar[bool] = True

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """The order that the released program would give next."""
        if not spec.sm_clocks_mhz:
            return next_order(forever(DRIVER_DEFAULT, why="the core clock cannot be set"), seen)
        return next_order(self._tune(spec), seen)

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        ladder = ladder_of(spec)
        reference = reference_setting(spec) if self.models is None else self.models.reference
        while True:
            looks = yield from GpoeoWindows.begun(spec, reference, floor_w=self.floor_w)
            base = yield from looks.default()
            if base == UNSEEN or looks.point == UNSEEN:
                yield from forever(DRIVER_DEFAULT, why="neither a period nor counters show how fast the program is")
            rule = GpoeoRule(base, _MARGIN * self.slowdown)
            point, mem_mhz = self._predicted(looks, rule, ladder)
            while True:
                setting = yield from _searched(looks, rule, ladder, point=point, mem_mhz=mem_mhz)
                shift = yield from watched(
                    setting,
                    bound=_SHIFT if looks.periodic else _APERIODIC_SHIFT,
                    period_s=max(looks.unit_s, _LEAST_PERIOD_S),
                    length_s=looks.length_s,
                    floor_w=self.floor_w,
                )
                if shift >= _OTHER_PROGRAM:
                    break

    def _predicted(self, looks: GpoeoWindows, rule: GpoeoRule, ladder: Ladder) -> tuple[int, int | None]:
        """The core gear and the memory clock that the models think best, each with the other at the reference."""
        reference = looks.reference
        start = reference.mem_mhz if ladder.mem_mhz else None
        if self.models is None or not looks.features:
            return ladder.top, start
        point = self._best(self.models, looks, rule, settings=ladder.settings(start))
        allowed = tuple(Setting(reference.sm_mhz, mhz) for mhz in ladder.mem_mhz if ladder.allows(point, mhz))
        if not allowed:
            return point, start
        return point, allowed[self._best(self.models, looks, rule, settings=allowed)].mem_mhz

    def _best(
        self, models: ClockPredictor, looks: GpoeoWindows, rule: GpoeoRule, *, settings: tuple[Setting, ...]
    ) -> int:
        """The place of the setting that the models think best; both sides of the comparison are theirs."""
        counters = tuple(looks.features[name] for name in FEATURES)
        predicted = _asked(models, counters, (*settings, DRIVER_DEFAULT))
        time, energy = predicted.time / predicted.time[-1], predicted.energy / predicted.energy[-1]
        # The models know all energy; the rule counts what is above the floor.
        floor = self.floor_w * rule.base.time_s
        above = np.maximum((rule.base.energy_j + floor) * energy - floor * time, 0.0)
        points = [GpoeoPoint(rule.base.time_s * one, other) for one, other in zip(time[:-1], above[:-1], strict=True)]
        return rule.best(points)


@lru_cache(maxsize=512)
def _asked(models: ClockPredictor, counters: tuple[float, ...], settings: tuple[Setting, ...]) -> Predicted:
    """What the models say, asked once: a policy goes through its windows again with every step."""
    features: Mapping[str, float] = dict(zip(FEATURES, counters, strict=True))
    return models.predict(features, settings)


def _searched(
    looks: GpoeoWindows, rule: GpoeoRule, ladder: Ladder, *, point: int, mem_mhz: int | None
) -> Procedure[Setting]:
    """The setting that the two searches end with."""
    chosen = mem_mhz
    if mem_mhz is not None:
        chosen = yield from search_memory(looks.trial, rule, ladder, point=point, predicted=mem_mhz)
    wide = chosen is not None and chosen < (looks.reference.mem_mhz or 0)
    there = ladder.at(chosen)
    search = CoreSearch(looks.trial, rule, there, mem_mhz=chosen, wide=wide)
    best = yield from search.run(there.nearest(ladder.sm_mhz[point]))
    return there.setting(best, chosen)
