"""A load at one clock, ready to be stepped through quickly: plain lists, and powers between their ends."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """When each phase of an iteration ends and what was spent by then, from zero on; and what the clock leaks."""

    ends_s: list[float]
    energy_j: list[float]
    power_w: list[float]
    leak_w: float
    """At the temperature at which leakage is given."""
    settled_factor: float
    """Leakage that the powers hold already, over that."""
    idle_w: float
    """What the GPU draws while nothing runs, but for its leakage."""

    @classmethod
    def of(cls, model: GpuModel, table: LoadTable, column: int) -> Lane:
        """The load of a table at one of its core clocks."""
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
        """What an iteration has spent so long after its beginning, at the settled temperature."""
        phase = min(bisect_right(self.ends_s, offset_s), len(self.power_w)) - 1
        return self.energy_j[phase] + (offset_s - self.ends_s[phase]) * self.power_w[phase]

    def energies_at(self, offset_s: Floats) -> Floats:
        """The same for many times, which may lie iterations ahead."""
        laps, rest_s = np.divmod(offset_s, self.ends_s[-1])
        return np.asarray(laps * self.energy_j[-1] + np.interp(rest_s, self.ends_s, self.energy_j))

    def taken_up(self, other: Lane, offset_s: float) -> float:
        """Where this clock would stand at the point of the iteration that another has reached after `offset_s`."""
        phase = min(bisect_right(other.ends_s, offset_s), len(other.power_w)) - 1
        start_s, end_s = other.ends_s[phase], other.ends_s[phase + 1]
        part = min((offset_s - start_s) / (end_s - start_s), 1.0)
        return self.ends_s[phase] + part * (self.ends_s[phase + 1] - self.ends_s[phase])
