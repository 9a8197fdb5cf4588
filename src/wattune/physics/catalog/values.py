"""Values that a catalogue file may leave out."""

from __future__ import annotations

from math import inf
from typing import TypeVar

from wattune.physics.catalog.sheet import Sheet

T = TypeVar("T")


def optional(sheet: Sheet, key: str, otherwise: T) -> float | T:
    """A number above 0, or what stands for it where the file does not give one."""
    return sheet.number(key) if sheet.has(key) else otherwise


def optional_from(sheet: Sheet, key: str, otherwise: float, *, most: float = inf) -> float:
    """A number from 0 up to `most`, or what stands for it where the file does not give one."""
    if not sheet.has(key):
        return otherwise
    value = sheet.number_from(key, 0.0)
    if value > most:
        raise sheet.wrong(key, f"is at most {most:g}, not {value:g}")
    return value
