"""Time and power of a load at every core clock: all that a simulated GPU needs to play it.

The simulated device and the emulated library both read these tables, so that they behave alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattune.physics.gpu_parts import Floats

FIRMWARE_AVERAGE_S = 0.06
"""Time constant of the power that the firmware compares with its limit; estimates are 50 to 100 ms."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadTable:
    """One iteration of a load at one memory clock: a row per phase, a column per core clock."""

    name: str
    mem_mhz: int
    sm_mhz: tuple[int, ...]
    """Ascending."""
    duration_s: Floats
    """(phases, clocks)"""
    power_w: Floats
    """(phases, clocks): true power of the board."""
    sm_util: Floats
    """(phases,): share of the phase in which a kernel runs, 0 to 1."""
    mem_util: Floats
    """(phases, clocks): share of the memory bandwidth in use, 0 to 1."""
    tensor_util: Floats | None = None
    """(phases, clocks): share of the tensor units' peak, 0 to 1; None where not needed."""
    fp32_util: Floats | None = None
    """(phases, clocks): the same for the FP32 units."""

    def __post_init__(self) -> None:
        shape = self.duration_s.shape
        if len(shape) != 2 or shape[0] == 0 or shape[1] != len(self.sm_mhz):
            raise ValueError(f"load {self.name!r}: durations of shape {shape} for {len(self.sm_mhz)} clocks")
        pipes = [table for table in (self.tensor_util, self.fp32_util) if table is not None]
        wide = (self.power_w, self.mem_util, *pipes)
        if any(table.shape != shape for table in wide) or self.sm_util.shape != shape[:1]:
            raise ValueError(f"load {self.name!r}: its tables differ in shape")
        if not (np.all(self.duration_s > 0) and np.all(self.power_w > 0)):
            raise ValueError(f"load {self.name!r}: durations and powers are positive")

    @cached_property
    def iteration_s(self) -> Floats:
        """(clocks,)"""
        return np.asarray(self.duration_s.sum(axis=0))

    @cached_property
    def iteration_j(self) -> Floats:
        """(clocks,)"""
        return np.asarray((self.duration_s * self.power_w).sum(axis=0))

    @cached_property
    def mean_power_w(self) -> Floats:
        """(clocks,)"""
        return self.iteration_j / self.iteration_s

    @cached_property
    def limited_power_w(self) -> Floats:
        """(clocks,): the mean power that a limit acts on, where a wait counts only as long as the firmware averages.

        Training that waits half a second for data is limited while it works, so its mean power is lower: ResNet-50 on
        a V100 limited to 200 W drew 185 W (ml-energy/zeus).
        """
        waits = self.sm_util[:, np.newaxis] == 0
        remembered_s = -FIRMWARE_AVERAGE_S * np.expm1(-self.duration_s / FIRMWARE_AVERAGE_S)
        counted_s = np.where(waits, remembered_s, self.duration_s)
        return np.asarray((counted_s * self.power_w).sum(axis=0) / counted_s.sum(axis=0))

    def intervals(self, phases: int) -> tuple[int, ...]:
        """Return the first phase of each of at most `phases` intervals of about equal duration."""
        count = self.duration_s.shape[0]
        if count <= phases:
            return tuple(range(count))
        middle_s = self.duration_s[:, -1]
        ends = np.cumsum(middle_s)
        group = np.minimum((ends - middle_s / 2) / ends[-1] * phases, phases - 1).astype(int)
        return tuple(np.flatnonzero(np.diff(group, prepend=-1)).tolist())

    def merged(self, starts: tuple[int, ...]) -> LoadTable:
        """Merge the phases of each interval, given by its first phase; time and energy of an iteration stay."""
        if len(starts) == self.duration_s.shape[0]:
            return self
        duration_s = np.add.reduceat(self.duration_s, starts, axis=0)

        def mean(values: Floats) -> Floats:
            return np.asarray(np.add.reduceat(self.duration_s * values, starts, axis=0) / duration_s)

        return replace(
            self,
            duration_s=duration_s,
            power_w=mean(self.power_w),
            sm_util=mean(self.sm_util[:, np.newaxis])[:, -1],
            mem_util=mean(self.mem_util),
            tensor_util=None if self.tensor_util is None else mean(self.tensor_util),
            fp32_util=None if self.fp32_util is None else mean(self.fp32_util),
        )


LoadTables = tuple[LoadTable, ...]
"""One per memory clock, the highest first."""
