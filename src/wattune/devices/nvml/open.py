"""Finding and opening NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pynvml

from wattune.core.errors import DeviceNotFound
from wattune.devices.nvml import library
from wattune.devices.nvml.describe import describe, mig_enabled, text
from wattune.devices.nvml.gpu import NvmlGpu
from wattune.devices.visible import visible_indices


def list_uuids() -> tuple[str, ...]:
    """Return the UUIDs of all GPUs of the machine, in the driver's order; empty text for a lost one."""
    library.load()
    try:
        with library.translated("cannot list the GPUs"):
            return tuple(_uuid(index) for index in range(pynvml.nvmlDeviceGetCount()))
    finally:
        library.close()


def _uuid(index: int) -> str:
    try:
        return text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except pynvml.NVMLError:
        return ""


@contextmanager
def opened_nvml(which: str, visible: str | None) -> Iterator[NvmlGpu]:
    """Open the GPU with a visible index, or with a UUID."""
    loaded = library.load()
    try:
        with library.translated(f"cannot open nvml:{which}"):
            handle = _handle(which, visible)
            mig = mig_enabled(handle)
            gpu = NvmlGpu(handle, describe(handle, emulated=loaded.emulated), loaded, mig=mig)
        try:
            yield gpu
        finally:
            gpu.close()
    finally:
        library.close()


def _handle(which: str, visible: str | None) -> object:
    if not which.isdecimal():
        return pynvml.nvmlDeviceGetHandleByUUID(which.encode())
    total = pynvml.nvmlDeviceGetCount()
    indices = visible_indices(visible, tuple(_uuid(index) for index in range(total)))
    if int(which) >= len(indices):
        visible_text = (
            f"{len(indices)} of {total} GPUs are visible" if visible is not None else f"this machine has {total} GPUs"
        )
        raise DeviceNotFound(f"there is no GPU nvml:{which}: {visible_text}", hint="list them with `wattune devices`")
    return pynvml.nvmlDeviceGetHandleByIndex(indices[int(which)])


def process_ids(uuid: str) -> frozenset[int] | None:
    """Return the processes that compute on a GPU; None if the driver does not report them. NVML must be loaded."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        return frozenset(int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except pynvml.NVMLError:
        return None


def uuids_used_by(pids: frozenset[int]) -> tuple[str, ...]:
    """Return the GPUs that one of these processes computes on; `DeviceNotFound` without a driver."""
    uuids = list_uuids()
    library.load()
    try:
        return tuple(uuid for uuid in uuids if uuid and (process_ids(uuid) or frozenset()) & pids)
    finally:
        library.close()
