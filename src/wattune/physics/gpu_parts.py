"""The parts of a GPU and the numbers that say what each takes and spends.

Notation
    f       core clock, MHz
    v       core voltage over its floor
    u       share of a unit's achievable rate in use, 0 to 1
Powers that switch with the core clock are given in W per GHz at floor voltage, and grow with v²·f.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from wattune.core.workload import Pipe

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Thermal:
    """How warm the GPU gets: a first-order response to its power, and the heat at which it slows down."""

    ambient_c: float
    resistance_k_per_w: float
    tau_s: float
    slowdown_c: float = inf
    """The firmware lowers the clock to stay below it."""

    @property
    def most_w(self) -> float:
        """The power at which the GPU settles at its slowdown temperature."""
        return (self.slowdown_c - self.ambient_c) / self.resistance_k_per_w

    def steady_c(self, power_w: float) -> float:
        """Where the temperature settles at this power."""
        return self.ambient_c + self.resistance_k_per_w * power_w


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
    """DRAM at the default memory clock, and the way from it through the L2 cache."""

    bandwidth_bytes_per_s: float
    efficiency: float
    knee_mhz: float
    """Core clock below which the way to the memory, and not the memory, limits the bandwidth."""
    knee_exponent: float
    idle_w: float
    j_per_byte: float
    l2_j_per_byte: float = 0.0
    """What a byte costs on its way through the L2 cache, at floor voltage; that part is the core's."""


@dataclass(frozen=True, slots=True)
class CorePhysics:
    """Voltage and power of everything but the arithmetic and the memory."""

    voltage_knee_mhz: float
    voltage_ratio: float
    """v at the highest clock."""
    board_w: float
    leak_w: float
    """At floor voltage and at `leak_at_c`."""
    idle_clock_w_per_ghz: float
    """Clock tree of an idle GPU that holds a context."""
    busy_clock_w_per_ghz: float
    """What any running kernel adds to that, whatever it does."""
    leak_per_k: float = 0.0
    """Leakage grows by exp(this) for every kelvin."""
    leak_at_c: float = 60.0

    def leak_factor(self, temperature_c: float | Floats) -> Floats:
        """Leakage at a temperature over that at `leak_at_c`."""
        return np.asarray(np.exp(self.leak_per_k * (np.asarray(temperature_c) - self.leak_at_c)))


@dataclass(frozen=True, slots=True)
class LinkPhysics:
    """The link to other GPUs, one direction of it."""

    kind: str
    bytes_per_s: float
    sm_bytes_per_s: float
    """What one SM that copies or reduces can move, at the highest core clock; proportional to the clock."""
    j_per_byte: float
    """Of the link itself, both ends."""


@dataclass(frozen=True, slots=True)
class ClockChange:
    """What a change of one clock costs beyond the wait for it, which the GPU's spec gives as its median."""

    stall_s: float
    """Nothing runs for so long when the new clock takes over."""
    spread: float
    """Standard deviation of the logarithm of the wait."""


_FREE_CHANGE = ClockChange(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SwitchingPhysics:
    """Changes of the core and of the memory clock."""

    sm: ClockChange = _FREE_CHANGE
    mem: ClockChange = _FREE_CHANGE


FREE_CHANGES = SwitchingPhysics()
"""Changes that cost nothing but the wait for them."""
