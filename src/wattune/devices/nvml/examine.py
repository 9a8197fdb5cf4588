"""What this process may do with each GPU, found without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pynvml

from wattune.core.errors import DeviceError
from wattune.devices.nvml import library
from wattune.devices.nvml.describe import known, mig_enabled, text

Answer = Literal["yes", "no permission", "not supported", "unknown"]


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


@dataclass(frozen=True, slots=True)
class DriverExam:
    """The driver's version and its GPUs, or the error of loading it."""

    failure: DeviceError | None = None
    version: str | None = None
    emulated: bool = False
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
        return DriverExam(version=version, emulated=loaded.emulated, gpus=gpus)
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
            has_counter=known(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) is not None,
        )
    except pynvml.NVMLError as error:
        return GpuExam(index, name, lost=str(error))


def _limit_settable(handle: Any) -> Answer:
    """Find whether the power limit may be set, by setting it to its present value."""
    try:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, pynvml.nvmlDeviceGetPowerManagementLimit(handle))
    except pynvml.NVMLError_NoPermission:
        return "no permission"
    except pynvml.NVMLError_NotSupported:
        return "not supported"
    return "yes"
