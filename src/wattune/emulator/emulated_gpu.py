"""A GPU of the emulated library: its physical model, and what else NVML clients read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.core.gpu_spec import GpuSpec, Switching
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Thermal

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Generation:
    """An architecture in NVML's numbering, and its CUDA capability."""

    code: int
    capability: tuple[int, int]
    averages: bool
    """GetPowerUsage is an average over one second (NVML reference: Ampere and later, GA100 excepted)."""


GENERATIONS = {
    "pascal": Generation(4, (6, 0), False),
    "volta": Generation(5, (7, 0), False),
    "turing": Generation(6, (7, 5), False),
    "ampere": Generation(7, (8, 6), True),
    "ampere ga100": Generation(7, (8, 0), False),
    "ada": Generation(8, (8, 9), True),
    "hopper": Generation(9, (9, 0), True),
    "blackwell": Generation(10, (10, 0), True),
}
_AT_ONCE = Switching(0.0, 0.0)
_GA100 = ("A100", "A30", "A800")
_BRAND_GEFORCE, _BRAND_NVIDIA_RTX, _BRAND_NVIDIA = 5, 13, 14


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedGpu:
    """One simulated GPU of a node. `of` makes it from a model; tests vary it by `dataclasses.replace`."""

    spec: GpuSpec
    idle_w: float
    """Without a context."""
    context_idle_w: tuple[tuple[float, ...], ...]
    """With a context, for each memory clock and core clock of the specification."""
    thermal: Thermal
    memory_bytes: int
    cores: int
    generation: Generation
    noise_w: float = 0.3
    gain: float = 1.0
    offset_w: float = 0.0
    default_limit_w: float | None = None
    """In force where none is set; None: that of the specification."""
    serial: str | None = None
    bus_width_bits: int = 384
    can_lock_sm: bool = True
    has_counter: bool = True
    has_ecc: bool = True
    has_fan: bool = False
    brand: int = _BRAND_NVIDIA
    average_window_s: float | None = None
    """Window of GetPowerUsage, where it differs from the sensor's."""
    counter_window_s: float | None = None
    """How much of each period the energy counter measures; None: all of it."""
    switching: Switching = _AT_ONCE
    """How long new clocks take; `spec.switching` for the GPU's own."""
    wait_spread: float = 0.0
    """Standard deviation of the logarithm of that."""
    counter_start_j: float = 1_000_000.0
    """Initial value of the counter: a real one starts with the driver, so programs cannot rely on zero."""

    @classmethod
    def of(cls, model: GpuModel, index: int = 0) -> EmulatedGpu:
        """Make the `index`-th GPU of this model."""
        generation = generation_of(model.architecture, model.name)
        is_geforce, is_workstation = "GeForce" in model.name, "RTX" in model.name
        return cls(
            spec=model.spec(index),
            idle_w=model.idle_w,
            context_idle_w=tuple(
                tuple(float(watts) for watts in model.context_idle_w(np.array(table.sm_mhz, float), table.mem_mhz))
                for table in model.clocks
            ),
            thermal=model.thermal,
            memory_bytes=model.memory_bytes,
            cores=model.cores,
            generation=generation,
            noise_w=model.noise_w,
            gain=model.gain,
            offset_w=model.offset_w,
            wait_spread=model.change.sm.spread,
            default_limit_w=model.default_limit_w,
            has_counter=model.has_counter,
            counter_window_s=model.counter_window_s,
            serial=None if is_geforce else f"{1_320_000_000_000 + index}",
            has_ecc=not is_geforce,
            has_fan=(is_geforce or is_workstation) and "Laptop" not in model.name,
            brand=_BRAND_GEFORCE if is_geforce else _BRAND_NVIDIA_RTX if is_workstation else _BRAND_NVIDIA,
            average_window_s=1.0 if generation.averages else None,
        )

    @property
    def instant_window_s(self) -> float:
        """Window of the instantaneous power: at most one period where GetPowerUsage averages over a second."""
        window_s = self.spec.sensors.power_window_s or 0.1
        period_s = self.spec.sensors.power_period_s or 0.1
        return min(window_s, period_s) if self.average_window_s else window_s


def generation_of(architecture: str | None, name: str) -> Generation:
    """Return the generation of a GPU; GA100, whose power readings differ, is recognised by its name."""
    key = (architecture or "ampere").lower()
    if key == "ampere" and any(model in name for model in _GA100):
        key = "ampere ga100"
    return GENERATIONS.get(key, GENERATIONS["ampere"])
