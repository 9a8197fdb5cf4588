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

import numpy as np

from wattune.core.gpu_spec import GpuSpec
from wattune.core.run_window import Order, Window
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.run.gpoeo.measuring import Looks
from wattune.levels.run.gpoeo.models import FEATURES, GearPredictor, Predicted, reference_setting
from wattune.levels.run.gpoeo.rule import UNSEEN, Gear, Ladder, Rule, ladder_of
from wattune.levels.run.gpoeo.search import CoreSearch, search_memory
from wattune.levels.run.power_watch import watched
from wattune.levels.run.procedure import Procedure, forever, next_order

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

    models: GearPredictor | None
    slowdown: float = 0.05
    floor_w: float = 30.0
    """Energy counts above this: 30 W on the RTX 3080 Ti in the released program."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return "gpoeo"

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """The order that the released program would give next."""
        if not spec.sm_clocks_mhz:
            return next_order(forever(DRIVER_DEFAULT, why="the core clock cannot be set"), seen)
        return next_order(self._tune(spec), seen)

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        ladder = ladder_of(spec)
        reference = reference_setting(spec) if self.models is None else self.models.reference
        while True:
            looks = yield from Looks.begun(spec, reference, floor_w=self.floor_w)
            base = yield from looks.default()
            if base == UNSEEN or looks.gear == UNSEEN:
                yield from forever(DRIVER_DEFAULT, why="neither a period nor counters show how fast the program is")
            rule = Rule(base, _MARGIN * self.slowdown)
            gear, mem_mhz = self._predicted(looks, rule, ladder)
            while True:
                setting = yield from _searched(looks, rule, ladder, gear=gear, mem_mhz=mem_mhz)
                shift = yield from watched(
                    setting,
                    bound=_SHIFT if looks.periodic else _APERIODIC_SHIFT,
                    period_s=max(looks.unit_s, _LEAST_PERIOD_S),
                    length_s=looks.length_s,
                    floor_w=self.floor_w,
                )
                if shift >= _OTHER_PROGRAM:
                    break

    def _predicted(self, looks: Looks, rule: Rule, ladder: Ladder) -> tuple[int, int | None]:
        """The core gear and the memory clock that the models think best, each with the other at the reference."""
        reference = looks.reference
        start = reference.mem_mhz if ladder.mem_mhz else None
        if self.models is None or not looks.features:
            return ladder.top, start
        gear = self._best(self.models, looks, rule, settings=ladder.settings(start))
        allowed = tuple(Setting(reference.sm_mhz, mhz) for mhz in ladder.mem_mhz if ladder.allows(gear, mhz))
        if not allowed:
            return gear, start
        return gear, allowed[self._best(self.models, looks, rule, settings=allowed)].mem_mhz

    def _best(self, models: GearPredictor, looks: Looks, rule: Rule, *, settings: tuple[Setting, ...]) -> int:
        """The place of the setting that the models think best; both sides of the comparison are theirs."""
        counters = tuple(looks.features[name] for name in FEATURES)
        predicted = _asked(models, counters, (*settings, DRIVER_DEFAULT))
        time, energy = predicted.time / predicted.time[-1], predicted.energy / predicted.energy[-1]
        # The models know all energy; the rule counts what is above the floor.
        floor = self.floor_w * rule.base.time_s
        above = np.maximum((rule.base.energy_j + floor) * energy - floor * time, 0.0)
        gears = [Gear(rule.base.time_s * one, other) for one, other in zip(time[:-1], above[:-1], strict=True)]
        return rule.best(gears)


@lru_cache(maxsize=512)
def _asked(models: GearPredictor, counters: tuple[float, ...], settings: tuple[Setting, ...]) -> Predicted:
    """What the models say, asked once: a policy goes through its windows again with every step."""
    features: Mapping[str, float] = dict(zip(FEATURES, counters, strict=True))
    return models.predict(features, settings)


def _searched(looks: Looks, rule: Rule, ladder: Ladder, *, gear: int, mem_mhz: int | None) -> Procedure[Setting]:
    """The setting that the two searches end with."""
    chosen = mem_mhz
    if mem_mhz is not None:
        chosen = yield from search_memory(looks.trial, rule, ladder, gear=gear, predicted=mem_mhz)
    wide = chosen is not None and chosen < (looks.reference.mem_mhz or 0)
    there = ladder.at(chosen)
    search = CoreSearch(looks.trial, rule, there, mem_mhz=chosen, wide=wide)
    best = yield from search.run(there.nearest(ladder.sm_mhz[gear]))
    return there.setting(best, chosen)
