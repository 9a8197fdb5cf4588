"""A stand-in for nvidia-smi over nvidia-ml-py, for programs that call it or read its CSV.

Exit codes are NVML's, as with the original.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from collections.abc import Callable, Container, Sequence
from typing import Any

import pynvml

MIB = 1 << 20
INVALID = 2

Find = Callable[[Any], Any]
"""Finds the value of a field from the handle of a GPU; None where the GPU does not support it."""


class UsageError(Exception):
    """A command line that is wrong."""


def supported(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or None where the GPU does not support it."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NotFound, pynvml.NVMLError_FunctionNotFound):
        return None


def _if_supported(function: Callable[..., Any], *arguments: Any) -> Find:
    return lambda handle: supported(function, handle, *arguments)


def _memory(name: str) -> Find:
    return lambda handle: getattr(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2), name) // MIB


def _utilisation(name: str) -> Find:
    return lambda handle: getattr(supported(pynvml.nvmlDeviceGetUtilizationRates, handle), name, None)


def _watts(function: Callable[..., Any], place: int | None = None) -> Find:
    """Convert milliwatts to watts, for a function that returns several: those at a place."""

    def find(handle: Any) -> float | None:
        milliwatts = supported(function, handle)
        if milliwatts is None:
            return None
        return float(milliwatts if place is None else milliwatts[place]) / 1000

    return find


def _field_watts(field: int) -> Find:
    def find(handle: Any) -> float | None:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        return value.value.uiVal / 1000 if value.nvmlReturn == pynvml.NVML_SUCCESS else None

    return find


def _mode(function: Callable[..., Any]) -> Find:
    return lambda handle: {None: None, 0: "Disabled", 1: "Enabled"}[supported(function, handle)]


def _timestamp(_: Any) -> str:
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"


_CLOCK, _MAX_CLOCK = pynvml.nvmlDeviceGetClockInfo, pynvml.nvmlDeviceGetMaxClockInfo
_APPLICATION_CLOCK = pynvml.nvmlDeviceGetApplicationsClock
_SM, _GRAPHICS, _MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_MEM

GPU_FIELDS: dict[str, tuple[str | None, Find]] = {
    "timestamp": (None, _timestamp),
    "driver_version": (None, lambda _: pynvml.nvmlSystemGetDriverVersion()),
    "count": (None, lambda _: pynvml.nvmlDeviceGetCount()),
    "index": (None, pynvml.nvmlDeviceGetIndex),
    "name": (None, pynvml.nvmlDeviceGetName),
    "uuid": (None, pynvml.nvmlDeviceGetUUID),
    "serial": (None, _if_supported(pynvml.nvmlDeviceGetSerial)),
    "pci.bus_id": (None, lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).busId),
    "compute_cap": (None, lambda handle: ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle)))),
    "persistence_mode": (None, _mode(pynvml.nvmlDeviceGetPersistenceMode)),
    "mig.mode.current": (None, _if_supported(pynvml.nvmlDeviceGetMigMode)),
    "pstate": (None, lambda handle: f"P{pynvml.nvmlDeviceGetPerformanceState(handle)}"),
    "clocks_event_reasons.active": (
        None,
        lambda handle: f"0x{pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle):016X}",
    ),
    "fan.speed": ("%", _if_supported(pynvml.nvmlDeviceGetFanSpeed)),
    "temperature.gpu": (None, lambda handle: pynvml.nvmlDeviceGetTemperature(handle, 0)),
    "utilization.gpu": ("%", _utilisation("gpu")),
    "utilization.memory": ("%", _utilisation("memory")),
    "memory.total": ("MiB", _memory("total")),
    "memory.reserved": ("MiB", _memory("reserved")),
    "memory.used": ("MiB", _memory("used")),
    "memory.free": ("MiB", _memory("free")),
    "power.management": (None, _mode(pynvml.nvmlDeviceGetPowerManagementMode)),
    "power.draw": ("W", _watts(pynvml.nvmlDeviceGetPowerUsage)),
    "power.draw.average": ("W", _field_watts(pynvml.NVML_FI_DEV_POWER_AVERAGE)),
    "power.draw.instant": ("W", _field_watts(pynvml.NVML_FI_DEV_POWER_INSTANT)),
    "power.limit": ("W", _watts(pynvml.nvmlDeviceGetPowerManagementLimit)),
    "enforced.power.limit": ("W", _watts(pynvml.nvmlDeviceGetEnforcedPowerLimit)),
    "power.default_limit": ("W", _watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)),
    "power.min_limit": ("W", _watts(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, 0)),
    "power.max_limit": ("W", _watts(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, 1)),
    "clocks.current.graphics": ("MHz", _if_supported(_CLOCK, _GRAPHICS)),
    "clocks.current.sm": ("MHz", _if_supported(_CLOCK, _SM)),
    "clocks.current.memory": ("MHz", _if_supported(_CLOCK, _MEM)),
    "clocks.max.graphics": ("MHz", _if_supported(_MAX_CLOCK, _GRAPHICS)),
    "clocks.max.sm": ("MHz", _if_supported(_MAX_CLOCK, _SM)),
    "clocks.max.memory": ("MHz", _if_supported(_MAX_CLOCK, _MEM)),
    "clocks.applications.graphics": ("MHz", _if_supported(_APPLICATION_CLOCK, _GRAPHICS)),
    "clocks.applications.memory": ("MHz", _if_supported(_APPLICATION_CLOCK, _MEM)),
}
"""The fields of --query-gpu: unit, and how each is found."""

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

APP_FIELDS = {"gpu_name": None, "gpu_uuid": None, "pid": None, "process_name": None, "used_memory": "MiB"}
"""The fields of --query-compute-apps and their units."""

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


def _app_rows(handle: Any) -> list[dict[str, Any]]:
    """Return the fields of each process that uses the GPU."""
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


def _cell(value: Any, unit: str | None) -> str:
    if value is None:
        return "[N/A]"
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def _overview(handles: Sequence[Any]) -> str:
    """Format all GPUs and their processes as a table."""
    title = f"NVIDIA-SMI stand-in of wattune (simulated GPUs)    Driver Version: {pynvml.nvmlSystemGetDriverVersion()}"
    header = "  ".join(name.ljust(width) for name, _, width in _COLUMNS)
    lines = [title, header, "-" * len(header), *(_gpu_line(handle) for handle in handles), "", "Processes:"]
    apps = [app for handle in handles for app in _app_lines(handle)]
    return "\n".join(line.rstrip() for line in [*lines, *(apps or ["  none"])])


def _gpu_line(handle: Any) -> str:
    try:
        fields = ((*GPU_FIELDS[name], width) for _, name, width in _COLUMNS)
        return "  ".join(_cell(find(handle), unit).ljust(width) for unit, find, width in fields)
    except pynvml.NVMLError as error:
        return f"{'?':4}  {error}"


def _app_lines(handle: Any) -> list[str]:
    try:
        index = pynvml.nvmlDeviceGetIndex(handle)
        return [
            f"  GPU {index}  pid {app['pid']}  {app['process_name']}  {app['used_memory']} MiB"
            for app in _app_rows(handle)
        ]
    except pynvml.NVMLError:
        return []


def _list(handles: Sequence[Any]) -> str:
    return "\n".join(
        f"GPU {pynvml.nvmlDeviceGetIndex(handle)}: {pynvml.nvmlDeviceGetName(handle)} "
        f"(UUID: {pynvml.nvmlDeviceGetUUID(handle)})"
        for handle in handles
    )


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    this = argparse.ArgumentParser(
        prog="nvidia-smi",
        description="A stand-in for nvidia-smi over simulated GPUs, part of wattune. Not NVIDIA's program.",
        allow_abbrev=False,
    )
    add = this.add_argument
    add("-L", "--list-gpus", action="store_true", help="one line per GPU")
    add("-i", "--id", help="only these GPUs: indices, UUIDs or bus ids, comma-separated")
    add("--query-gpu", help="fields to print, comma-separated: " + ", ".join(GPU_FIELDS))
    add("--query-compute-apps", help="fields of the processes on the GPUs: " + ", ".join(APP_FIELDS))
    add("--format", default="csv", help="csv[,noheader][,nounits]")
    add("-l", "--loop", type=float, metavar="S", help="print again every S seconds")
    add("-lms", "--loop-ms", type=float, metavar="MS", help="print again every MS milliseconds")
    add("-pm", "--persistence-mode", type=int, choices=(0, 1), help="switch persistence mode")
    add("-pl", "--power-limit", type=float, metavar="W", help="set the power limit")
    add("-lgc", "--lock-gpu-clocks", metavar="MIN[,MAX]", help="lock the core clock")
    add("-rgc", "--reset-gpu-clocks", action="store_true", help="unlock the core clock")
    add("-lmc", "--lock-memory-clocks", metavar="MIN[,MAX]", help="lock the memory clock")
    add("-rmc", "--reset-memory-clocks", action="store_true", help="unlock the memory clock")
    return this


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    options = parser().parse_args(arguments)
    try:
        pynvml.nvmlInit()
        handles = _handles(options.id)
        changed = [line for handle in handles for line in _change(options, handle)]
        if changed:
            print("\n".join(changed))
        else:
            _report(options, handles)
        return 0
    except UsageError as error:
        print(error)
        return INVALID
    except pynvml.NVMLError as error:
        print(f"{error} (simulated GPU)")
        return int(error.value)


def _report(options: argparse.Namespace, handles: Sequence[Any]) -> None:
    period_s = options.loop or (options.loop_ms / 1000 if options.loop_ms else None)
    style = options.format.replace(" ", "").split(",")
    print(_text(options, handles, style))
    while period_s:
        sys.stdout.flush()
        time.sleep(period_s)
        print(_text(options, handles, [*style, "noheader"]))


def _text(options: argparse.Namespace, handles: Sequence[Any], style: list[str]) -> str:
    if options.list_gpus:
        return _list(handles)
    if options.query_gpu:
        names = _names(options.query_gpu, {*GPU_FIELDS, *ALIASES})
        fields = [GPU_FIELDS[ALIASES.get(name, name)] for name in names]
        rows = [[find(handle) for _, find in fields] for handle in handles]
        return _csv(names, [unit for unit, _ in fields], rows, style)
    if options.query_compute_apps:
        names = _names(options.query_compute_apps, APP_FIELDS)
        rows = [[app[name] for name in names] for handle in handles for app in _app_rows(handle)]
        return _csv(names, [APP_FIELDS[name] for name in names], rows, style)
    return _overview(handles)


def _names(text: str, known: Container[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f'Field "{name}" is not a valid field to query.')
    return names


def _csv(names: Sequence[str], units: Sequence[str | None], rows: Sequence[Sequence[Any]], style: Sequence[str]) -> str:
    if "csv" not in style:
        raise UsageError(f"--format={','.join(style)} is not offered; csv is")
    shown = [None if "nounits" in style else unit for unit in units]
    headings = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, shown, strict=True)]
    lines = [[_cell(value, unit) for value, unit in zip(row, shown, strict=True)] for row in rows]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines if "noheader" in style else [headings, *lines]:
        writer.writerow([line[0], *(f" {cell}" for cell in line[1:])])
    return out.getvalue().rstrip("\n")


def _handles(wanted: str | None) -> list[Any]:
    if wanted is None:
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return [_handle(name.strip()) for name in wanted.split(",")]


def _handle(name: str) -> Any:
    try:
        if name.isdecimal():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        if name.startswith("GPU-"):
            return pynvml.nvmlDeviceGetHandleByUUID(name)
        return pynvml.nvmlDeviceGetHandleByPciBusId(name)
    except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotFound):
        raise UsageError("No devices were found") from None


def _change(options: argparse.Namespace, handle: Any) -> list[str]:
    """Change one GPU as the options ask, and return a line for each change."""
    done = []
    if options.persistence_mode is not None:
        pynvml.nvmlDeviceSetPersistenceMode(handle, options.persistence_mode)
        done.append(f"persistence mode set to {options.persistence_mode}")
    if options.power_limit is not None:
        _set_limit(handle, options.power_limit)
        done.append(f"power limit set to {options.power_limit:.2f} W")
    if options.lock_gpu_clocks:
        least, most = _range(options.lock_gpu_clocks)
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, least, most)
        done.append(f"GPU clocks set to {least} to {most} MHz")
    if options.reset_gpu_clocks:
        pynvml.nvmlDeviceResetGpuLockedClocks(handle)
        done.append("GPU clocks reset")
    if options.lock_memory_clocks:
        least, most = _range(options.lock_memory_clocks)
        pynvml.nvmlDeviceSetMemoryLockedClocks(handle, least, most)
        done.append(f"memory clocks set to {least} to {most} MHz")
    if options.reset_memory_clocks:
        pynvml.nvmlDeviceResetMemoryLockedClocks(handle)
        done.append("memory clocks reset")
    place = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return [f"GPU {place} (simulated): {line}" for line in done]


def _set_limit(handle: Any, limit_w: float) -> None:
    try:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(limit_w * 1000))
    except pynvml.NVMLError_InvalidArgument:
        least, most = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
        raise UsageError(
            f"{limit_w:.2f} W is not a power limit between {least / 1000:.2f} and {most / 1000:.2f} W"
        ) from None


def _range(text: str) -> tuple[int, int]:
    least, _, most = text.partition(",")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise UsageError(f"{text!r} is not MIN,MAX in MHz") from None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
