"""Round numbers along an axis."""

from __future__ import annotations

from math import ceil, floor, isclose, log10

_MANTISSAS = (1.0, 2.0, 2.5, 5.0, 10.0)


def tick_step(low: float, high: float, *, about: int) -> float:
    """The round step that cuts low to high into nearly `about` parts."""
    rough = (high - low) / max(about, 1)
    scale = 10.0 ** floor(log10(rough))
    return min((mantissa * scale for mantissa in _MANTISSAS), key=lambda step: abs(step - rough))


def ticks(low: float, high: float, *, about: int = 5) -> tuple[float, ...]:
    """The multiples of a round step that lie from low to high."""
    low, high = widened(low, high)
    step = tick_step(low, high, about=about)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return tuple(_clean(index * step, step) for index in range(first, last + 1))


def log_ticks(low: float, high: float, *, about: int = 5) -> tuple[float, ...]:
    """Round numbers from low to high on an axis that goes by factors; few decades get 2s and 5s too."""
    if high < 8 * low:  # too narrow for decades to mark it
        return ticks(low, high, about=about)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for mantissas in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        values = tuple(mantissa * 10.0**decade for decade in decades for mantissa in mantissas)
        within = tuple(value for value in values if low <= value <= high)
        if len(within) <= about + 1:
            break
    return within


def widened(low: float, high: float) -> tuple[float, float]:
    """The same range, or a small one around it where it has no width."""
    if high > low and not isclose(low, high, rel_tol=1e-9):
        return low, high
    half = abs(low) * 0.05 or 0.5
    return low - half, low + half


def padded(low: float, high: float, *, share: float = 0.06, least: float = 0.0) -> tuple[float, float]:
    """The range with some room on both sides; a range of positive numbers stays positive.

    It is at least the share `least` of its middle wide, so that noise does not fill a whole picture.
    """
    wide_low, wide_high = widened(low, high)
    middle = (wide_low + wide_high) / 2
    half = max((wide_high - wide_low) * (0.5 + share), abs(middle) * least / 2)
    return (max(middle - half, 0.0) if low >= 0 else middle - half), middle + half


def tick_labels(values: tuple[float, ...]) -> tuple[str, ...]:
    """The ticks in words, all with the same number of places and thousands set apart."""
    places = next((n for n in range(10) if all(isclose(v, round(v, n), abs_tol=1e-12) for v in values)), 10)
    return tuple(f"{value:,.{places}f}".replace(",", "\u2009").replace("-", "−") for value in values)


def log_labels(values: tuple[float, ...]) -> tuple[str, ...]:
    """The ticks in words, each with the places it needs."""
    return tuple(tick_labels((value,))[0] for value in values)


def _clean(value: float, step: float) -> float:
    return round(value, max(2 - floor(log10(step)), 0))
