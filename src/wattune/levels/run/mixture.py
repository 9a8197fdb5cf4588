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

from dataclasses import dataclass, replace

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
    """λ; 0 where the limit costs nothing."""

    @property
    def is_one(self) -> bool:
        return self.fast == self.slow

    @property
    def places(self) -> tuple[int, ...]:
        return (self.fast,) if self.is_one else (self.fast, self.slow)


def best_mixture(slack: Floats, value: Floats, eligible: NDArray[np.bool_]) -> Mixture | None:
    """Return the best mixture of eligible settings, given y and v of each; None where none earns slack."""
    one = _best_one(slack, value, eligible)
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


def best_single(slack: Floats, value: Floats, eligible: NDArray[np.bool_]) -> Mixture | None:
    """Return the best single setting, with the price of slack in the best mixture; None where none earns slack."""
    one, mixture = _best_one(slack, value, eligible), best_mixture(slack, value, eligible)
    return None if one is None or mixture is None else replace(one, price=mixture.price)


def _best_one(slack: Floats, value: Floats, eligible: NDArray[np.bool_]) -> Mixture | None:
    """Return the best single setting; None where none earns slack."""
    earns = eligible & (slack >= 0.0)
    if not earns.any():
        return None
    place = int(np.argmin(np.where(earns, value, np.inf)))
    return Mixture(place, place, 1.0, float(value[place]), 0.0)
