"""Time and energy of a piece of work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot, inf

from wattune.core.reading import Count, Reading

SIGMAS_95 = 1.96
"""Half-width of a 95 % interval, in standard errors."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds and joules, each with the half-width of its 95 % interval where that is known."""

    time_s: float
    energy_j: float
    time_error_s: float | None = None
    energy_error_j: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.time_s < inf and 0 <= self.energy_j < inf):
            raise ValueError(f"a measurement is finite and not negative: {self.time_s} s, {self.energy_j} J")

    @classmethod
    def between(cls, before: Count | Reading, after: Count | Reading) -> Measurement:
        """Return what was spent from one count to a later one."""
        if before.energy_j is None or after.energy_j is None:
            raise ValueError("a reading without an energy counter cannot be subtracted")
        return cls(after.time_s - before.time_s, after.energy_j - before.energy_j)

    @classmethod
    def together(cls, parts: Iterable[Measurement]) -> Measurement:
        """Return what several GPUs took in parallel: the longest time, the sum of the energies."""
        parts = tuple(parts)
        if not parts:
            raise ValueError("together needs at least one measurement")
        slowest = max(parts, key=lambda part: part.time_s)
        return cls(
            slowest.time_s,
            sum(part.energy_j for part in parts),
            slowest.time_error_s,
            _independent(part.energy_error_j for part in parts),
        )

    @property
    def power_w(self) -> float:
        """Mean power; 0 where no time passed."""
        return self.energy_j / self.time_s if self.time_s > 0 else 0.0

    def __add__(self, other: Measurement) -> Measurement:
        return Measurement(
            self.time_s + other.time_s,
            self.energy_j + other.energy_j,
            _independent((self.time_error_s, other.time_error_s)),
            _independent((self.energy_error_j, other.energy_error_j)),
        )

    def __truediv__(self, count: float) -> Measurement:
        if count <= 0:
            raise ValueError(f"cannot divide a measurement by {count}")
        return Measurement(
            self.time_s / count,
            self.energy_j / count,
            None if self.time_error_s is None else self.time_error_s / count,
            None if self.energy_error_j is None else self.energy_error_j / count,
        )


def _independent(errors: Iterable[float | None]) -> float | None:
    """Return the error of a sum of independent terms, or None if one of them is unknown."""
    known = tuple(errors)
    parts = [error for error in known if error is not None]
    return hypot(*parts) if len(parts) == len(known) else None


def ratio_error(value: float, error: float | None, reference: float, reference_error: float | None) -> float | None:
    """Return the 95 % half-width of value / reference, of independent errors; None where one is unknown."""
    if error is None or reference_error is None or not value or not reference:
        return None
    return hypot(error / value, reference_error / reference) * value / reference


def time_percent(cost: Measurement, reference: Measurement) -> float:
    """Compute how much longer a cost takes than a reference."""
    return 100 * (cost.time_s / reference.time_s - 1)


def energy_percent(cost: Measurement, reference: Measurement) -> float:
    """Compute how much more energy a cost spends than a reference."""
    return 100 * (cost.energy_j / reference.energy_j - 1)


def saving_percent(cost: Measurement, reference: Measurement) -> float | None:
    """Return the energy saved against the reference, in percent; None where the reference has none."""
    return 100 * (1 - cost.energy_j / reference.energy_j) if reference.energy_j > 0 else None


def slowdown_percent(cost: Measurement, reference: Measurement) -> float | None:
    """Return the extra time against the reference, in percent; None where the reference has none."""
    return 100 * (cost.time_s / reference.time_s - 1) if reference.time_s > 0 else None


def energy_error_percent(cost: Measurement, reference: Measurement) -> float | None:
    """Return the 95 % half-width of the difference of energy, in percent; None where it is unknown."""
    if cost is reference:
        return 0.0
    error = ratio_error(cost.energy_j, cost.energy_error_j, reference.energy_j, reference.energy_error_j)
    return None if error is None else 100 * error


def time_error_percent(cost: Measurement, reference: Measurement) -> float | None:
    """Return the same of the difference of time."""
    if cost is reference:
        return 0.0
    error = ratio_error(cost.time_s, cost.time_error_s, reference.time_s, reference.time_error_s)
    return None if error is None else 100 * error
