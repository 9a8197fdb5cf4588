"""What the core draws at a clock, over what it draws at the highest.

Notation
    x       core clock over the highest
    x_k     knee: below it the voltage is at its floor
    v(x)    voltage over its floor: 1 up to x_k, then 1 + rise·((x − x_k)/(1 − x_k))^bend
    s(x)    switching power over that at x = 1: x·v(x)² / v(1)²

One kernel has bend 1, as the catalogue's GPUs do (A4000: 0.8 %, A100: 0.2 % mean error). A training step is a mix of
kernels of which some are limited earlier than others, and its effective voltage rises more gently: bend 1.4 to 1.5.
"""

from __future__ import annotations

import numpy as np

from wattune.physics.load_table import Floats


def voltage(clock: Floats, *, knee: float, rise: float, bend: float = 1.0) -> Floats:
    """(clocks,): v, for clocks as shares of the highest."""
    above = np.clip((clock - knee) / (1.0 - knee), 0.0, None)
    return np.asarray(1.0 + rise * above**bend)


def switching(clock: Floats, *, knee: float, rise: float, bend: float = 1.0) -> Floats:
    """(clocks,): s, which rises with the clock and is 1 at the highest."""
    return np.asarray(clock * (voltage(clock, knee=knee, rise=rise, bend=bend) / (1.0 + rise)) ** 2)


def soft_minimum(first: Floats, second: Floats | float, sharpness: float) -> Floats:
    """The smaller of two positive values, rounded where they meet."""
    second = np.broadcast_to(
        np.asarray(second, dtype=np.float64), np.broadcast_shapes(np.shape(first), np.shape(second))
    )
    low, high = np.minimum(first, second), np.maximum(first, second)
    return np.asarray(low * (1.0 + (low / high) ** sharpness) ** (-1.0 / sharpness))
