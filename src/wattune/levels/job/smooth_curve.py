"""What is believed of a quantity over batch sizes: one of several simple laws, and a smooth departure from it.

Notation
    x       log₂ of the batch size
    y       logarithm of the quantity; sites are where it was seen, the grid is where it is wanted
    m_h     the law of hypothesis h, up to a level that is free
    k       covariance of the departure: squared exponential in x, a part that all groups share and a part of each
            group's own; a group is a part (for what an epoch costs) or a time between changes (for epochs)
    w_h     posterior weight of hypothesis h, by marginal likelihood (Rasmussen and Williams, Gaussian Processes for
            Machine Learning, 2006, eq. 2.30)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattune.response.ensemble import Floats, likelihood_weights

_LEVEL_SD = 4.0
"""Nothing is known of the level of a quantity before it was seen: e⁴ to either side."""


@dataclass(frozen=True, slots=True)
class Site:
    """A value that was seen: at `x`, in a group (0 is the one that is asked about), with a variance."""

    x: float
    y: float
    variance: float
    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeResidual:
    """How far, and over how many octaves, the quantity may leave its law."""

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
        """Of each point by itself."""
        return np.diagonal(self.covariance)


def posterior_of(
    grid: Floats, sites: Sequence[Site], *, laws: Floats, site_laws: Floats, prior: Floats, residual: SizeResidual
) -> SizePosterior:
    """What the sites teach of the grid, for group 0.

    `laws` and `site_laws` hold one hypothesis a row, at the grid and at the sites; `prior` is the logarithm of how
    likely each is.
    """
    if not any(site.group for site in sites):
        residual = replace(residual, own_sd=0.0, own_level_sd=0.0)
    here = np.zeros(len(grid))
    before = _covariance(grid, grid, here, here, residual)
    if not sites:
        return _mixture(laws, likelihood_weights(prior), before)
    x, y, noise, group = np.array([(site.x, site.y, site.variance, site.group) for site in sites]).T
    within = _covariance(x, x, group, group, residual) + np.diag(noise)
    across = _covariance(grid, x, here, group, residual)
    solved = np.linalg.solve(within, np.column_stack((across.T, (y - site_laws).T)))
    gains, residuals = solved[:, : len(grid)], solved[:, len(grid) :]
    likelihood = -0.5 * np.einsum("hs,sh->h", y - site_laws, residuals)
    return _mixture(laws + (across @ residuals).T, likelihood_weights(prior + likelihood), before - across @ gains)


def _covariance(x: Floats, other: Floats, group: Floats, other_group: Floats, residual: SizeResidual) -> Floats:
    apart = x[:, None] - other[None, :]
    alike = np.exp(-0.5 * (apart / residual.octaves) ** 2)
    single = residual.single_sd**2 * (np.abs(apart) < 1e-9)
    own = (group[:, None] == other_group[None, :]) * (residual.own_level_sd**2 + residual.own_sd**2 * alike)
    return np.asarray(_LEVEL_SD**2 + residual.shared_sd**2 * alike + single + own)


def _mixture(means: Floats, weights: Floats, covariance: Floats) -> SizePosterior:
    mean = weights @ means
    apart = means - mean
    return SizePosterior(mean, np.asarray(covariance + (apart * weights[:, None]).T @ apart))
