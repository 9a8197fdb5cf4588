"""What a GPU tells through NVML, and None where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml


def told(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives, or None where the part does not support it."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NotFound, pynvml.NVMLError_FunctionNotFound):
        return None


def field_watts(handle: Any, field: int) -> float | None:
    """A power field in watts, or None."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    return value.value.uiVal / 1000 if value.nvmlReturn == pynvml.NVML_SUCCESS else None


def watts(function: Callable[..., Any], handle: Any) -> float | None:
    """What a function that speaks in milliwatts gives, in watts, or None."""
    milliwatts = told(function, handle)
    return None if milliwatts is None else milliwatts / 1000


def part(value: Any, name: str) -> Any:
    """A member of a structure, or None where there is no structure."""
    return None if value is None else getattr(value, name)
