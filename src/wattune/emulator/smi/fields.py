"""The fields of --query-gpu and --query-compute-apps: name, unit, and how each is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml


def supported(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or None where the GPU does not support it."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NotFound, pynvml.NVMLError_FunctionNotFound):
        return None


def field_watts(handle: Any, field: int) -> float | None:
    """Return a power field in watts, or None."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    return value.value.uiVal / 1000 if value.nvmlReturn == pynvml.NVML_SUCCESS else None


def watts(function: Callable[..., Any], handle: Any) -> float | None:
    """Convert the result of a function from milliwatts to watts, or None."""
    milliwatts = supported(function, handle)
    return None if milliwatts is None else milliwatts / 1000


def member(value: Any, name: str) -> Any:
    """Return a member of a structure, or None without a structure."""
    return None if value is None else getattr(value, name)


MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class QueryField:
    """One column: its unit, and the function that reads it."""

    unit: str | None
    find: Callable[[Any], Any]


def cell_text(value: Any, unit: str | None, *, with_unit: bool) -> str:
    """Format a cell as nvidia-smi does."""
    if value is None:
        return "[N/A]"
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit and with_unit else text


def _clock(kind: int) -> Callable[[Any], Any]:
    return lambda handle: supported(pynvml.nvmlDeviceGetClockInfo, handle, kind)


def _max_clock(kind: int) -> Callable[[Any], Any]:
    return lambda handle: supported(pynvml.nvmlDeviceGetMaxClockInfo, handle, kind)


def _application_clock(kind: int) -> Callable[[Any], Any]:
    return lambda handle: supported(pynvml.nvmlDeviceGetApplicationsClock, handle, kind)


def _memory(name: str) -> Callable[[Any], Any]:
    return lambda handle: getattr(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2), name) // MIB


def _utilisation(name: str) -> Callable[[Any], Any]:
    return lambda handle: member(supported(pynvml.nvmlDeviceGetUtilizationRates, handle), name)


def _watts(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda handle: watts(function, handle)


def _constraint(place: int) -> Callable[[Any], Any]:
    def find(handle: Any) -> float | None:
        limits = supported(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
        return None if limits is None else float(limits[place]) / 1000

    return find


def _reasons(handle: Any) -> str:
    return f"0x{pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle):016X}"


def _capability(handle: Any) -> str:
    return ".".join(str(number) for number in pynvml.nvmlDeviceGetCudaComputeCapability(handle))


def _timestamp(handle: Any) -> str:
    del handle
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"


def _mode(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda handle: {None: None, 0: "Disabled", 1: "Enabled"}[supported(function, handle)]


_SM, _GRAPHICS, _MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_MEM

GPU_FIELDS: dict[str, QueryField] = {
    "timestamp": QueryField(None, _timestamp),
    "driver_version": QueryField(None, lambda _: pynvml.nvmlSystemGetDriverVersion()),
    "count": QueryField(None, lambda _: pynvml.nvmlDeviceGetCount()),
    "index": QueryField(None, pynvml.nvmlDeviceGetIndex),
    "name": QueryField(None, pynvml.nvmlDeviceGetName),
    "uuid": QueryField(None, pynvml.nvmlDeviceGetUUID),
    "serial": QueryField(None, lambda handle: supported(pynvml.nvmlDeviceGetSerial, handle)),
    "pci.bus_id": QueryField(None, lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).busId),
    "compute_cap": QueryField(None, _capability),
    "persistence_mode": QueryField(None, _mode(pynvml.nvmlDeviceGetPersistenceMode)),
    "mig.mode.current": QueryField(None, lambda handle: supported(pynvml.nvmlDeviceGetMigMode, handle)),
    "pstate": QueryField(None, lambda handle: f"P{pynvml.nvmlDeviceGetPerformanceState(handle)}"),
    "clocks_event_reasons.active": QueryField(None, _reasons),
    "fan.speed": QueryField("%", lambda handle: supported(pynvml.nvmlDeviceGetFanSpeed, handle)),
    "temperature.gpu": QueryField(None, lambda handle: pynvml.nvmlDeviceGetTemperature(handle, 0)),
    "utilization.gpu": QueryField("%", _utilisation("gpu")),
    "utilization.memory": QueryField("%", _utilisation("memory")),
    "memory.total": QueryField("MiB", _memory("total")),
    "memory.reserved": QueryField("MiB", _memory("reserved")),
    "memory.used": QueryField("MiB", _memory("used")),
    "memory.free": QueryField("MiB", _memory("free")),
    "power.management": QueryField(None, _mode(pynvml.nvmlDeviceGetPowerManagementMode)),
    "power.draw": QueryField("W", _watts(pynvml.nvmlDeviceGetPowerUsage)),
    "power.draw.average": QueryField("W", lambda handle: field_watts(handle, pynvml.NVML_FI_DEV_POWER_AVERAGE)),
    "power.draw.instant": QueryField("W", lambda handle: field_watts(handle, pynvml.NVML_FI_DEV_POWER_INSTANT)),
    "power.limit": QueryField("W", _watts(pynvml.nvmlDeviceGetPowerManagementLimit)),
    "enforced.power.limit": QueryField("W", _watts(pynvml.nvmlDeviceGetEnforcedPowerLimit)),
    "power.default_limit": QueryField("W", _watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)),
    "power.min_limit": QueryField("W", _constraint(0)),
    "power.max_limit": QueryField("W", _constraint(1)),
    "clocks.current.graphics": QueryField("MHz", _clock(_GRAPHICS)),
    "clocks.current.sm": QueryField("MHz", _clock(_SM)),
    "clocks.current.memory": QueryField("MHz", _clock(_MEM)),
    "clocks.max.graphics": QueryField("MHz", _max_clock(_GRAPHICS)),
    "clocks.max.sm": QueryField("MHz", _max_clock(_SM)),
    "clocks.max.memory": QueryField("MHz", _max_clock(_MEM)),
    "clocks.applications.graphics": QueryField("MHz", _application_clock(_GRAPHICS)),
    "clocks.applications.memory": QueryField("MHz", _application_clock(_MEM)),
}

ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}

APP_FIELDS = ("gpu_name", "gpu_uuid", "pid", "process_name", "used_memory")


def app_rows(handle: Any) -> list[dict[str, Any]]:
    """One row of every field for each process that uses the GPU."""
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    return [
        {
            "gpu_name": name,
            "gpu_uuid": uuid,
            "pid": process.pid,
            "process_name": supported(pynvml.nvmlSystemGetProcessName, process.pid),
            "used_memory": process.usedGpuMemory // MIB,
        }
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ]
