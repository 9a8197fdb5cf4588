"""The largest values of what is read from files, settings and options.

A number beyond them is a mistake, and computations with it overflow. The unit follows from the name of the column,
field, option or setting: `energy_j`, `power_limit_w`, or `energy` in a stage profile.
"""

from __future__ import annotations

from math import isfinite

LARGEST = {"s": 1e10, "J": 1e15, "W": 1e7, "MHz": 1e6, "g/kWh": 1e4, "a kWh": 1e9}
"""Three centuries; 280 GWh; a hundred racks of GPUs; no clock; ten times what lignite emits; no price anywhere."""

LARGEST_OTHER = 1e30
"""Of a number in another unit or in none."""

LARGEST_SHARE = 100.0
"""Of a slowdown or another share."""

SMALLEST = 1e-12
"""Of a number that must be above 0."""

_ENDINGS = {"_s": "s", "_j": "J", "_w": "W", "_mhz": "MHz"}
_NAMES = {
    "time": "s",
    "energy": "J",
    "frequency": "MHz",
    "g_per_kwh": "g/kWh",
    "grams_per_kwh": "g/kWh",
    "price_per_kwh": "a kWh",
    "per_kwh": "a kWh",
    "deadline": "s",
    "seconds": "s",
    "watts": "W",
    "interval": "s",
    "blocking_power": "W",
}


def too_large(name: str, value: float) -> str | None:
    """Return in words why no quantity of this name has this value, or None."""
    if not is_finite(value):
        return f"{value} is not a finite number"
    unit = _unit(name)
    largest = LARGEST[unit] if unit else LARGEST_OTHER
    if abs(value) <= largest:
        return None
    after = f" {unit}" if unit else ""
    return f"{value:.10g}{after} is too large; the most is {largest:g}{after}"


def _unit(name: str) -> str | None:
    if name in _NAMES:
        return _NAMES[name]
    stem, _, ending = name.rpartition("_")
    return None if stem.endswith("_per") else _ENDINGS.get(f"_{ending}")


def is_finite(number: float) -> bool:
    """Return whether a float can hold a number: a whole number of 400 digits is none of those."""
    try:
        return isfinite(number)
    except OverflowError:
        return False
