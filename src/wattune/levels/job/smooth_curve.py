"""Posterior of a quantity over batch sizes: one of several simple curves, plus a smooth residual.

Notation
    x       log₂ of the batch size
    y       logarithm of the quantity; sites are where it was measured, the grid is where it is predicted
    m_h     the curve of hypothesis h, up to a free level
    k       covariance of the residual: squared exponential in x, one part that all groups share and one of each group;
            a group is a GPU model (for the cost of an epoch) or an interval between changes (for epochs)
    w_h     posterior weight of hypothesis h, by marginal likelihood (Rasmussen and Williams, Gaussian Processes for
            Machine Learning, 2006, eq. 2.30)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattune.response.statistics import Floats, likelihood_weights

_LEVEL_SD = 4.0
"""Standard deviation of the unknown level of a quantity: e⁴ to either side."""


@dataclass(frozen=True, slots=True)
class Site:
    """A value at `x`, in a group (0 is the one to predict), with a variance."""

    x: float
    y: float
    variance: float
    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeResidual:
    """Size and reach of the differences between a quantity and its curve."""

    shared_sd: float
    own_sd: float
    """Of one group alone, where there are several."""
    octaves: float
    single_sd: float
    """Of one batch size alone: kernels chosen by the library, sizes of tiles."""
    own_level_sd: float


@dataclass(frozen=True, slots=True)
class SizePosterior:
    """Means and covariance of the logarithm at each point of the grid."""

    mean: Floats
    covariance: Floats

    @property
    def variance(self) -> Floats:
        return np.diagonal(self.covariance)


def posterior_of(
    grid: Floats, sites: Sequence[Site], *, curves: Floats, site_curves: Floats, prior: Floats, residual: SizeResidual
) -> SizePosterior:
    """Return the posterior at the grid, for group 0.

    `curves` and `site_curves` hold one hypothesis per row, at the grid and at the sites; `prior` is the logarithm of
    their prior.
    """
    if not any(site.group for site in sites):
        residual = replace(residual, own_sd=0.0, own_level_sd=0.0)
    own_group = np.zeros(len(grid))
    prior_cov = _covariance(grid, grid, own_group, own_group, residual)
    if not sites:
        return _mixture(curves, likelihood_weights(prior), prior_cov)
    x, y, noise, group = np.array([(site.x, site.y, site.variance, site.group) for site in sites]).T
    within = _covariance(x, x, group, group, residual) + np.diag(noise)
    across = _covariance(grid, x, own_group, group, residual)
    solved = np.linalg.solve(within, np.column_stack((across.T, (y - site_curves).T)))
    gains, residuals = solved[:, : len(grid)], solved[:, len(grid) :]
    likelihood = -0.5 * np.einsum("hs,sh->h", y - site_curves, residuals)
    return _mixture(curves + (across @ residuals).T, likelihood_weights(prior + likelihood), prior_cov - across @ gains)


def _covariance(x: Floats, other: Floats, group: Floats, other_group: Floats, residual: SizeResidual) -> Floats:
    distance = x[:, None] - other[None, :]
    correlation = np.exp(-0.5 * (distance / residual.octaves) ** 2)
    single = residual.single_sd**2 * (np.abs(distance) < 1e-9)
    own = (group[:, None] == other_group[None, :]) * (residual.own_level_sd**2 + residual.own_sd**2 * correlation)
    return np.asarray(_LEVEL_SD**2 + residual.shared_sd**2 * correlation + single + own)


def _mixture(means: Floats, weights: Floats, covariance: Floats) -> SizePosterior:
    mean = weights @ means
    distance = means - mean
    return SizePosterior(mean, np.asarray(covariance + (distance * weights[:, None]).T @ distance))
