"""Core voltage of a GPU against its clock: constant up to a knee, rising beyond it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def voltage(clock: Floats, *, knee: Floats | float, rise: Floats | float, bend: Floats | float = 1.0) -> Floats:
    """Return the voltage over that below the knee, for clocks as shares of the highest; 1 + rise at the highest."""
    above = np.clip((clock - knee) / (1.0 - knee), 0.0, None)
    return np.asarray(1.0 + rise * above**bend)


def voltage_squared(clock: Floats, *, knee: Floats | float, rise: Floats | float, bend: Floats | float = 1.0) -> Floats:
    """Return the square of the voltage over that at the highest clock."""
    return np.asarray((voltage(clock, knee=knee, rise=rise, bend=bend) / (1.0 + rise)) ** 2)


def switching(clock: Floats, *, knee: float, rise: float, bend: float = 1.0) -> Floats:
    """Compute s, which rises with the clock and is 1 at the highest: (clocks,)."""
    return np.asarray(clock * voltage_squared(clock, knee=knee, rise=rise, bend=bend))
