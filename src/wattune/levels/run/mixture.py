"""The best mixture of settings under a limit that holds for the whole: one of them, or two by turns.

Notation
    w       share of the work at each setting
    v       value of a unit of work there, to be as small as possible
    y       slack that a unit of work earns there; negative where it spends slack
    λ       price of slack: by how much the value falls for each unit of slack that is added
The mixture is the linear program min Σ w·v with Σ w·y ≥ 0, Σ w = 1, w ≥ 0. It has two constraints, so that two settings
are enough: one that earns slack, and one that spends it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.response.statistics import Floats

_ALMOST = 1e-12


@dataclass(frozen=True, slots=True)
class Mixture:
    """Two settings by their places, or one that is both."""

    fast: int
    """The one that earns slack."""
    slow: int
    share: float
    """w of the slow one."""
    value: float
    """Σ w·v"""
    price: float
    """λ; 0 for a single setting, whose slack is not spent."""

    @property
    def is_one(self) -> bool:
        return self.fast == self.slow

    @property
    def places(self) -> tuple[int, ...]:
        return (self.fast,) if self.is_one else (self.fast, self.slow)


def best_mixture(slack: Floats, value: Floats, eligible: NDArray[np.bool_]) -> Mixture | None:
    """Return the best mixture of eligible settings, given y and v of each; None where none earns slack."""
    one = best_single(value, eligible & (slack >= 0.0))
    if one is None:
        return None
    earns, spends = np.flatnonzero(eligible & (slack >= 0.0)), np.flatnonzero(eligible & (slack < 0.0))
    if not len(spends):
        return one
    between = slack[earns][:, None] - slack[spends][None, :]
    share = slack[earns][:, None] / between
    mixed = value[earns][:, None] + share * (value[spends][None, :] - value[earns][:, None])
    row, column = np.unravel_index(int(np.argmin(mixed)), mixed.shape)
    fast, slow = int(earns[row]), int(spends[column])
    if mixed[row, column] >= one.value - _ALMOST:
        return one
    price = float((value[fast] - value[slow]) / between[row, column])
    return Mixture(fast, slow, float(share[row, column]), float(mixed[row, column]), price)


def best_single(value: Floats, eligible: NDArray[np.bool_]) -> Mixture | None:
    """Return the best eligible setting by itself; None where none is eligible."""
    if not eligible.any():
        return None
    place = int(np.argmin(np.where(eligible, value, np.inf)))
    return Mixture(place, place, 1.0, float(value[place]), 0.0)
