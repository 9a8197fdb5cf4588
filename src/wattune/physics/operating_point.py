"""Which clock holds: what was asked for, what the power limit allows, and why it is not more.

The firmware lowers the core clock until the mean power of an iteration meets the limit; the memory clock does not move.
Where even the lowest clock draws more than the limit, the lowest clock holds and the limit is exceeded.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.physics.gpu_model import Floats, GpuModel


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """The clocks that hold, as places in the GPU's tables and in MHz, and what keeps them from being higher."""

    row: int
    column: int
    sm_mhz: int
    mem_mhz: int
    throttle: Throttle


def loaded_point(model: GpuModel, setting: Setting, mean_power_w: tuple[Floats, ...]) -> OperatingPoint:
    """Where a GPU works whose load draws `mean_power_w`, one array over core clocks per memory clock."""
    row = _row(model, setting, unset=0)
    clocks_mhz = model.clocks[row].sm_mhz
    asked = _column(clocks_mhz, setting)
    limit_w = power_limit_w(model, setting)
    column = asked
    while column > 0 and mean_power_w[row][column] > limit_w:
        column -= 1
    throttle = Throttle.LOCKED if asked < len(clocks_mhz) - 1 else Throttle.NONE
    if column < asked:
        throttle |= Throttle.POWER_CAP
    return OperatingPoint(row, column, clocks_mhz[column], model.mem_clocks_mhz[row], throttle)


def context_point(model: GpuModel, setting: Setting, idle_power_w: tuple[Floats, ...]) -> OperatingPoint:
    """Where a GPU rests that a program holds: at the clock at which it would work."""
    point = loaded_point(model, setting, idle_power_w)
    return OperatingPoint(point.row, point.column, point.sm_mhz, point.mem_mhz, point.throttle | Throttle.IDLE)


def resting_point(model: GpuModel, setting: Setting) -> OperatingPoint:
    """Where a GPU rests that no program holds: as low as its locks let it."""
    row = _row(model, setting, unset=len(model.clocks) - 1)
    clocks_mhz = model.clocks[row].sm_mhz
    column = 0 if setting.sm_mhz is None else _column(clocks_mhz, setting)
    return OperatingPoint(row, column, clocks_mhz[column], model.mem_clocks_mhz[row], Throttle.IDLE)


def power_limit_w(model: GpuModel, setting: Setting) -> float:
    """The limit in force."""
    return model.power_limits.default_w if setting.power_limit_w is None else setting.power_limit_w


def _row(model: GpuModel, setting: Setting, *, unset: int) -> int:
    if setting.mem_mhz is None:
        return unset
    return model.mem_clocks_mhz.index(setting.mem_mhz)


def _column(clocks_mhz: tuple[int, ...], setting: Setting) -> int:
    """The highest clock that the lock allows."""
    if setting.sm_mhz is None:
        return len(clocks_mhz) - 1
    return max(bisect_right(clocks_mhz, setting.sm_mhz) - 1, 0)
