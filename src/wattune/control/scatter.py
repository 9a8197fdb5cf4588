"""How far a mean may be off, by how much its parts differ."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18)
"""Student's 97.5 % quantiles for 1 to 12 degrees of freedom."""


def mean_error(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the mean of independent values; None of fewer than two."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / (len(values) - 1)
    return T_95[min(len(values) - 1, len(T_95)) - 1] * sqrt(variance / len(values))
