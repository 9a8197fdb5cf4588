"""What stepping a GPU through time left behind: a tick for each short stretch, and everything in between on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattune.core.reading import Throttle
from wattune.physics.gpu_parts import Floats
from wattune.physics.lane import Lane

Ints = NDArray[np.int64]

STALLED = -1
"""In place of a lane's number: nothing ran."""


class Tick(NamedTuple):
    """What one tick began with."""

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
class Played:
    """One entry per tick, unless said otherwise."""

    start_s: Floats
    """(ticks + 1,): the last is the end."""
    energy_j: Floats
    """(ticks + 1,): spent until then."""
    temperature_c: Floats
    """(ticks + 1,)"""
    sm_mhz: Ints
    mem_mhz: Ints
    throttle: tuple[Throttle, ...]
    iterations: float
    """Done in all."""
    lane: Ints
    """Which of `lanes` the load was in."""
    offset_s: Floats
    """Time into the iteration at the start of the tick."""
    extra_w: Floats
    """Leakage beyond that of the settled GPU; in a stall, all of the power."""
    lanes: tuple[Lane, ...]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return float(self.start_s[-1] - self.start_s[0])

    @property
    def power_w(self) -> Floats:
        """Mean power of each tick."""
        return np.asarray(np.diff(self.energy_j) / np.diff(self.start_s))

    @property
    def mean_power_w(self) -> float:
        """Mean power over all."""
        return float((self.energy_j[-1] - self.energy_j[0]) / self.seconds)

    def energy_at(self, time_s: Floats) -> Floats:
        """What had been spent at these times, phase by phase; before the beginning as much as it began with."""
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
        """Mean power from a time to the end."""
        spent_j = self.energy_j[-1] - self.energy_at(np.array([time_s]))[0]
        return float(spent_j / (self.start_s[-1] - time_s))
