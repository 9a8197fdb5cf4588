"""Kilowatt-hours, money and CO₂ of energy, by a price and a grid intensity that the user gives.

A price is money per kWh. A grid intensity is grams of CO₂ per kWh: one number, or one for each time of day, which
holds until the next and over midnight. wattune knows neither by itself, so both are None unless they are set.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from wattune.core.bounds import too_large
from wattune.core.csv_input import Row, parse_csv, read_text
from wattune.core.errors import ConfigError, InputError

J_PER_KWH = 3.6e6
_DAY_S = 86_400.0
_PRICE = re.compile(r"(?P<number>[0-9]*[.,]?[0-9]+)\s*(?P<currency>[^\W\d_]{1,8}|[$€£¥])(?:\s*/\s*kWh)?", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,2}):(\d{2})")
INTENSITY_COLUMNS = ("time_of_day", "g_per_kwh")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a kilowatt-hour."""

    per_kwh: float
    currency: str


@dataclass(frozen=True, slots=True)
class GridIntensity:
    """Grams of CO₂ per kWh from each time of day on, in seconds after midnight, earliest first."""

    from_s: tuple[float, ...]
    g_per_kwh: tuple[float, ...]

    def mean(self, start_s: float, length_s: float) -> float:
        """Return the mean over an interval that begins at this time of day."""
        if length_s <= 0:
            return self._at(start_s % _DAY_S)
        return (self._until(start_s + length_s) - self._until(start_s)) / length_s

    def _at(self, time_s: float) -> float:
        return self.g_per_kwh[bisect_right(self.from_s, time_s) - 1]

    def _until(self, time_s: float) -> float:
        """Return the integral from the first midnight to a time."""
        days, rest_s = divmod(time_s, _DAY_S)
        return days * self._of_day(_DAY_S) + self._of_day(rest_s)

    def _of_day(self, end_s: float) -> float:
        edges = (0.0, *(edge for edge in self.from_s if 0 < edge < end_s), end_s)
        return sum(self._at(start) * (end - start) for start, end in pairwise(edges))


@dataclass(frozen=True, slots=True)
class Footprint:
    """What energy comes to: kilowatt-hours, and money and CO₂ where price and intensity are known."""

    energy_kwh: float
    energy_cost: float | None = None
    currency: str | None = None
    co2_g: float | None = None


def total_footprint(parts: Iterable[Footprint]) -> Footprint:
    """Add up footprints of one tariff."""
    every = tuple(parts) or (Footprint(0.0),)
    costs, grams = [part.energy_cost for part in every], [part.co2_g for part in every]
    return Footprint(
        energy_kwh=sum(part.energy_kwh for part in every),
        energy_cost=None if None in costs else sum(filter(None, costs)),
        currency=every[0].currency,
        co2_g=None if None in grams else sum(filter(None, grams)),
    )


NO_FOOTPRINT: dict[str, Any] = dict.fromkeys(("energy_kwh", "energy_cost", "currency", "co2_g"))
"""The fields of a footprint where the energy is unknown."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """Price and grid intensity; None for what is not set."""

    price: Price | None = None
    intensity: GridIntensity | None = None

    def footprint(self, energy_j: float, *, started_at: datetime, time_s: float) -> Footprint:
        """Return what energy comes to that was spent evenly from a time on; times of day are local."""
        kwh = energy_j / J_PER_KWH
        local = started_at.astimezone()
        start_s = local.hour * 3600.0 + local.minute * 60.0 + local.second
        return Footprint(
            energy_kwh=kwh,
            energy_cost=None if self.price is None else kwh * self.price.per_kwh,
            currency=None if self.price is None else self.price.currency,
            co2_g=None if self.intensity is None else kwh * self.intensity.mean(start_s, time_s),
        )

    def in_the_long_run(self, saving: float, power_w: float, *, started_at: datetime) -> Footprint:
        """Return what a saving, 0.1 for 10 %, comes to in work that takes a thousand GPU-hours at this power."""
        return self.footprint(saving * power_w * LONG_S, started_at=started_at, time_s=LONG_S)


LONG_S = 1000 * 3600.0
"""A thousand GPU-hours: what a saving comes to in the long run."""


def parse_price(text: str) -> Price:
    """Parse a price such as `0.30 EUR`."""
    found = _PRICE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{text!r} is not a price of electricity", hint='write a number and a currency per kWh, such as "0.30 EUR"'
        )
    price = float(found["number"].replace(",", "."))
    problem = too_large("price_per_kwh", price)
    if problem is not None:
        raise ConfigError(f"electricity_price: {problem}", hint='write the price of one kWh, such as "0.30 EUR"')
    return Price(price, found["currency"])


def parse_intensity(text: str, *, path_of: Callable[[str], Path]) -> GridIntensity:
    """Parse a number of grams per kWh, or read the file of that name."""
    try:
        value = float(text)
    except ValueError:
        return _read_intensity(path_of(text))
    problem = too_large("g_per_kwh", value)
    if not value >= 0 or problem is not None:
        problem = problem or f"{text!r} is not a grid intensity"
        raise ConfigError(f"grid_intensity: {problem}", hint="write the grams of CO₂ per kWh, such as 380")
    return GridIntensity((0.0,), (value,))


def _read_intensity(file: Path) -> GridIntensity:
    hint = f"write grams of CO₂ per kWh, or the path of a CSV with the columns {','.join(INTENSITY_COLUMNS)}"
    try:
        rows = parse_csv(read_text(file, hint=hint), file=str(file), required=INTENSITY_COLUMNS)
        steps = sorted((_time_of_day_s(row), row.positive("g_per_kwh")) for row in rows)
    except InputError as error:
        raise ConfigError(f"grid_intensity: {error.message}", hint=error.hint or hint) from None
    times = [time_s for time_s, _ in steps]
    if len(set(times)) < len(times):
        raise ConfigError(f"grid_intensity: {file} has a time of day twice", hint="keep one line for each time")
    if times[0] > 0:  # before the first time the last one of the day before holds
        steps.insert(0, (0.0, steps[-1][1]))
    return GridIntensity(tuple(time_s for time_s, _ in steps), tuple(grams for _, grams in steps))


def _time_of_day_s(row: Row) -> float:
    text = row.text("time_of_day")
    found = _TIME.fullmatch(text)
    if found is None or int(found[1]) > 23 or int(found[2]) > 59:
        raise row.wrong("time_of_day", f"{text!r} is not a time such as 06:30")
    return int(found[1]) * 3600.0 + int(found[2]) * 60.0
