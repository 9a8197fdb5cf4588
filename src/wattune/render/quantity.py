"""Numbers for people: a fitting unit, three significant digits, a true minus sign, a dash for the unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, isfinite, log10

from wattune.core.measurement import (
    Measurement,
    energy_error_percent,
    saving_percent,
    slowdown_percent,
    time_error_percent,
)
from wattune.core.tariff import Footprint

UNKNOWN = "–"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SMALL_ONLY = ("s",)
"""Units without k or M: kiloseconds are not in use."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit to show values in: `value × factor` is the number before `symbol`."""

    symbol: str
    factor: float = 1.0


def unit_for(values: Iterable[float | None], base: str) -> Unit:
    """Return the unit in which the largest of the values has one to three digits before the point."""
    largest = max((abs(value) for value in values if value is not None and isfinite(value)), default=0.0)
    prefixes = [entry for entry in _PREFIXES if entry[0] <= 1 or base not in _SMALL_ONLY]
    if largest == 0:
        return Unit(base)
    size, prefix = next((entry for entry in prefixes if largest >= entry[0] * 0.9995), prefixes[-1])
    return Unit(prefix + base, 1 / size)


def quantity(value: float | None, base: str) -> str:
    """Format a value with its unit, such as `312 ms`; a dash where it is unknown."""
    if value is None:
        return UNKNOWN
    unit = unit_for((value,), base)
    return f"{number(value * unit.factor)} {unit.symbol}"


def with_error(value: float, error: float | None, base: str) -> str:
    """Format a value with its 95 % half-width where that is known, both in one unit and to the same place."""
    if not error:
        return quantity(value, base)
    unit = unit_for((value,), base)
    places = max(1 - floor(log10(error * unit.factor)), 0)
    return f"{value * unit.factor:.{places}f} ± {error * unit.factor:.{places}f} {unit.symbol}"


def number(value: float | None, *, digits: int = 3) -> str:
    """Format a number with that many significant digits, and all digits before the point."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    places = max(digits - 1 - floor(log10(abs(rounded))), 0)
    return _signed(f"{rounded if places else value:,.{places}f}").replace(",", "\u2009")


def percent(value: float | None, *, error: float | None = None, places: int | None = None) -> str:
    """Format a percentage with its sign, such as `+4.2 %` or `+4.2 ± 0.3 %`; a dash where it is unknown."""
    if value is None:
        return UNKNOWN
    if places is None:
        places = 2 if error is not None and _LEAST_ERROR <= error < _FINE_ERROR else 1
    text = f"{value:+.{places}f}"
    known = "" if error is None or error < _LEAST_ERROR else f" ± {error:.{places}f}"
    return f"{text[1:] if float(text) == 0 else _signed(text)}{known} %"


def changes(
    time: float | None, energy: float | None, *, time_error: float | None = None, energy_error: float | None = None
) -> str:
    """Format differences in percent against a default: `time +3.9 %, energy −11.7 %`, so that a saving is negative."""
    return f"time {percent(time, error=time_error)}, energy {percent(energy, error=energy_error)}"


def cost_changes(cost: Measurement, reference: Measurement) -> str:
    """Format how a cost differs from the reference, with the errors that are known."""
    saved = saving_percent(cost, reference)
    return changes(
        slowdown_percent(cost, reference),
        None if saved is None else -saved,
        time_error=time_error_percent(cost, reference),
        energy_error=energy_error_percent(cost, reference),
    )


_FINE_ERROR, _LEAST_ERROR = 0.05, 0.005
"""Errors in percent below which a second place shows, and none."""


def fixed(value: float | None, unit: str, *, places: int = 0) -> str:
    """Format a value in exactly this unit with so many places, for columns that must line up."""
    if value is None:
        return UNKNOWN
    return f"{_signed(f'{value:z.{places}f}')} {unit}"


def _signed(text: str) -> str:
    return text.replace("-", "−")


def long_unit(values_s: Iterable[float]) -> Unit:
    """Return the unit for long times: seconds, and from two hours on hours."""
    known = tuple(values_s)
    return Unit("h", 1 / 3600) if max(known, default=0.0) >= 7200 else unit_for(known, "s")


def duration(seconds: float | None) -> str:
    """Format a long time."""
    if seconds is None:
        return UNKNOWN
    unit = long_unit((seconds,))
    return f"{number(seconds * unit.factor)} {unit.symbol}"


def counted(number_of: int, thing: str) -> str:
    """Format a count, such as `1 run` or `3 runs`."""
    return f"{number_of} {thing}{'' if number_of == 1 else 's'}"


def footprint_words(footprint: Footprint) -> str:
    """Format a footprint, such as `12.3 Wh, 0.0037 EUR, 4.7 g CO₂`, with what is known of it."""
    words = [_billed(footprint.energy_kwh)]
    if footprint.energy_cost is not None:
        words.append(f"{_money(footprint.energy_cost)} {footprint.currency}")
    if footprint.co2_g is not None:
        words.append(f"{quantity(footprint.co2_g, 'g')} CO₂")
    return ", ".join(words)


_LEAST_MONEY = 1e-4


def _money(amount: float) -> str:
    return number(amount) if not amount or abs(amount) >= _LEAST_MONEY else f"under {_LEAST_MONEY:g}"


def _billed(energy_kwh: float) -> str:
    """Format energy in the unit of a bill that reads: kWh, Wh, and mWh of very little; joules are shown beside it."""
    return f"{number(energy_kwh)} kWh" if abs(energy_kwh) >= 1 else quantity(1e3 * energy_kwh, "Wh")
