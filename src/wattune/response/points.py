"""Operating points: settings relative to the highest values of a GPU, and the settings worth considering."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting


class ClockPoint(NamedTuple):
    """A setting in relative terms; x = None leaves the core clock free, so that only the limit holds it."""

    x: float | None
    y: float
    limit: float

    @property
    def level(self) -> float:
        """The lower of core clock and limit."""
        return min(1.0 if self.x is None else self.x, self.limit)


@dataclass(frozen=True, slots=True)
class PointScale:
    """The highest values of a GPU, to which points are relative; None where the GPU does not report one."""

    sm_mhz: float | None
    mem_mhz: float | None
    limit_w: float | None

    @classmethod
    def of(cls, spec: GpuSpec) -> PointScale:
        clocks = spec.sm_clocks_mhz
        mem = spec.mem_clocks_mhz
        limits = spec.power_limits
        return cls(clocks[-1] if clocks else None, mem[0] if mem else None, limits.default_w if limits else None)

    def point(self, setting: Setting, sm_mhz: float | None = None) -> ClockPoint:
        """Convert a setting; where the effective clock was read it is used, and no limit applies."""
        y = 1.0 if setting.mem_mhz is None or self.mem_mhz is None else round(setting.mem_mhz / self.mem_mhz, 4)
        if sm_mhz is not None and self.sm_mhz is not None:
            return ClockPoint(round(min(sm_mhz / self.sm_mhz, 1.0), 3), y, float("inf"))
        x = None if setting.sm_mhz is None or self.sm_mhz is None else round(min(setting.sm_mhz / self.sm_mhz, 1.0), 4)
        limit = 1.0
        if setting.power_limit_w is not None and self.limit_w is not None:
            limit = round(setting.power_limit_w / self.limit_w, 4)
        return ClockPoint(x, y, limit)


LEAST_MEMORY = 0.4
"""Memory clocks below this share of the highest are idle states (405 and 810 of 9501 MHz on an RTX 3080 Ti): useful
only to programs that leave the memory idle."""

IDLE_TRAFFIC = 0.01
"""A memory counts as idle up to this share of its bandwidth."""

STEP = 0.007
"""Least distance of two core clocks, as a share of the highest: finer than any slowdown limit can resolve."""
COARSE, COARSE_STEP = 0.55, 0.04
"""Below this share of the highest clock, which only programs use that hardly depend on it, steps are this share of the
clock."""

LIMIT_STEP = 0.02
"""Step of power limits, as a share of the default, where no clock can be set."""


def candidates_of(spec: GpuSpec, *, traffic: float | None = None) -> tuple[Setting, ...]:
    """Return core clocks at every useful memory clock, or power limits where clocks cannot be set.

    A lock and a limit reach the same points in steady training, so limits are not varied where clocks can be locked.
    `traffic` is the share of the memory bandwidth in use at the baseline, where known.
    """
    return _candidates(spec, 0.0 if traffic is not None and traffic <= IDLE_TRAFFIC else LEAST_MEMORY)


@lru_cache(maxsize=32)
def _candidates(spec: GpuSpec, least: float) -> tuple[Setting, ...]:
    if spec.sm_clocks_mhz:
        return tuple(
            Setting(sm_mhz, None if row == 0 else table.mem_mhz)
            for row, table in enumerate(spec.clocks)
            if row == 0 or (spec.can_lock_mem and (table.mem_mhz or 0) >= least * spec.mem_clocks_mhz[0])
            for sm_mhz in _thinned(table.sm_mhz)
        )
    limits = spec.power_limits
    if limits is None:
        return ()
    count = max(round((limits.default_w - limits.min_w) / (LIMIT_STEP * limits.default_w)), 1)
    return tuple(
        Setting(power_limit_w=round(float(watts))) for watts in np.linspace(limits.min_w, limits.default_w, count + 1)
    )


def _thinned(clocks_mhz: tuple[int, ...]) -> tuple[int, ...]:
    """Drop clocks that are too close to the next higher one; keep the highest and the lowest."""
    top = clocks_mhz[-1]
    kept = [top]
    for mhz in reversed(clocks_mhz[:-1]):
        step_mhz = STEP * top if mhz >= COARSE * top else COARSE_STEP * mhz
        if kept[-1] - mhz >= step_mhz - 1e-9 or mhz == clocks_mhz[0]:
            kept.append(mhz)
    return tuple(reversed(kept))
