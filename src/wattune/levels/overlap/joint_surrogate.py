"""Expected costs of all settings of all partitions of a model: the form of two streams plus processes of its residuals.

Notation
    log t, log E    modelled one after the other: form + columns with unknown weights + residual + roughness
    columns B       derivatives of the form by its constants, in standard deviations of their priors
    residual        σ²/2·M(f)·[same operations] + σ²/2·M(f)·M(log s)·L·[same partition]: Matérn 5/2 over the clock f and
                    the SMs s, and L = 1 for the same launch, less for others
    ν²              variance between settings however near
    K               BBᵀ + residual + ν²·1 + noise

σ is the most likely of a few, so that what is expected gets as uncertain as the form turns out to be wrong. Whole
functions are drawn from the prior and moved by what was measured (Matheron's rule; Wilson et al. 2020): the residual is
a product over the grid of settings, so a draw from its prior costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.stream_form import FittedForm, energy_form, stream_runs, time_form, time_values
from wattune.levels.overlap.stream_terms import Ints, ModelTerms
from wattune.physics.gpu_parts import Floats

_CLOCK_LENGTH, _SM_LENGTH, _OTHER_LAUNCH = 1.0, 1.0, 0.3
"""Of the range of clocks, of the logarithm of SMs, and the correlation of two launches."""
_SMOOTH_SDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
_USUAL_SD, _USUAL_SPREAD = 0.003, 1.0
"""Of the residual: what is usual, and the standard deviation of its logarithm."""
_ROUGH_SD = 0.0003
_JITTER = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class SettingGrid:
    """Settings of all partitions as places on axes, a value per setting."""

    partition: Ints
    segment: Ints
    clock: Ints
    sms: Ints
    launch: Ints
    clock_kernel: Floats
    sm_kernel: Floats
    launch_kernel: Floats

    @classmethod
    def of(cls, terms: ModelTerms, settings: Sequence[PartitionChoice]) -> SettingGrid:
        clocks, clock = np.unique([own.sm_mhz for own in settings], return_inverse=True)
        counts, sms = np.unique([own.comm_sms for own in settings], return_inverse=True)
        launches, launch = np.unique([own.launch for own in settings], return_inverse=True)
        apart = np.full((len(launches),) * 2, _OTHER_LAUNCH)
        np.fill_diagonal(apart, 1.0)
        return cls(
            terms.partition,
            terms.segment,
            clock,
            sms,
            launch,
            _matern((clocks - clocks[0]) / max(float(np.ptp(clocks)), 1.0) / _CLOCK_LENGTH),
            _matern(np.log(counts) / _SM_LENGTH),
            apart,
        )

    def kernel(self, first: Ints, second: Ints) -> Floats:
        """Return the covariance of the residual between two sets of settings, for σ = 1."""
        both = np.ix_
        own = self.sm_kernel[both(self.sms[first], self.sms[second])]
        own = own * self.launch_kernel[both(self.launch[first], self.launch[second])]
        own = own * (self.partition[first][:, None] == self.partition[second])
        common = self.segment[first][:, None] == self.segment[second]
        return np.asarray(0.5 * self.clock_kernel[both(self.clock[first], self.clock[second])] * (common + own))

    def draws(self, count: int, random: np.random.Generator) -> Floats:
        """(count, settings): residuals from the prior, for σ = 1."""
        roots = [np.linalg.cholesky(kernel + 1e-9 * np.eye(len(kernel))) for kernel in self._kernels]
        own = random.standard_normal((count, int(self.partition.max()) + 1, *(len(root) for root in roots)))
        own = np.einsum("fa,sb,lc,dpabc->dpfsl", *roots, own, optimize=True)
        common = random.standard_normal((count, int(self.segment.max()) + 1, len(roots[0]))) @ roots[0].T
        every = own[:, self.partition, self.clock, self.sms, self.launch] + common[:, self.segment, self.clock]
        return np.asarray(0.5**0.5 * every)

    @property
    def _kernels(self) -> tuple[Floats, Floats, Floats]:
        return self.clock_kernel, self.sm_kernel, self.launch_kernel


def _matern(places: Floats) -> Floats:
    """Return the Matérn 5/2 correlations of places on one axis, in length scales."""
    scaled = 5.0**0.5 * np.abs(places[:, None] - places[None])
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


@dataclass(frozen=True, slots=True, eq=False)
class JointProcess:
    """Logarithms of one quantity at all settings, given those that were measured."""

    form: FittedForm
    grid: SettingGrid
    places: Ints
    """That were measured."""
    values: Floats
    noise: Floats
    smooth_sd: float
    lower: Floats

    @classmethod
    def of(cls, form: FittedForm, grid: SettingGrid, places: Ints, logs: Floats, noise: Floats) -> JointProcess:
        """Condition on measured logarithms, with the most likely σ."""
        values, residual = logs - form.logs[places], grid.kernel(places, places)
        columns = form.basis[places] @ form.basis[places].T + np.diag(noise + _ROUGH_SD**2 + _JITTER)
        found = []
        for smooth_sd in _SMOOTH_SDS if len(places) else (_USUAL_SD,):
            lower = np.linalg.cholesky(columns + smooth_sd**2 * residual)
            white = solve_triangular(lower, values, lower=True, check_finite=False)
            unlikely = 0.5 * white @ white + np.log(np.diag(lower)).sum()
            away = np.log(smooth_sd / _USUAL_SD) / _USUAL_SPREAD
            found.append((float(unlikely + 0.5 * away**2), smooth_sd, lower))
        _, smooth_sd, lower = min(found, key=lambda own: own[0])
        return cls(form, grid, places, values, noise, smooth_sd, np.asarray(lower))

    def across(self, first: Ints, second: Ints) -> Floats:
        """Return prior covariances, without roughness."""
        columns = self.form.basis[first] @ self.form.basis[second].T
        return np.asarray(columns + self.smooth_sd**2 * self.grid.kernel(first, second))

    @property
    def logs(self) -> Floats:
        """(settings,): expected, with noise averaged out."""
        weights = cho_solve((self.lower, True), self.values, check_finite=False)
        return np.asarray(self.form.logs + self._known() @ weights)

    @property
    def variance(self) -> Floats:
        """(settings,): of the function itself."""
        white = solve_triangular(self.lower, self._known().T, lower=True, check_finite=False)
        prior = (self.form.basis**2).sum(axis=1) + self.smooth_sd**2 + _ROUGH_SD**2
        return np.asarray(np.maximum(prior - (white**2).sum(axis=0), 0.0))

    def draws(self, count: int, random: np.random.Generator) -> Floats:
        """(count, settings): whole functions from the posterior."""
        size = len(self.form.logs)
        drawn = random.standard_normal((count, self.form.basis.shape[1])) @ self.form.basis.T
        drawn += self.smooth_sd * self.grid.draws(count, random) + _ROUGH_SD * random.standard_normal((count, size))
        noise = np.sqrt(self.noise) * random.standard_normal((count, len(self.places)))
        missed = self.values - drawn[:, self.places] - noise
        weights = cho_solve((self.lower, True), missed.T, check_finite=False)
        return np.asarray(self.form.logs + drawn + (self._known() @ weights).T)

    def _known(self) -> Floats:
        """(settings, measured): covariances with what was measured."""
        known = self.across(np.arange(len(self.form.logs)), self.places)
        known[self.places, np.arange(len(self.places))] += _ROUGH_SD**2
        return known


@dataclass(frozen=True, slots=True, eq=False)
class JointSurrogate:
    """Both quantities of all settings, one partition after the other."""

    time: JointProcess
    energy: JointProcess
    logs: Floats
    """(settings, 2): expected."""

    def draws(self, count: int, random: np.random.Generator) -> Floats:
        """(count, settings, 2): logarithms of whole functions."""
        return np.stack([own.draws(count, random) for own in (self.time, self.energy)], axis=2)


def fit_joint(terms: ModelTerms, grid: SettingGrid, places: Ints, logs: Floats, noise: Floats) -> JointSurrogate:
    """Fit form and processes to (measured, 2) logarithms with their variances; there may be none."""
    values = time_values(terms, places, logs[:, 0])
    time = JointProcess.of(time_form(terms, values), grid, places, logs[:, 0], noise[:, 0])
    expected = time.logs
    form = energy_form(terms, places, logs[:, 1], stream_runs(values, terms), expected)
    energy = JointProcess.of(form, grid, places, logs[:, 1], noise[:, 1])
    return JointSurrogate(time, energy, np.stack([expected, energy.logs], axis=1))
