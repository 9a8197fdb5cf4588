"""A GPU of the emulated library: its physical model, what else NVML clients read, and its place in a node."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from wattune.core.errors import InputError
from wattune.core.gpu_spec import GpuSpec, Switching, labelled
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats, Thermal
from wattune.physics.load_table import LoadTable

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
_LINKS = {"V100-SXM": 6, "A100-SXM": 12, "H100 80GB HBM3": 18}
"""NVLink connections by model (NVIDIA data sheets)."""
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
    """The part of each period that the energy counter measures; None: all of it."""
    switching: Switching = _AT_ONCE
    """The delay of new clocks; `spec.switching` for the GPU's own."""
    wait_spread: float = 0.0
    """Standard deviation of the logarithm of that."""
    is_persistent: bool = True
    """Persistence mode is on, as on most servers: otherwise settings are lost with the last client."""
    module_rest_w: float = 0.0
    """Power of the rest of the module that the GPU is a part of, such as a Grace CPU; 0: there is none."""
    links: int = 0
    """Number of NVLink connections."""
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
            links=next((links for part, links in _LINKS.items() if part in model.name), 0),
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


# For a GPU whose slowdown temperature is not known: higher than any GPU reaches.
_NO_SLOWDOWN_C = 1000.0


def describe(library: ctypes.CDLL, handle: int, index: int, gpu: EmulatedGpu) -> None:
    """Write a GPU into the node."""
    texts = {
        "name": labelled(gpu.spec.name, True),
        "uuid": gpu.spec.uuid,
        "serial": gpu.serial or "",
        "bus_id": f"00000000:{index + 1:02X}:00.0",
    }
    for name, text in texts.items():
        if library.wattuneDescribeText(handle, index, name.encode(), text.encode()):
            raise InputError(f"the {name} {text!r} of GPU {index} is too long", hint="at most 95 characters fit")
    for name, number in _numbers(gpu).items():
        code = library.wattuneDescribeNumber(handle, index, name.encode(), number)
        assert code == 0, f"the library does not know {name}"
    if not gpu.spec.clocks:
        raise InputError(
            f"{gpu.spec.name} has no clocks to emulate", hint="where they cannot be set: can_lock_sm=False"
        )
    for table, idle_w in zip(gpu.spec.clocks, gpu.context_idle_w, strict=True):
        count = len(table.sm_mhz)
        sm_mhz, watts = (ctypes.c_uint32 * count)(*table.sm_mhz), (ctypes.c_double * count)(*idle_w)
        if table.mem_mhz is None or library.wattuneDescribeClocks(handle, index, table.mem_mhz, count, sm_mhz, watts):
            raise InputError(
                f"the clocks of {gpu.spec.name} cannot be emulated",
                hint="up to 8 known memory clocks fit, each with up to 256 core clocks",
            )


_SAME_NAMES = (
    "idle_w memory_bytes can_lock_sm noise_w gain offset_w has_counter counter_start_j wait_spread cores "
    "bus_width_bits brand has_ecc has_fan module_rest_w links"
)
"""Numbers that the library calls as `EmulatedGpu` does."""


def _numbers(gpu: EmulatedGpu) -> dict[str, float]:
    thermal, sensors, limits = gpu.thermal, gpu.spec.sensors, gpu.spec.power_limits
    default_w = gpu.default_limit_w if gpu.default_limit_w is not None else limits.default_w if limits else inf
    return {name: getattr(gpu, name) for name in _SAME_NAMES.split()} | {
        "ambient_c": thermal.ambient_c,
        "resistance_k_per_w": thermal.resistance_k_per_w,
        "tau_s": thermal.tau_s,
        "slowdown_c": min(thermal.slowdown_c, _NO_SLOWDOWN_C),
        # Reserved by the driver; the order of magnitude of a data-centre GPU.
        "reserved_bytes": min(500 * MIB, gpu.memory_bytes // 8),
        "can_limit_power": limits is not None,
        "limit_min_w": limits.min_w if limits else inf,
        "limit_default_w": default_w,
        "limit_max_w": limits.max_w if limits else inf,
        "can_lock_mem": gpu.can_lock_sm and gpu.spec.can_lock_mem,
        # A GPU with one memory clock, as with HBM, stays at it and in P0.
        "persistent": gpu.is_persistent,
        "keeps_mem_clock": len(gpu.spec.clocks) == 1,
        "counter_period_s": sensors.counter_period_s or 0.0,
        "counter_window_s": gpu.counter_window_s or 0.0,
        "power_period_s": sensors.power_period_s or 0.0,
        "power_window_s": gpu.instant_window_s,
        "average_window_s": gpu.average_window_s or 0.0,
        "sm_wait_s": gpu.switching.sm_s or 0.0,
        "mem_wait_s": gpu.switching.mem_s or 0.0,
        "architecture": gpu.generation.code,
        "cuda_major": gpu.generation.capability[0],
        "cuda_minor": gpu.generation.capability[1],
        "pci_device_id": 0x000010DE,  # NVIDIA's vendor number; the device number is left open
    }


MOST_PHASES = 64
"""The size of the node's tables."""


def fitted(tables: Sequence[LoadTable], clocks: Sequence[tuple[int, tuple[int, ...]]]) -> list[LoadTable]:
    """Order the tables by the GPU's memory clocks, and merge neighbouring phases where there are too many."""
    by_mem = {table.mem_mhz: table for table in tables}
    found = []
    for mem_mhz, sm_mhz in clocks:
        table = by_mem.get(mem_mhz)
        if table is None or table.sm_mhz != sm_mhz:
            raise InputError(
                f"the load has no table for this GPU at a memory clock of {mem_mhz} MHz",
                hint="tabulate it for this GPU model",
            )
        found.append(table)
    if len({table.duration_s.shape[0] for table in found}) != 1:
        raise InputError("the tables of the load differ in phases", hint="tabulate them all from one workload")
    starts = found[0].intervals(MOST_PHASES)
    return [table.merged(starts) for table in found]


def pack(tables: Sequence[LoadTable]) -> tuple[Floats, ...]:
    """Pack durations, powers, and use of core, memory, tensor and FP32 units of all tables into one array each.

    Units whose use is unknown count as unused.
    """
    names = ("duration_s", "power_w", "sm_util", "mem_util", "tensor_util", "fp32_util")
    found = [[(getattr(table, name), table) for table in tables] for name in names]
    return tuple(
        _joined(np.zeros_like(table.duration_s) if use is None else use for use, table in own) for own in found
    )


def limited_w(tables: Sequence[LoadTable], clocks: Sequence[tuple[int, tuple[int, ...]]]) -> Floats:
    """Return the power that limits act on, table by table in the order of the GPU's memory clocks."""
    by_mem = {table.mem_mhz: table for table in tables}
    return _joined(by_mem[mem_mhz].limited_power_w for mem_mhz, _ in clocks)


def _joined(arrays: Iterable[Floats]) -> Floats:
    return np.ascontiguousarray(np.concatenate([np.ravel(array) for array in arrays]), dtype=np.float64)
