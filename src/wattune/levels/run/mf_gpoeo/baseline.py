"""How MF-GPOEO looks at a program, and the base with which it compares: the default, measured again now and then.

Source: the program that the authors of MF-GPOEO released.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.gpu_spec import GpuSpec
from wattune.core.run_window import Order, Purpose, Window
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.run.procedure import Procedure
from wattune.levels.run.work_rate import work_rate

_SETTLE_S = 1.0
_STEP_S, _LONGEST_S = 4.0, 20.0
"""Windows begin at 4 s and grow by 4 s while the utilisation of two in a row differs."""
_UNEVEN, _UNEVEN_POINTS = 0.045, 0.024
_BASE_WINDOWS, _BASE_AGREES = 5, 0.04
_KEPT = ((0.02, 0.8), (0.05, 0.4), (0.08, 0.3))
"""A base that is measured again and is off by less than so much: the old one keeps so much weight, otherwise 0.2."""


@dataclass(frozen=True, slots=True)
class Base:
    """The default as it is known, and how long windows must be."""

    spec: GpuSpec
    length_s: float
    unit_s: float
    power_w: float
    sm_mhz: float | None
    sm_util: float | None
    mem_util: float | None

    def index(self, window: Window) -> float | None:
        """The slowdown of a window; None where it does not show."""
        unit_s = _unit_s(window, self.spec)
        return None if unit_s is None else unit_s / self.unit_s - 1.0

    def objective(self, window: Window, index: float) -> float:
        """The power over that of the base, times 1 + index: energy per work."""
        return window.power_w / self.power_w * (1.0 + index) if self.power_w > 0 else 1.0 + index

    def refreshed(self, window: Window) -> Base:
        """The base moved towards a new window at the default."""
        index = self.index(window)
        if index is None:
            return self
        share = 1.0 - next((kept for off, kept in _KEPT if abs(index) < off), 0.2)
        return replace(
            self,
            unit_s=self.unit_s * (1.0 + share * index),
            power_w=self.power_w + share * (window.power_w - self.power_w),
        )


def measured_base(spec: GpuSpec) -> Procedure[Base | None]:
    """The length that windows need, and the default in such windows; None where nothing shows how fast it is."""
    length_s = yield from _steady_length_s()
    yield look(DRIVER_DEFAULT, length_s, why="warms up")
    base: Base | None = None
    for _ in range(_BASE_WINDOWS):
        window = yield look(DRIVER_DEFAULT, length_s, why="the base")
        unit_s = _unit_s(window, spec)
        if unit_s is None:
            # Without counters a pace may want the longest window.
            length_s = _LONGEST_S
        elif base is None:
            util = window.sm_util, window.mem_util
            base = Base(spec, length_s, unit_s, window.power_w, window.sm_mhz, *util)
        else:
            agrees = abs(base.index(window) or 0.0) <= _BASE_AGREES
            base = replace(base.refreshed(window), length_s=length_s)
            if agrees:
                break
    return base


def look(setting: Setting, seconds: float, *, why: str, settle_s: float = _SETTLE_S) -> Order:
    """An order for a window in which counters are read."""
    return Order(
        setting=setting,
        purpose=Purpose.REFERENCE,
        least_s=seconds,
        most_s=seconds,
        settle_s=settle_s,
        why=why,
    )


def _unit_s(window: Window, spec: GpuSpec) -> float | None:
    rate = work_rate(window, spec)
    return window.pace_s if rate is None else 1.0 / rate


def _steady_length_s() -> Procedure[float]:
    """How long a window must be for the utilisation of two in a row to agree."""
    length_s = _STEP_S
    before = yield look(DRIVER_DEFAULT, length_s, why="how long windows must be")
    while length_s < _LONGEST_S:
        after = yield look(DRIVER_DEFAULT, length_s, why="how long windows must be")
        if before.sm_util is None or after.sm_util is None:
            return length_s
        apart = abs(after.sm_util - before.sm_util)
        if apart <= max(_UNEVEN * max(before.sm_util, after.sm_util), _UNEVEN_POINTS):
            return length_s
        before, length_s = after, length_s + _STEP_S
    return length_s
