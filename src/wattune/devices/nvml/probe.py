"""Every NVML function that wattune reads a GPU with, tried once: what it answers and how long it takes.

Nothing is set. `wattune doctor --bundle` writes the answers into its report, and tests/hardware compares them with
those of the emulated library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from wattune.devices.nvml import library

Call = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The answer of one function: `ok`, or the name of its error, and its duration."""

    function: str
    outcome: str
    microseconds: float


def _plain(name: str) -> tuple[str, Call]:
    return name, lambda handle: getattr(pynvml, name)(handle)


def _highest_memory_clock(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)[0])


READERS: tuple[tuple[str, Call], ...] = (
    _plain("nvmlDeviceGetName"),
    _plain("nvmlDeviceGetUUID"),
    _plain("nvmlDeviceGetArchitecture"),
    _plain("nvmlDeviceGetNumGpuCores"),
    _plain("nvmlDeviceGetMigMode"),
    _plain("nvmlDeviceGetPersistenceMode"),
    _plain("nvmlDeviceGetSupportedMemoryClocks"),
    (
        "nvmlDeviceGetSupportedGraphicsClocks",
        lambda handle: pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, _highest_memory_clock(handle)),
    ),
    ("nvmlDeviceGetMaxClockInfo", lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    ("nvmlDeviceGetClockInfo", lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    (
        "nvmlDeviceGetApplicationsClock",
        lambda handle: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_GRAPHICS),
    ),
    _plain("nvmlDeviceGetPowerManagementLimit"),
    _plain("nvmlDeviceGetPowerManagementDefaultLimit"),
    _plain("nvmlDeviceGetPowerManagementLimitConstraints"),
    _plain("nvmlDeviceGetEnforcedPowerLimit"),
    _plain("nvmlDeviceGetPowerUsage"),
    _plain("nvmlDeviceGetTotalEnergyConsumption"),
    (
        "nvmlDeviceGetFieldValues",
        lambda handle: pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT]),
    ),
    _plain("nvmlDeviceGetUtilizationRates"),
    _plain("nvmlDeviceGetMemoryInfo"),
    (
        "nvmlDeviceGetTemperatureV",
        lambda handle: pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
    ),
    ("nvmlDeviceGetTemperature", lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    _plain("nvmlDeviceGetCurrentClocksEventReasons"),
    _plain("nvmlDeviceGetCurrentClocksThrottleReasons"),
    _plain("nvmlDeviceGetComputeRunningProcesses"),
    _plain("nvmlGpmQueryDeviceSupport"),
)


def probe(index: int) -> tuple[CallResult, ...]:
    """Try every reader on the GPU with this number of the driver."""
    library.load()
    try:
        with library.translated(f"cannot probe GPU {index}"):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return tuple(_answer(name, call, handle) for name, call in READERS)
    finally:
        library.close()


def _answer(name: str, call: Call, handle: Any) -> CallResult:
    begun_s = time.perf_counter()
    try:
        call(handle)
        outcome = "ok"
    except pynvml.NVMLError as error:
        outcome = type(error).__name__.removeprefix("NVMLError_")
    return CallResult(name, outcome, 1e6 * (time.perf_counter() - begun_s))
