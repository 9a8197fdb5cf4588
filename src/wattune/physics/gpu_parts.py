"""The components of a GPU and the parameters of their time and power.

Notation
    f       core clock, MHz
    v       core voltage over its floor
    u       share of a unit's achievable rate in use, 0 to 1
Powers that switch with the core clock are given in W per GHz at floor voltage, and grow with v²·f.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wattune.core.workload import Pipe

Floats = NDArray[np.float64]
Power = TypeVar("Power", float, Floats)


@dataclass(frozen=True, slots=True)
class Thermal:
    """First-order response of the temperature to power, and the slowdown temperature."""

    ambient_c: float
    resistance_k_per_w: float
    tau_s: float
    slowdown_c: float = inf
    """The firmware lowers the clock to stay below this."""

    @property
    def most_w(self) -> float:
        """The power at which the GPU settles at its slowdown temperature."""
        return (self.slowdown_c - self.ambient_c) / self.resistance_k_per_w

    def steady_c(self, power_w: Power) -> Power:
        """Return the temperature that a constant power leads to."""
        return self.ambient_c + self.resistance_k_per_w * power_w


@dataclass(frozen=True, slots=True)
class ArithmeticUnit:
    """One pipe: its peak rate, the share of it that good kernels reach, and its power."""

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
    """DRAM at the default memory clock, and the path through the L2 cache."""

    bandwidth_bytes_per_s: float
    efficiency: float
    knee_mhz: float
    """Core clock below which the path to the memory limits the bandwidth, not the memory."""
    knee_exponent: float
    idle_w: float
    j_per_byte: float
    l2_j_per_byte: float = 0.0
    """Energy of a byte in the L2 cache at floor voltage; scales with the core voltage."""


@dataclass(frozen=True, slots=True)
class CorePhysics:
    """Voltage, and power of everything except arithmetic units and memory."""

    voltage_knee_mhz: float
    voltage_ratio: float
    """v at the highest clock."""
    board_w: float
    leak_w: float
    """At floor voltage and at `leak_at_c`."""
    idle_clock_w_per_ghz: float
    """Clock tree of an idle GPU that holds a context."""
    busy_clock_w_per_ghz: float
    """Added by any running kernel."""
    leak_per_k: float = 0.0
    """Leakage grows by exp(this) for every kelvin."""
    leak_at_c: float = 60.0
    voltage_bend: float = 1.0
    """Exponent of the rise of v above the knee: 1 is a straight line, more a curve that begins flat."""

    def leak_factor(self, temperature_c: float | Floats) -> Floats:
        """Return leakage relative to that at `leak_at_c`."""
        return np.asarray(np.exp(self.leak_per_k * (np.asarray(temperature_c) - self.leak_at_c)))


@dataclass(frozen=True, slots=True)
class LinkPhysics:
    """One direction of the link to other GPUs."""

    kind: str
    bytes_per_s: float
    sm_bytes_per_s: float
    """Rate of one SM that copies or reduces, at the highest core clock; proportional to the clock."""
    j_per_byte: float
    """Energy of the link itself, both ends."""


@dataclass(frozen=True, slots=True)
class ClockChange:
    """Cost of a change of one clock beyond the wait, whose median is in the GPU's specification."""

    stall_s: float
    """Time without kernels when the new clock takes effect."""
    spread: float
    """Standard deviation of the logarithm of the wait."""


_FREE_CHANGE = ClockChange(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SwitchingPhysics:
    """Changes of the core and of the memory clock."""

    sm: ClockChange = _FREE_CHANGE
    mem: ClockChange = _FREE_CHANGE


FREE_CHANGES = SwitchingPhysics()
"""Changes without a stall."""
