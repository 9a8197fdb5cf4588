"""Which processes use an NVIDIA GPU."""

from __future__ import annotations

import pynvml

from wattune.devices.nvml import library
from wattune.devices.nvml.open import list_uuids


def process_ids(uuid: str) -> frozenset[int] | None:
    """The processes that compute on a GPU; None where the driver does not tell. NVML has to be open."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        return frozenset(int(process.pid) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except pynvml.NVMLError:
        return None


def uuids_used_by(pids: frozenset[int]) -> tuple[str, ...]:
    """The GPUs of the machine that one of these processes computes on; `DeviceNotFound` without a driver."""
    uuids = list_uuids()
    library.load()
    try:
        return tuple(uuid for uuid in uuids if uuid and (process_ids(uuid) or frozenset()) & pids)
    finally:
        library.close()
