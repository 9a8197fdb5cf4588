"""Clock sweeps of Kernel Tuner: one kernel at several requested clocks, with the clock in effect and the power.

Source: KernelTuner/kernel_tuner, cache files (JSON) of runs that observe `core_freq` and `nvml_power`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from wattune.core.errors import InputError
from wattune.physics.gpu_parts import Floats
from wattune_bench.datasets.find import ascending, text_of

SOURCE = "KernelTuner/kernel_tuner"
_NEEDED = ("core_freq", "nvml_power")
_NAMES = (("device_name", "GPU"), ("kernel_name", "kernel"))


@dataclass(frozen=True, slots=True, eq=False)
class ClockSweep:
    """Power by the clock in effect, ascending."""

    gpu: str
    kernel: str
    sm_mhz: Floats
    power_w: Floats


def is_clock_sweep(file: Path) -> bool:
    """Return whether a JSON file is such a cache."""
    try:
        entries = _entries(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False
    return bool(entries) and all(name in entry for entry in entries.values() for name in _NEEDED)


def read_clock_sweeps(file: Path) -> tuple[ClockSweep, ...]:
    """Read a sweep for each variant of the kernel; errors name the file, the entry and the value."""
    try:
        document = json.loads(text_of(file))
    except ValueError as error:
        raise InputError(f"{file}: {error}", hint="the file is not JSON") from None
    entries = _entries(document)
    if not entries:
        raise InputError(f"{file} holds no measurements", hint="give a cache file of Kernel Tuner")
    variants: dict[str, list[tuple[float, ...]]] = {}
    for key, entry in entries.items():
        point = tuple(_number(file, key, entry, name) for name in _NEEDED)
        variants.setdefault(_variant(document, entry), []).append(point)
    gpu, kernel = (str(document.get(name, otherwise)) for name, otherwise in _NAMES)
    return tuple(
        ClockSweep(gpu, f"{kernel} {variant}".rstrip() if len(variants) > 1 else kernel, *ascending(points))
        for variant, points in variants.items()
    )


def _variant(document: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Return the tuned parameters other than the clock, as text."""
    names = document.get("tune_params_keys", [])
    return ",".join(f"{name}={entry.get(name)}" for name in names if "clock" not in str(name))


def _entries(document: Any) -> Mapping[str, Mapping[str, Any]]:
    cache = document.get("cache") if isinstance(document, dict) else None
    return cache if isinstance(cache, dict) and all(isinstance(entry, dict) for entry in cache.values()) else {}


def _number(file: Path, key: str, entry: Mapping[str, Any], name: str) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise InputError(
            f"{file}, entry {key}, {name}: {value!r} is not a finite number above 0", hint="fix that value"
        )
    return float(value)
