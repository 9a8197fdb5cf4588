"""The clock in effect: what was requested, what the power limit allows, and what limits it.

The firmware lowers the core clock until the power of an iteration meets the limit (`LoadTable.limited_power_w`), and
until the temperature stays below the slowdown temperature; the memory clock does not move. Where even the lowest clock
draws more, the lowest clock is used and the limit is exceeded.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from wattune.core.gpu_spec import Switching
from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import ClockChange, Floats, SwitchingPhysics


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The clocks in effect, as indices into the GPU's tables and in MHz, and what limits them."""

    row: int
    column: int
    sm_mhz: int
    mem_mhz: int
    throttle: Throttle


def loaded_point(model: GpuModel, setting: Setting, power_w: tuple[Floats, ...]) -> OperatingPoint:
    """Return the point of a GPU whose load draws `power_w`: per memory clock, over core clocks."""
    requested = requested_point(model, setting)
    limit_w, heat_w = power_limit_w(model, setting), model.thermal.most_w
    column = requested.column
    while column > 0 and power_w[requested.row][column] > min(limit_w, heat_w):
        column -= 1
    if column == requested.column:
        return requested
    why = Throttle.POWER_CAP if limit_w <= heat_w else Throttle.THERMAL
    sm_mhz = model.clocks[requested.row].sm_mhz[column]
    return replace(requested, column=column, sm_mhz=sm_mhz, throttle=requested.throttle | why)


def requested_point(model: GpuModel, setting: Setting) -> OperatingPoint:
    """Return the point that holds if neither power nor temperature limits it."""
    row = _row(model, setting, unset=0)
    clocks_mhz = model.clocks[row].sm_mhz
    column = _column(clocks_mhz, setting)
    throttle = Throttle.LOCKED if column < len(clocks_mhz) - 1 else Throttle.NONE
    return OperatingPoint(row, column, clocks_mhz[column], model.mem_clocks_mhz[row], throttle)


def context_point(model: GpuModel, setting: Setting, idle_power_w: tuple[Floats, ...]) -> OperatingPoint:
    """Return the point of an idle GPU that holds a context: the clock at which it would work."""
    point = loaded_point(model, setting, idle_power_w)
    return replace(point, throttle=point.throttle | Throttle.IDLE)


def resting_point(model: GpuModel, setting: Setting) -> OperatingPoint:
    """Return the point of a GPU without a context: the lowest clocks that its locks allow."""
    row = _row(model, setting, unset=len(model.clocks) - 1)
    clocks_mhz = model.clocks[row].sm_mhz
    column = 0 if setting.sm_mhz is None else _column(clocks_mhz, setting)
    return OperatingPoint(row, column, clocks_mhz[column], model.mem_clocks_mhz[row], Throttle.IDLE)


def power_limit_w(model: GpuModel, setting: Setting) -> float:
    """Return the power limit in force."""
    return model.default_limit_w if setting.power_limit_w is None else setting.power_limit_w


def _row(model: GpuModel, setting: Setting, *, unset: int) -> int:
    return unset if setting.mem_mhz is None else model.mem_clocks_mhz.index(setting.mem_mhz)


def _column(clocks_mhz: tuple[int, ...], setting: Setting) -> int:
    """Return the index of the highest clock that the lock allows."""
    if setting.sm_mhz is None:
        return len(clocks_mhz) - 1
    return max(bisect_right(clocks_mhz, setting.sm_mhz) - 1, 0)


IDEAL = Switching(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds until a change takes effect, and how long no kernel runs then."""

    wait_s: float = 0.0
    stall_s: float = 0.0


AT_ONCE = Delay()


def delay_of(
    medians: Switching, change: SwitchingPhysics, *, before: Setting, after: Setting, seed: int, number: int
) -> Delay:
    """Draw the delay of the `number`-th change of a GPU; where both clocks change, the longer delay counts."""
    core = _delay(medians.sm_s, change.sm, (seed, number, 0)) if before.sm_mhz != after.sm_mhz else AT_ONCE
    memory = _delay(medians.mem_s, change.mem, (seed, number, 1)) if before.mem_mhz != after.mem_mhz else AT_ONCE
    return Delay(max(core.wait_s, memory.wait_s), max(core.stall_s, memory.stall_s))


def _delay(median_s: float | None, change: ClockChange, seed: tuple[int, ...]) -> Delay:
    if not median_s:
        return AT_ONCE
    draw = float(np.random.default_rng(seed).standard_normal())
    return Delay(median_s * exp(change.spread * draw), change.stall_s)
