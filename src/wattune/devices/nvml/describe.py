"""The `GpuSpec` of a GPU, from NVML, and what this process may do with each GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import pynvml

from wattune.core.errors import DeviceError
from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, Sensors, Switching
from wattune.devices.in_turn import in_turn
from wattune.devices.nvml import library

_PASCAL_AND_VOLTA = Sensors(counter_period_s=0.02, power_period_s=0.02, power_window_s=0.01)
_PART_TIME = Sensors(counter_period_s=0.1, power_period_s=0.1, power_window_s=0.025)
_FULL_TIME = Sensors(counter_period_s=0.1, power_period_s=0.1, power_window_s=0.1)

_FAMILIES = {
    "Pascal": _PASCAL_AND_VOLTA,
    "Volta": _PASCAL_AND_VOLTA,
    "Turing": _FULL_TIME,
    "Ampere": _FULL_TIME,
    "Ada": _FULL_TIME,
    "Hopper": _PART_TIME,
}

GA100_NAMES = ("A100", "A800", "A30", "CMP 170HX")

_SWITCHING = {
    "Volta": Switching(sm_s=0.010, mem_s=None),
    "Ampere": Switching(sm_s=0.010, mem_s=0.1),
    "Hopper": Switching(sm_s=0.030, mem_s=0.1),
    "Turing": Switching(sm_s=0.080, mem_s=0.1),
    "Ada": Switching(sm_s=0.080, mem_s=0.1),
}


def sensors_of(architecture: str | None, name: str) -> Sensors:
    """Return the sensors of a GPU; all unknown for an architecture without published measurements."""
    if is_ga100(name):
        return _PART_TIME
    return _FAMILIES.get(architecture or "", Sensors())


def switching_of(architecture: str | None) -> Switching:
    """Return our estimate of switching times; published figures differ by driver and target clock."""
    return _SWITCHING.get(architecture or "", Switching())


def is_ga100(name: str) -> bool:
    """Return whether the GPU is a GA100, the only Ampere whose power reading is not a one-second average."""
    return any(part in name for part in GA100_NAMES)


T = TypeVar("T")

ARCHITECTURES = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
}

WITHOUT_MEMORY_LOCK = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing")
"""nvmlDeviceSetMemoryLockedClocks came with Ampere (NVML reference)."""

WITHOUT_CORE_LOCK = ("Kepler", "Maxwell", "Pascal")
"""nvmlDeviceSetGpuLockedClocks came with Volta (NVML reference); before it there are application clocks."""


def describe(handle: Any, *, emulated: bool) -> GpuSpec:
    """Return the spec of the GPU behind a handle."""
    found_name, number, clocks, uuid, power_limits = answers(
        lambda: known(lambda: text(pynvml.nvmlDeviceGetName(handle))),
        lambda: known(lambda: pynvml.nvmlDeviceGetArchitecture(handle)),
        lambda: _clocks(handle),
        lambda: text(pynvml.nvmlDeviceGetUUID(handle)),
        lambda: known(lambda: _power_limits(handle)),
    )
    name, architecture = found_name or "NVIDIA GPU", ARCHITECTURES.get(number or -1)
    return GpuSpec(
        name=name,
        uuid=uuid,
        clocks=clocks,
        power_limits=power_limits,
        can_lock_mem=len(clocks) > 1 and architecture not in WITHOUT_MEMORY_LOCK,
        simulated=emulated,
        architecture=architecture,
        sensors=sensors_of(architecture, name),
        switching=switching_of(architecture),
    )


FATAL = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
)
"""Errors after which nothing else can be asked of the GPU."""


def answers(*queries: Callable[[], Any]) -> list[Any]:
    """Return the answers to queries, made beside each other where the driver is slow; raise the first error."""
    found = in_turn(queries)
    for answer in found:
        if isinstance(answer, Exception):
            raise answer
    return found


def known(query: Callable[[], T]) -> T | None:
    """Return the result of an optional query, or None if it fails while the GPU itself still answers."""
    try:
        return query()
    except pynvml.NVMLError as error:
        if error.value in FATAL:
            raise
        return None


def text(value: str | bytes) -> str:
    """Return text; releases of pynvml differ in text or bytes."""
    return value.decode() if isinstance(value, bytes) else value


def mig_enabled(handle: Any) -> bool:
    """Return whether MIG is enabled on the GPU."""
    modes = known(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    return bool(modes and modes[0])


def field_of(handle: Any, field: int, scope: int = pynvml.NVML_POWER_SCOPE_GPU) -> int | None:
    """Return a field of the GPU, or of the module that it is a part of; None where there is none."""
    values = known(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [(field, scope)]))
    if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def module_power_w(handle: Any) -> float | None:
    """Return the power of the module that a GPU is a part of: it includes the CPU and its memory."""
    power_mw = field_of(handle, pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_POWER_SCOPE_MODULE)
    return None if power_mw is None else power_mw / 1000


def _clocks(handle: Any) -> tuple[ClockTable, ...]:
    memory = known(lambda: pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)) or []
    tables = []
    for mem_mhz in sorted(memory, reverse=True):
        graphics = known(partial(pynvml.nvmlDeviceGetSupportedGraphicsClocks, handle, mem_mhz))
        if graphics:
            tables.append(ClockTable(int(mem_mhz), tuple(sorted(int(mhz) for mhz in graphics))))
    return tuple(tables)


def _power_limits(handle: Any) -> PowerLimits:
    low_mw, high_mw = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    default_mw = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)
    return PowerLimits(low_mw / 1000, default_mw / 1000, high_mw / 1000)


Answer = Literal["yes", "not supported", "unknown"]


@dataclass(frozen=True, slots=True)
class GpuExam:
    """The examination of one GPU; `lost` is the error of one that does not answer."""

    index: int
    name: str
    lost: str | None = None
    limit_settable: Answer = "unknown"
    mig: bool = False
    persistent: bool | None = None
    has_counter: bool = True
    module_power_w: float | None = None
    """Power of the whole module that the GPU is a part of, as Grace Hopper; None where there is none."""


@dataclass(frozen=True, slots=True)
class DriverExam:
    """The driver's version and its GPUs, or the error of loading it."""

    failure: DeviceError | None = None
    version: str | None = None
    emulated: bool = False
    may_set: bool = True
    """False where this process is not privileged to set GPUs."""
    gpus: tuple[GpuExam, ...] = ()


