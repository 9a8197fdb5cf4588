"""Priors of parameters, and least squares with priors.

With Gaussian errors and Gaussian priors the most likely parameters are those of least squares over the errors and the
deviations from the priors, both in standard deviations. Their covariance is (JᵀJ)⁻¹ at the solution (Laplace).
Parameters are unbounded: a positive one is fitted as its logarithm, a share as its logit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from wattune.physics.gpu_parts import Floats

Residuals = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Prior:
    """A normal distribution."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The most likely parameters and their covariance."""

    values: Floats
    covariance: Floats
    cost: float

    @property
    def sd(self) -> Floats:
        """(parameters,): standard deviations."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))


def most_likely(errors: Residuals, priors: Sequence[Prior], starts: Sequence[Floats] | None = None) -> Estimate:
    """Find the most likely parameters from the starts (by default the means of the priors).

    `errors` gives prediction minus measurement in standard deviations.
    """
    mean = np.array([prior.mean for prior in priors])
    sd = np.array([prior.sd for prior in priors])

    def residuals(values: Floats) -> Floats:
        return np.concatenate([errors(values), (values - mean) / sd])

    # Ten standard deviations keep a step from leaving the range in which exponentials are finite.
    bounds = (mean - 10 * sd, mean + 10 * sd)
    solutions = [least_squares(residuals, start, bounds=bounds, max_nfev=200) for start in starts or (mean,)]
    best = min(solutions, key=lambda solution: float(solution.cost))
    return Estimate(best.x, np.linalg.inv(best.jac.T @ best.jac), float(best.cost))


def logistic(value: Floats | float) -> Floats:
    """Convert a logit to its share between 0 and 1."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(value))))


def logit(share: float) -> float:
    """Convert a share between 0 and 1 to its logit."""
    return float(np.log(share / (1.0 - share)))
