"""The record of a GPU that was stepped through time: one entry per tick, energy at any time by interpolation."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattune.core.reading import Throttle
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """End time and cumulative energy of each phase at one clock, from zero, and the leakage at that clock."""

    ends_s: list[float]
    energy_j: list[float]
    power_w: list[float]
    leak_w: float
    """At the temperature at which leakage is given."""
    settled_factor: float
    """Leakage included in `power_w`, relative to `leak_w`."""
    idle_w: float
    """Power without leakage while no kernel runs."""

    @classmethod
    def of(cls, model: GpuModel, table: LoadTable, column: int) -> Lane:
        """Make the lane of a table at one of its core clocks."""
        sm_mhz = np.array([table.sm_mhz[column]], dtype=np.float64)
        duration_s, power_w = table.duration_s[:, column], table.power_w[:, column]
        settled_c = model.thermal.steady_c(float(table.mean_power_w[column]))
        leak_w = float(model.core.leak_w * model.voltage(sm_mhz)[0] ** 2)
        return cls(
            [0.0, *np.cumsum(duration_s).tolist()],
            [0.0, *np.cumsum(duration_s * power_w).tolist()],
            power_w.tolist(),
            leak_w,
            float(model.core.leak_factor(min(settled_c, model.thermal.slowdown_c))),
            float(model.awake_w(sm_mhz, table.mem_mhz)[0]),
        )

    def energy_at(self, offset_s: float) -> float:
        """Energy of an iteration up to `offset_s`, at the settled temperature."""
        phase = min(bisect_right(self.ends_s, offset_s), len(self.power_w)) - 1
        return self.energy_j[phase] + (offset_s - self.ends_s[phase]) * self.power_w[phase]

    def energies_at(self, offset_s: Floats) -> Floats:
        """The same for many times, which may exceed one iteration."""
        laps, rest_s = np.divmod(offset_s, self.ends_s[-1])
        return np.asarray(laps * self.energy_j[-1] + np.interp(rest_s, self.ends_s, self.energy_j))

    def resumed_at(self, other: Lane, offset_s: float) -> float:
        """Return the offset at this clock of the point that another clock reaches after `offset_s`."""
        phase = min(bisect_right(other.ends_s, offset_s), len(other.power_w)) - 1
        start_s, end_s = other.ends_s[phase], other.ends_s[phase + 1]
        fraction = min((offset_s - start_s) / (end_s - start_s), 1.0)
        return self.ends_s[phase] + fraction * (self.ends_s[phase + 1] - self.ends_s[phase])


Ints = NDArray[np.int64]

STALLED = -1
"""In place of a lane's number: no kernel ran."""


class Tick(NamedTuple):
    """State at the start of a tick."""

    time_s: float
    energy_j: float
    temperature_c: float
    row: int
    column: int
    throttle: Throttle
    lane: int
    offset_s: float
    extra_w: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SteppedTrace:
    """One entry per tick, unless stated otherwise."""

    start_s: Floats
    """(ticks + 1,): the last is the end."""
    energy_j: Floats
    """(ticks + 1,): cumulative."""
    temperature_c: Floats
    """(ticks + 1,)"""
    sm_mhz: Ints
    mem_mhz: Ints
    throttle: tuple[Throttle, ...]
    iterations: float
    lane: Ints
    """Index into `lanes`."""
    offset_s: Floats
    """Time into the iteration at the start of the tick."""
    extra_w: Floats
    """Leakage beyond that of the settled GPU; in a stall, all of the power."""
    lanes: tuple[Lane, ...]

    @property
    def seconds(self) -> float:
        return float(self.start_s[-1] - self.start_s[0])

    @property
    def power_w(self) -> Floats:
        """Mean power of each tick."""
        return np.asarray(np.diff(self.energy_j) / np.diff(self.start_s))

    @property
    def mean_power_w(self) -> float:
        return float((self.energy_j[-1] - self.energy_j[0]) / self.seconds)

    def energy_at(self, time_s: Floats) -> Floats:
        """Cumulative energy at these times, exact to the phase; times are clipped to the record."""
        time_s = np.clip(time_s, self.start_s[0], self.start_s[-1])
        tick = np.clip(np.searchsorted(self.start_s, time_s, side="right") - 1, 0, len(self.lane) - 1)
        into_s = time_s - self.start_s[tick]
        energy_j = self.energy_j[tick] + self.extra_w[tick] * into_s
        for number in np.unique(self.lane[tick]):
            if number != STALLED:
                mine = self.lane[tick] == number
                lane, from_s = self.lanes[int(number)], self.offset_s[tick[mine]]
                energy_j[mine] += lane.energies_at(from_s + into_s[mine]) - lane.energies_at(from_s)
        return np.asarray(energy_j)

    def after(self, time_s: float) -> float:
        """Mean power from `time_s` to the end."""
        spent_j = self.energy_j[-1] - self.energy_at(np.array([time_s]))[0]
        return float(spent_j / (self.start_s[-1] - time_s))
