"""The table that nvidia-smi prints when it is given nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pynvml

from wattune.emulator.smi.fields import GPU_FIELDS, app_rows, shown

_COLUMNS = (
    ("GPU", "index", 4),
    ("Name", "name", 36),
    ("Pstate", "pstate", 6),
    ("Temp", "temperature.gpu", 5),
    ("Power", "power.draw", 10),
    ("Limit", "power.limit", 10),
    ("Used", "memory.used", 10),
    ("Total", "memory.total", 10),
    ("Util", "utilization.gpu", 6),
    ("SM", "clocks.current.sm", 9),
    ("Mem", "clocks.current.memory", 9),
)


def overview(handles: Sequence[Any]) -> str:
    """All GPUs and the processes on them, for people."""
    title = f"NVIDIA-SMI stand-in of wattune (simulated GPUs)    Driver Version: {pynvml.nvmlSystemGetDriverVersion()}"
    header = "  ".join(name.ljust(width) for name, _, width in _COLUMNS)
    lines = [title, header, "-" * len(header), *(_gpu_line(handle) for handle in handles), "", "Processes:"]
    apps = [app for handle in handles for app in _app_lines(handle)]
    return "\n".join(line.rstrip() for line in [*lines, *(apps or ["  none"])])


def _gpu_line(handle: Any) -> str:
    try:
        return "  ".join(_cell(handle, field).ljust(width) for _, field, width in _COLUMNS)
    except pynvml.NVMLError as error:
        return f"{'?':4}  {error}"


def _cell(handle: Any, name: str) -> str:
    field = GPU_FIELDS[name]
    return shown(field.find(handle), field.unit, with_unit=True)


def _app_lines(handle: Any) -> list[str]:
    try:
        index = pynvml.nvmlDeviceGetIndex(handle)
        return [
            f"  GPU {index}  pid {app['pid']}  {app['process_name']}  {app['used_memory']} MiB"
            for app in app_rows(handle)
        ]
    except pynvml.NVMLError:
        return []


def gpu_list(handles: Sequence[Any]) -> str:
    """One line per GPU, as `nvidia-smi -L` prints it."""
    return "\n".join(
        f"GPU {pynvml.nvmlDeviceGetIndex(handle)}: {pynvml.nvmlDeviceGetName(handle)} "
        f"(UUID: {pynvml.nvmlDeviceGetUUID(handle)})"
        for handle in handles
    )
