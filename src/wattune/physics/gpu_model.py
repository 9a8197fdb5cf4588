"""The physical model of a GPU: its clocks and limits, and the components of which it is made.

Notation
    f       core clock, MHz
    f_k     clock below which the core voltage is at its floor
    v(f)    core voltage over its floor: 1 up to f_k, then up to `voltage_ratio` at the highest clock, in a straight
            line or, with a `voltage_bend` above 1, in a curve that begins flat

`v` is an effective ratio that includes regulator losses; it is not a quotient of volts. The form P0 + a·f·V(f)² with
such a voltage fits an A4000 to 0.8 % and an A100 to 0.2 % (docs/explanation/physics.md).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import numpy as np

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, Sensors, Switching
from wattune.core.voltage import voltage
from wattune.core.workload import Pipe
from wattune.physics.gpu_parts import (
    FREE_CHANGES,
    ArithmeticUnit,
    CorePhysics,
    Floats,
    LinkPhysics,
    MemoryPhysics,
    SwitchingPhysics,
    Thermal,
)

# Any fixed namespace makes the identifiers of simulated GPUs the same in every process.
_NAMESPACE = uuid.UUID("6f1c1e0a-6c1e-5d0b-9a7e-3b0f4d2a8c11")

# Enough for millionths of a degree: each pass shrinks the error by R·dP/dT, which is below 0.3 on every GPU.
_SETTLING_PASSES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A GPU model of the catalogue."""

    key: str
    name: str
    architecture: str
    clocks: tuple[ClockTable, ...]
    """One table per memory clock, the default (highest) first."""
    power_limits: PowerLimits | None
    """None where the limit cannot be set, as on laptops."""
    default_limit_w: float
    """In force where none is set."""
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
    """Reading of the power sensor over the true power."""
    units: tuple[ArithmeticUnit, ...]
    memory: MemoryPhysics
    core: CorePhysics
    launch_s: float
    smoothness: float
    """Exponent of the norm that joins compute and memory time; the larger, the sharper the roofline's corner."""
    offset_w: float = 0.0
    """Added to every power reading."""
    has_counter: bool = True
    """False without an energy counter: then energy is the sum of power readings."""
    counter_window_s: float | None = None
    """Part of each period that the counter measures; None: all of it."""
    change: SwitchingPhysics = FREE_CHANGES
    link: LinkPhysics | None = None

    @property
    def max_mhz(self) -> int:
        return self.clocks[0].sm_mhz[-1]

    @property
    def mem_clocks_mhz(self) -> tuple[int, ...]:
        """In the order of `clocks`."""
        return tuple(table.mem_mhz for table in self.clocks if table.mem_mhz is not None)

    @property
    def default_mem_mhz(self) -> int:
        """The memory clock that the driver uses under load."""
        return self.mem_clocks_mhz[0]

    def spec(self, index: int = 0) -> GpuSpec:
        """Return the specification of the `index`-th simulated GPU of this model."""
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
        """Return the unit of a pipe; FP32 where the GPU lacks the pipe, as frameworks choose."""
        fallback = next(unit for unit in self.units if unit.pipe is Pipe.FP32)
        return next((unit for unit in self.units if unit.pipe is pipe), fallback)

    def voltage(self, sm_mhz: Floats) -> Floats:
        """(clocks,): v, the core voltage over its floor."""
        core, highest_mhz = self.core, self.max_mhz
        knee, rise = core.voltage_knee_mhz / highest_mhz, core.voltage_ratio - 1.0
        return voltage(sm_mhz / highest_mhz, knee=knee, rise=rise, bend=core.voltage_bend)

    def memory_idle_w(self, mem_mhz: int | None) -> float:
        """Return the power of idle memory: its clock and interface scale with the memory clock."""
        return self.memory.idle_w * (mem_mhz or self.default_mem_mhz) / self.default_mem_mhz

    def core_w(self, sm_mhz: Floats, w_per_ghz: Floats | float) -> Floats:
        """Return the power that switches with the core clock, for so many watts per GHz at floor voltage."""
        return np.asarray(self.voltage(sm_mhz) ** 2 * sm_mhz / 1000.0 * w_per_ghz)

    def leak_w(self, sm_mhz: Floats, temperature_c: float | Floats) -> Floats:
        """(clocks,): leakage of the core at a temperature."""
        return np.asarray(self.core.leak_w * self.voltage(sm_mhz) ** 2 * self.core.leak_factor(temperature_c))

    def settled_c(self, sm_mhz: Floats, other_w: Floats) -> Floats:
        """(clocks,): the temperature at which the GPU settles under `other_w` plus its leakage."""
        temperature_c = self.thermal.steady_c(other_w)
        for _ in range(_SETTLING_PASSES):
            leak_w = self.leak_w(sm_mhz, np.minimum(temperature_c, self.thermal.slowdown_c))
            temperature_c = self.thermal.steady_c(other_w + leak_w)
        return temperature_c

    def awake_w(self, sm_mhz: Floats, mem_mhz: int | None) -> Floats:
        """(clocks,): power without leakage of a GPU that holds a context and runs no kernel."""
        static_w = self.core.board_w + self.memory_idle_w(mem_mhz)
        return np.asarray(static_w + self.core_w(sm_mhz, self.core.idle_clock_w_per_ghz))

    def context_idle_w(self, sm_mhz: Floats, mem_mhz: int | None) -> Floats:
        """(clocks,): settled power of a GPU that holds a context and runs no kernel; None: default memory clock."""
        sm_mhz = np.asarray(sm_mhz, dtype=np.float64)
        awake_w = self.awake_w(sm_mhz, mem_mhz)
        return np.asarray(awake_w + self.leak_w(sm_mhz, self.settled_c(sm_mhz, awake_w)))


CHIP_SPREAD = (0.03, 0.02, 0.15)
"""Largest deviation of a chip's voltage knee, floor voltage and leakage (docs/explanation/physics.md), as shares."""


def chip_of(model: GpuModel, seed: int) -> GpuModel:
    """Return this GPU model with the chip that belongs to a seed.

    Deviations are normal, and cut off at two standard deviations. Dynamic core power scales with the square of the
    floor voltage.
    """
    draws = np.clip(np.random.default_rng(seed).standard_normal(3) / 2.0, -1.0, 1.0)
    knee, floor_voltage, leakage = (1.0 + draws * CHIP_SPREAD).tolist()
    squared = floor_voltage**2
    core = replace(
        model.core,
        voltage_knee_mhz=model.core.voltage_knee_mhz * knee,
        # The highest voltage is the board's and does not change, so its ratio to the floor does.
        voltage_ratio=max(model.core.voltage_ratio / floor_voltage, 1.0),
        leak_w=model.core.leak_w * squared * leakage,
        idle_clock_w_per_ghz=model.core.idle_clock_w_per_ghz * squared,
        busy_clock_w_per_ghz=model.core.busy_clock_w_per_ghz * squared,
    )
    return replace(
        model,
        core=core,
        units=tuple(replace(unit, w_per_ghz=unit.w_per_ghz * squared) for unit in model.units),
        memory=replace(model.memory, l2_j_per_byte=model.memory.l2_j_per_byte * squared),
    )
