"""The command line of the stand-in for nvidia-smi. Exit codes are NVML's, as with the original."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import time
from collections.abc import Sequence
from typing import Any

import pynvml

from wattune.emulator.smi.fields import ALIASES, APP_FIELDS, GPU_FIELDS, app_rows, cell_text

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
    """Format all GPUs and their processes as a table."""
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
    return cell_text(field.find(handle), field.unit, with_unit=True)


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
    """Format one line per GPU, as `nvidia-smi -L` does."""
    return "\n".join(
        f"GPU {pynvml.nvmlDeviceGetIndex(handle)}: {pynvml.nvmlDeviceGetName(handle)} "
        f"(UUID: {pynvml.nvmlDeviceGetUUID(handle)})"
        for handle in handles
    )


INVALID = 2


class UsageError(Exception):
    """A command line that is wrong."""


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
            return 0
        return _report(options, handles)
    except UsageError as error:
        print(error)
        return INVALID
    except pynvml.NVMLError as error:
        print(f"{error} (simulated GPU)")
        return int(error.value)


def _report(options: argparse.Namespace, handles: Sequence[Any]) -> int:
    period_s = options.loop or (options.loop_ms / 1000 if options.loop_ms else None)
    style = options.format.replace(" ", "").split(",")
    print(_text(options, handles, style))
    while period_s:
        sys.stdout.flush()
        time.sleep(period_s)
        print(_text(options, handles, [*style, "noheader"]))
    return 0


def _text(options: argparse.Namespace, handles: Sequence[Any], style: list[str]) -> str:
    if options.list_gpus:
        return gpu_list(handles)
    if options.query_gpu:
        return _query_gpus(options.query_gpu.split(","), handles, style)
    if options.query_compute_apps:
        return _query_apps(options.query_compute_apps.split(","), handles, style)
    return overview(handles)


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


def _query_gpus(names: Sequence[str], handles: Sequence[Any], style: Sequence[str]) -> str:
    keys = [ALIASES.get(name.strip(), name.strip()) for name in names]
    for name, key in zip(names, keys, strict=True):
        if key not in GPU_FIELDS:
            raise UsageError(f'Field "{name.strip()}" is not a valid field to query.')
    fields = [GPU_FIELDS[key] for key in keys]
    with_unit = "nounits" not in style
    headings = [_heading(name.strip(), field.unit, with_unit) for name, field in zip(names, fields, strict=True)]
    rows = [[cell_text(field.find(handle), field.unit, with_unit=with_unit) for field in fields] for handle in handles]
    return _csv(headings, rows, style)


def _query_apps(names: Sequence[str], handles: Sequence[Any], style: Sequence[str]) -> str:
    for name in names:
        if name.strip() not in APP_FIELDS:
            raise UsageError(f'Field "{name.strip()}" is not a valid field to query.')
    units = ["MiB" if name.strip() == "used_memory" else None for name in names]
    with_unit = "nounits" not in style
    headings = [_heading(name.strip(), unit, with_unit) for name, unit in zip(names, units, strict=True)]
    rows = [
        [cell_text(app[name.strip()], unit, with_unit=with_unit) for name, unit in zip(names, units, strict=True)]
        for handle in handles
        for app in app_rows(handle)
    ]
    return _csv(headings, rows, style)


def _heading(name: str, unit: str | None, with_unit: bool) -> str:
    return f"{name} [{unit}]" if unit and with_unit else name


def _csv(headings: Sequence[str], rows: Sequence[Sequence[str]], style: Sequence[str]) -> str:
    if "csv" not in style:
        raise UsageError(f"--format={','.join(style)} is not offered; csv is")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in ([] if "noheader" in style else [headings]) + [*rows]:
        writer.writerow([row[0], *(f" {cell}" for cell in row[1:])])
    return out.getvalue().rstrip("\n")


def _change(options: argparse.Namespace, handle: Any) -> list[str]:
    """Change one GPU; one line for each change."""
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
