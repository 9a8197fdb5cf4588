"""How GPOEO looks at gears: how long it waits, how long it looks, and what it takes from a window.

Source: the program that the authors of GPOEO (IEEE TPDS 2022) released. A first look lasts 25 s, or 5.3 periods up to
82.5 s; later ones 10 s or 3 periods. Clocks settle for 4 s, at the reference twice that. Where no period of at most
15 s shows, performance is what counters say over a fixed time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattune.core.gpu_spec import GpuSpec
from wattune.core.run_window import Order, Purpose, Window
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.run.gpoeo.rule import UNSEEN, Gear
from wattune.levels.run.procedure import Procedure
from wattune.levels.run.work_rate import work_rate

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
class Looks:
    """What is known after the first look, and how to look from then on."""

    spec: GpuSpec
    reference: Setting
    floor_w: float
    periodic: bool
    unit_s: float
    """The period, or the fixed window where there is none."""
    gear: Gear
    """The reference itself."""
    features: Mapping[str, float]

    @classmethod
    def begun(cls, spec: GpuSpec, reference: Setting, *, floor_w: float) -> Procedure[Looks]:
        """What the long look at the reference tells: the period and the counters."""
        first = yield _look(reference, Purpose.REFERENCE, _FIRST_S, settle_s=2 * _SETTLE_S, why="counters and period")
        if first.pace_s is None:
            more_s = _LONGEST_FIRST_S - _FIRST_S
        else:
            missing_s = min(_FIRST_PERIODS * first.pace_s, _LONGEST_FIRST_S) - _FIRST_S
            more_s = max(missing_s, 0.0) + _COUNTING_PERIODS * min(first.pace_s, _LONGEST_PERIOD_S)
        second = yield _look(reference, Purpose.REFERENCE, more_s, settle_s=0.0, why="counters and period")
        period_s = _mean_pace_s(first, second)
        periodic = period_s is not None and period_s <= _LONGEST_PERIOD_S
        features = second.features or first.features
        unit_s = period_s if period_s is not None and periodic else _FIXED_S
        looks = cls(spec, reference, floor_w, periodic, unit_s, UNSEEN, features)
        if not periodic:
            return cls(spec, reference, floor_w, periodic, unit_s, looks.told(second), features)
        power_w = (first.cost + second.cost).power_w
        gear = Gear(unit_s, max(power_w - floor_w, 0.0) * unit_s)
        return cls(spec, reference, floor_w, periodic, unit_s, gear, features)

    @property
    def length_s(self) -> float:
        """How long a gear is looked at."""
        return max(_LATER_S, _LATER_PERIODS * self.unit_s) if self.periodic else max(_FIXED_S, self.unit_s)

    def default(self) -> Procedure[Gear]:
        """The default, which is looked at once."""
        purpose = Purpose.BASELINE if self.periodic else Purpose.REFERENCE
        return (yield from self._gear(DRIVER_DEFAULT, purpose, "the default"))

    def trial(self, setting: Setting, why: str) -> Procedure[Gear]:
        """A gear of the search."""
        return (yield from self._gear(setting, Purpose.TRIAL if self.periodic else Purpose.REFERENCE, why))

    def told(self, window: Window) -> Gear:
        """What a window tells of its gear."""
        unit_s = window.pace_s
        if not self.periodic:
            rate = work_rate(window, self.spec)
            unit_s = None if rate is None else 1.0 / rate
        if unit_s is None:
            return UNSEEN
        return Gear(unit_s, max(window.power_w - self.floor_w, 0.0) * unit_s)

    def _gear(self, setting: Setting, purpose: Purpose, why: str) -> Procedure[Gear]:
        """A gear; where its period does not show, it is looked at once more and longer."""
        gear = self.told((yield _look(setting, purpose, self.length_s, settle_s=_SETTLE_S, why=why)))
        if gear == UNSEEN and self.periodic:
            again_s = min(2 * self.length_s, _LONGEST_FIRST_S)
            gear = self.told((yield _look(setting, purpose, again_s, settle_s=0.0, why=f"{why}, once more")))
        return gear


def _look(setting: Setting, purpose: Purpose, seconds: float, *, settle_s: float, why: str) -> Order:
    return Order(setting=setting, purpose=purpose, least_s=seconds, most_s=seconds, settle_s=settle_s, why=why)


def _mean_pace_s(*windows: Window) -> float | None:
    """The pace of all windows that show one, the longer counting more."""
    shown = [(window.pace_s, window.cost.time_s) for window in windows if window.pace_s is not None]
    seconds = sum(length_s for _, length_s in shown)
    return sum(pace_s * length_s for pace_s, length_s in shown) / seconds if seconds else None
