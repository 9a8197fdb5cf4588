"""A GPU as the physics sees it: its clocks and limits, and the numbers that say what it takes and spends.

Notation
    f       core clock, MHz
    f_k     clock below which the core voltage is at its floor
    v(f)    core voltage over its floor: 1 up to f_k, then linear up to `voltage_ratio` at the highest clock
    b       1 while a kernel runs, else 0
    u       share of the arithmetic unit's achievable rate in use, 0 to 1
    B       bytes per second to and from the memory, e the energy of one

Board power in W, with everything at one instant:

    P = board + leak·v² + v²·f/1000·(idle_clock + busy_clock·b + unit·u) + memory_idle + e·B

`v` is an effective ratio: it takes in regulator losses and heating, and is not a quotient of volts. The form
P0 + a·f·V(f)² with such a voltage fits an A4000 to 0.8 % and an A100 to 0.2 % (docs/explanation/physics.md).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, Sensors, Switching
from wattune.core.workload import Pipe

Floats = NDArray[np.float64]

# Any fixed namespace will do: it makes the identifiers of simulated GPUs the same in every process.
_NAMESPACE = uuid.UUID("6f1c1e0a-6c1e-5d0b-9a7e-3b0f4d2a8c11")


@dataclass(frozen=True, slots=True)
class Thermal:
    """How warm the GPU gets: a first-order response to its power."""

    ambient_c: float
    resistance_k_per_w: float
    tau_s: float


@dataclass(frozen=True, slots=True)
class ArithmeticUnit:
    """One pipe: what it does at most, how much of that good kernels reach, and what it adds to the core's power."""

    pipe: Pipe
    peak_flops: float
    """At `reference_mhz`; proportional to the clock."""
    reference_mhz: float
    efficiency: float
    w_per_ghz: float
    """At full use and floor voltage."""

    def flops(self, sm_mhz: Floats) -> Floats:
        """(clocks,): floating-point operations per second that good kernels reach."""
        return self.peak_flops * self.efficiency * sm_mhz / self.reference_mhz


@dataclass(frozen=True, slots=True)
class MemoryPhysics:
    """DRAM at the default memory clock."""

    bandwidth_bytes_per_s: float
    efficiency: float
    knee_mhz: float
    """Core clock below which the way to the memory, and not the memory, limits the bandwidth."""
    knee_exponent: float
    idle_w: float
    j_per_byte: float


@dataclass(frozen=True, slots=True)
class CorePhysics:
    """Voltage and power of everything but the arithmetic and the memory."""

    voltage_knee_mhz: float
    voltage_ratio: float
    """v at the highest clock."""
    board_w: float
    leak_w: float
    idle_clock_w_per_ghz: float
    """Clock tree of an idle GPU that holds a context."""
    busy_clock_w_per_ghz: float
    """What any running kernel adds to that, whatever it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One kind of GPU."""

    key: str
    name: str
    architecture: str
    clocks: tuple[ClockTable, ...]
    """One table per memory clock, the default (highest) first."""
    power_limits: PowerLimits
    can_lock_mem: bool
    sensors: Sensors
    switching: Switching
    idle_w: float
    """Without a context."""
    memory_bytes: int
    sms: int
    cores: int
    thermal: Thermal
    noise_w: float
    """Standard deviation of a power reading."""
    gain: float
    """What the sensor shows over what is drawn."""
    units: tuple[ArithmeticUnit, ...]
    memory: MemoryPhysics
    core: CorePhysics
    launch_s: float
    smoothness: float
    """Exponent of the norm that joins compute and memory time; the larger, the sharper the roofline's corner."""

    @property
    def max_mhz(self) -> int:
        """The highest core clock."""
        return self.clocks[0].sm_mhz[-1]

    @property
    def mem_clocks_mhz(self) -> tuple[int, ...]:
        """The memory clocks, in the order of `clocks`."""
        return tuple(table.mem_mhz for table in self.clocks if table.mem_mhz is not None)

    @property
    def default_mem_mhz(self) -> int:
        """The memory clock that the driver uses under load."""
        return self.mem_clocks_mhz[0]

    def spec(self, index: int = 0) -> GpuSpec:
        """What the `index`-th simulated GPU of this kind tells of itself."""
        return GpuSpec(
            name=self.name,
            uuid=f"GPU-{uuid.uuid5(_NAMESPACE, f'{self.key}/{index}')}",
            clocks=self.clocks,
            power_limits=self.power_limits,
            can_lock_mem=self.can_lock_mem,
            simulated=True,
            architecture=self.architecture,
            sensors=self.sensors,
            switching=self.switching,
        )

    def unit(self, pipe: Pipe) -> ArithmeticUnit:
        """The unit that does this arithmetic: FP32 where the part has no such pipe, as frameworks then choose."""
        units = {unit.pipe: unit for unit in self.units}
        return units.get(pipe, units[Pipe.FP32])

    def voltage(self, sm_mhz: Floats) -> Floats:
        """(clocks,): v, the core voltage over its floor."""
        knee = self.core.voltage_knee_mhz
        above = np.clip((sm_mhz - knee) / (self.max_mhz - knee), 0.0, None)
        return np.asarray(1.0 + (self.core.voltage_ratio - 1.0) * above)

    def memory_idle_w(self, mem_mhz: int | None) -> float:
        """What the memory draws while nothing is moved; its clock and interface scale with the memory clock."""
        return self.memory.idle_w * (mem_mhz or self.default_mem_mhz) / self.default_mem_mhz

    def core_w(self, sm_mhz: Floats, w_per_ghz: Floats | float) -> Floats:
        """Power that switches with the core clock, for so many watts per GHz at floor voltage."""
        return np.asarray(self.voltage(sm_mhz) ** 2 * sm_mhz / 1000.0 * w_per_ghz)

    def context_idle_w(self, sm_mhz: Floats, mem_mhz: int | None) -> Floats:
        """(clocks,): power while a program holds the GPU and runs nothing, which every stall pays.

        None is the driver's own memory clock, the default.
        """
        sm_mhz = np.asarray(sm_mhz, dtype=np.float64)
        static_w = self.core.board_w + self.core.leak_w * self.voltage(sm_mhz) ** 2 + self.memory_idle_w(mem_mhz)
        return np.asarray(static_w + self.core_w(sm_mhz, self.core.idle_clock_w_per_ghz))
