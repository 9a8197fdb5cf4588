"""Expectations of normal distributions that several optimisers use."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]


def expected_gain(mean: Floats, sd: Floats) -> Floats:
    """Return E[max(X, 0)] of normal X: the expected improvement."""
    sd = np.maximum(sd, 1e-12)
    z = mean / sd
    return np.asarray(mean * ndtr(z) + sd * np.exp(-0.5 * z**2) / sqrt(2.0 * pi))
