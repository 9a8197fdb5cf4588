"""A generic physical form of a partition's time and energy over its knobs, for partitions without a model of their own.

Notation, relative to the shortest time and to the energy that were measured there
    f       core clock over the highest; s SMs that communicate, b threads of their blocks over the most
    C(f)    c·(m + (1 − m)/f): the computation, of which the memory's share m does not follow the clock
    K       p-norm of k/(s^α·b^β·f) and of the link: the communication alone
    H       computation in the window, by the shares of its operations
    T       C + K in sequence, else C − H + q-norm(H·(1 + loss·s), K + contention·min(H, K))
    E       w₀ + w₁·f² + (w₂ + w₃·f³ + w₄·s)·T: work that does not follow the clock and work that does, then power

All parameters are logarithms or logits with normal priors, so that ten measurements suffice for a first form. The form
of T is the one of `physics.fit.overlap_curve`, which public sweeps were fitted with, and has clocks besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from wattune.physics.fit.prior import Prior, logistic
from wattune.physics.gpu_parts import Floats
from wattune.physics.timing import smooth_maximum

_WAIT_NORM = 12.0
_TIME_SD, _ENERGY_SD = 0.015, 0.015
"""By which the form alone misses; what it misses is left to a process of residuals."""

_STEP = 1e-4
_ROUNDS = 25

Form = Callable[[Floats], Floats]
Places = NDArray[np.int64]

# c and k over the shortest time, the memory's share, α, β, p, link, loss, contention; then the operations' shares.
_TIME_PRIORS = (
    Prior(-0.05, 0.4),
    Prior(0.6, 0.8),
    Prior(-0.5, 1.0),
    Prior(1.0, 0.1),
    Prior(0.8, 0.2),
    Prior(log(2.0), 0.4),
    Prior(log(0.2), 0.7),
    Prior(log(1 / 108), 0.5),  # of an A100's SMs, each does its share
    Prior(log(0.4), 0.6),
)
_SHARE = Prior(0.0, 0.9)
_ENERGY_PRIORS = (
    Prior(log(0.25), 0.7),
    Prior(log(0.35), 0.7),
    Prior(log(0.25), 0.7),
    Prior(log(0.15), 0.7),
    Prior(log(0.05), 1.0),
)


@dataclass(frozen=True, slots=True, eq=False)
class Knobs:
    """Knobs of a partition, a row per choice; those that a space lacks are constant."""

    clock: Floats
    """Over the highest."""
    comm_sms: Floats
    block: Floats
    """Over the largest."""
    start: Floats
    """Place of the first operation beside communication; negative where communication follows computation."""
    end: Floats

    @classmethod
    def of(cls, names: tuple[str, ...], features: Floats) -> Knobs:
        """Take the columns that have a meaning here by their names."""
        columns = dict(zip(names, features.T, strict=True))
        ones = np.ones(len(features))
        clock, block = columns.get("sm_mhz", ones), columns.get("comm_block", ones)
        start = columns.get("launch", 0.0 * ones)
        last = np.full(len(features), max(float(start.max()), 0.0))
        return cls(
            clock / clock.max(), columns.get("comm_sms", ones), block / block.max(), start, columns.get("end", last)
        )

    def taken(self, places: Places) -> Knobs:
        return Knobs(
            self.clock[places], self.comm_sms[places], self.block[places], self.start[places], self.end[places]
        )

    @property
    def places(self) -> Floats:
        """Edges of windows, in order; the operations between two of them need one share only."""
        edges = {*self.start[self.start >= 0], *(self.end[self.start >= 0] + 1.0)}
        return np.array(sorted(edges) if edges else [0.0, 1.0])

    @property
    def inside(self) -> Floats:
        """(choices, groups): 1 where a group of operations lies in the window."""
        first = self.places[:-1][None]
        beside = (first >= self.start[:, None]) & (first <= self.end[:, None]) & (self.start[:, None] >= 0)
        return beside.astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class FittedForm:
    """Logarithms of a quantity at every choice, and their derivatives by the parameters."""

    logs: Floats
    """(choices,) at the mean of the priors, by the linear form around the most likely parameters."""
    basis: Floats
    """(choices, parameters) in standard deviations of the priors."""


def fit_time(knobs: Knobs, places: Places, log_time: Floats) -> FittedForm:
    """Fit log time at the measured places; without any, take the priors."""
    inside, unit = knobs.inside, float(log_time.min()) if len(log_time) else 0.0
    measured, measured_inside = knobs.taken(places), inside[places]
    priors = (*_TIME_PRIORS, *[_SHARE] * inside.shape[1])
    values = _most_likely(
        lambda values: _log_time(values, measured, measured_inside), priors, log_time - unit, _TIME_SD
    )
    return _linear(lambda values: _log_time(values, knobs, inside) + unit, priors, values)


def fit_energy(knobs: Knobs, places: Places, log_energy: Floats, log_time: Floats) -> FittedForm:
    """Fit log energy at the measured places, with the (choices,) expected logarithms of time."""
    fastest = int(np.argmin(log_time[places])) if len(places) else 0
    unit = float(log_energy[fastest]) if len(places) else 0.0
    time = np.exp(log_time - (log_time[places[fastest]] if len(places) else log_time.min()))
    clock, sms = knobs.clock, knobs.comm_sms / max(float(knobs.comm_sms.max()), 1.0)
    columns = np.stack([np.ones_like(time), clock**2, time, clock**3 * time, sms * time], axis=1)
    values = _most_likely(
        lambda values: np.log(columns[places] @ np.exp(values)), _ENERGY_PRIORS, log_energy - unit, _ENERGY_SD
    )
    return _linear(lambda values: np.log(columns @ np.exp(values)) + unit, _ENERGY_PRIORS, values)


def _most_likely(form: Form, priors: tuple[Prior, ...], measured: Floats, sd: float) -> Floats:
    """Find the parameters by damped Gauss-Newton steps: a few milliseconds where general solvers take a hundred."""
    mean, spread = _moments(priors)
    values, damping = mean, 1e-2
    if not len(measured):
        return values

    def errors(values: Floats) -> Floats:
        return np.concatenate([(form(values) - measured) / sd, (values - mean) / spread])

    now = errors(values)
    for _ in range(_ROUNDS):
        slopes = np.stack([(errors(values + step) - now) / _STEP for step in np.eye(len(values)) * _STEP], axis=1)
        normal, downhill = slopes.T @ slopes, slopes.T @ now
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        trial = np.clip(values - step, mean - 6 * spread, mean + 6 * spread)
        then = errors(trial)
        gained = float(now @ now - then @ then)
        damping = damping / 5 if gained > 0 else damping * 10
        if gained > 0:
            values, now = trial, then
        if 0 <= gained < 1e-3:
            break
    return values


def _linear(form: Form, priors: tuple[Prior, ...], values: Floats) -> FittedForm:
    """Linearise around the parameters, and go along the straight lines to the means of the priors."""
    mean, spread = _moments(priors)
    centre = form(values)
    slopes = np.stack([(form(values + step) - centre) / _STEP for step in np.eye(len(values)) * _STEP], axis=1)
    return FittedForm(centre + slopes @ (mean - values), slopes * spread)


def _moments(priors: tuple[Prior, ...]) -> tuple[Floats, Floats]:
    return np.array([prior.mean for prior in priors]), np.array([prior.sd for prior in priors])


def _log_time(values: Floats, knobs: Knobs, inside: Floats) -> Floats:
    """(choices,): logarithm of T over the shortest time measured."""
    memory, norm = logistic(values[2]), 1.0 + np.exp(values[5])
    compute = np.exp(values[0]) * (memory + (1.0 - memory) / knobs.clock)
    work = np.exp(values[1]) / (knobs.comm_sms ** values[3] * knobs.block ** values[4] * knobs.clock)
    alone = smooth_maximum(work, np.full_like(work, np.exp(values[6])), float(norm))
    shares = np.exp(values[len(_TIME_PRIORS) :])
    hidden = compute * (inside @ (shares / shares.sum()))
    beside = hidden * (1.0 + np.exp(values[7]) * knobs.comm_sms)
    slowed = alone + np.exp(values[8]) * np.minimum(hidden, alone)
    waits = compute - hidden + smooth_maximum(beside, slowed, _WAIT_NORM)
    return np.asarray(np.log(np.where(knobs.start < 0, compute + alone, waits)))
