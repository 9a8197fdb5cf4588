"""Finding and opening NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pynvml

from wattune.core.errors import DeviceNotFound
from wattune.devices.nvml import library
from wattune.devices.nvml.describe import describe, mig_enabled, text
from wattune.devices.nvml.gpu import NvmlGpu


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


def visible_indices(variable: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the visible GPUs, in the order in which the program numbers them.

    As in CUDA, unset means all; the list ends at the first entry that names no GPU; an entry is an index or a UUID,
    which may be shortened as long as it is unique. A MIG entry of the old form (`MIG-GPU-<uuid>/i/c`) means the GPU
    that holds the slice.
    """
    if variable is None:
        return tuple(range(len(uuids)))
    chosen: list[int] = []
    for part in variable.split(","):
        index = _index(part.strip(), uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return tuple(chosen)


def _index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    if entry.startswith("MIG-GPU-"):
        entry = entry.removeprefix("MIG-").split("/")[0]
    if not entry.startswith("GPU-"):
        return None
    matches = [index for index, uuid in enumerate(uuids) if uuid.lower().startswith(entry.lower())]
    return matches[0] if len(matches) == 1 else None