def examine() -> DriverExam:
    """Examine the driver and every GPU."""
    try:
        loaded = library.load()
    except DeviceError as error:
        return DriverExam(failure=error)
    try:
        with library.translated("cannot list the GPUs"):
            version = known(lambda: text(pynvml.nvmlSystemGetDriverVersion()))
            gpus = tuple(_exam(index) for index in range(pynvml.nvmlDeviceGetCount()))
        return DriverExam(version=version, emulated=loaded.emulated, may_set=library.may_set(), gpus=gpus)
    except DeviceError as error:
        return DriverExam(failure=error)
    finally:
        library.close()


def _exam(index: int) -> GpuExam:
    name = f"GPU {index}"
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = text(pynvml.nvmlDeviceGetName(handle))
        persistence = known(lambda: pynvml.nvmlDeviceGetPersistenceMode(handle))
        return GpuExam(
            index,
            name,
            limit_settable=_limit_settable(handle),
            mig=mig_enabled(handle),
            persistent=None if persistence is None else bool(persistence),
            module_power_w=module_power_w(handle),
            has_counter=known(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) is not None,
        )
    except pynvml.NVMLError as error:
        return GpuExam(index, name, lost=str(error))


def _limit_settable(handle: Any) -> Answer:
    """Return whether the GPU has power limits; nothing is set to find out."""
    return "not supported" if known(lambda: _power_limits(handle)) is None else "yes"
