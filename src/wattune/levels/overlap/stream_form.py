"""A physical form of the partitions of one model together: two streams, with constants that all measurements share.

Notation
    a_k, d_k    seconds and dynamic joules of operation k alone, as a GPU model expects them (`stream_terms`)
    c_k         share of a_k that follows the clock; the rest follows the memory
    a_k·x_k     time of an operation: log x_k = x + x'·log f + x''_k, f the clock over the highest
    K           latency + κ·p-norm of the times by SMs and by the link, each with a factor
    b_k         a_k·x_k·(c_k/(1 − λ·s/S) + (1 − c_k)·(1 + μ)): an operation beside a collective on s of S SMs
    ρ           progress of the collective beside computation, relative to that alone
    T           two streams (`physics.streams`) with these, and J more where they overlap and are joined
    E           Σ d_k·y_k·(1 + η·(B/A − 1)) + D·z·(1 + θ·(R/K − 1)) + W·w·T: operations, collective, static power;
                A and B computation alone and as it ran, R how long the collective ran; y and w as x with slopes

Equal operations and equal collectives of several partitions share their constants. All constants are logarithms or
logits with normal priors, so that a few measurements of each partition suffice. What the form misses, such as
contention that depends on the operation, and temperature, is left to a process of residuals (`joint_surrogate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from wattune.levels.overlap.stream_terms import Ints, ModelTerms
from wattune.physics.fit.prior import Prior, logistic, logit
from wattune.physics.gpu_parts import Floats
from wattune.physics.streams import StreamPhases, two_streams
from wattune.physics.timing import smooth_maximum

# x, x', rates of SMs and of the link, λ, μ, ρ, J in s, p − 1; then operations and collectives.
_TIME_PRIORS = (
    Prior(0.0, 0.25),
    Prior(0.0, 0.1),
    Prior(0.0, 0.25),
    Prior(0.0, 0.25),
    Prior(0.0, 0.3),
    Prior(log(0.25), 0.6),
    Prior(logit(0.65), 0.6),
    Prior(log(100e-6), 0.6),
    Prior(log(2.0), 0.4),
)
_OPERATION_TIME, _COLLECTIVE_TIME = Prior(0.0, 0.12), Prior(0.0, 0.07)

# y, y', z, w, w', η, θ; then operations and collectives.
_ENERGY_PRIORS = (
    Prior(0.0, 0.25),
    Prior(0.0, 0.3),
    Prior(0.0, 0.4),
    Prior(0.0, 0.25),
    Prior(0.0, 0.3),
    Prior(logit(0.4), 0.8),
    Prior(logit(0.5), 0.8),
)
_OPERATION_ENERGY, _COLLECTIVE_ENERGY = Prior(0.0, 0.12), Prior(0.0, 0.1)

_SD = 0.003
"""By which the form alone misses, where it is fitted."""
_MOST_LOST = 0.8
_STEP, _ROUNDS, _ENOUGH = 1e-4, 12, 0.1

Form = Callable[[Floats, ModelTerms, Ints], Floats]
"""Logarithms by constants, at some of the settings of a model; the terms are those of these settings."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedForm:
    """Logarithms of a quantity at every choice, and their derivatives by the parameters."""

    logs: Floats
    """(choices,) at the mean of the priors, by the linear form around the most likely parameters."""
    basis: Floats
    """(choices, parameters) in standard deviations of the priors."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamRuns:
    """What runs how long, by the form, a value per setting."""

    log_time: Floats
    compute_s: Floats
    """Computation alone."""
    busy_s: Floats
    """Computation as it ran."""
    comm_s: Floats
    """The collective alone."""
    active_s: Floats
    """The collective as it ran."""

    def taken(self, places: Ints) -> StreamRuns:
        return StreamRuns(
            self.log_time[places],
            self.compute_s[places],
            self.busy_s[places],
            self.comm_s[places],
            self.active_s[places],
        )


def time_values(terms: ModelTerms, places: Ints, log_time: Floats) -> Floats:
    """Find the most likely constants of time, by logarithms measured at some places."""
    return _most_likely(_log_time, _time_priors(terms), terms, places, log_time)


def time_form(terms: ModelTerms, values: Floats) -> FittedForm:
    """Linearise the times of all settings around these constants."""
    return _linear(_log_time, _time_priors(terms), terms, values)


def energy_form(terms: ModelTerms, places: Ints, log_energy: Floats, runs: StreamRuns, log_time: Floats) -> FittedForm:
    """Fit energies measured at some places and linearise those of all settings, with their (expected) times."""
    static_j = terms.columns.static_w * np.exp(log_time)

    def form(values: Floats, taken: ModelTerms, at: Ints) -> Floats:
        return _log_energy(values, taken, runs.taken(at), static_j[at])

    priors = _priors(_ENERGY_PRIORS, _OPERATION_ENERGY, _COLLECTIVE_ENERGY, terms)
    return _linear(form, priors, terms, _most_likely(form, priors, terms, places, log_energy))


def stream_runs(values: Floats, terms: ModelTerms) -> StreamRuns:
    """Run both streams of every setting with these constants of time."""
    own, (x, slope, sm_rate, link_rate, lost, memory, progress, join, norm) = terms.columns, values[:9]
    operations, collectives = _constants(values, len(_TIME_PRIORS), terms)
    alone_s = own.alone_s * np.exp(x + slope * own.log_clock + operations)
    by_sms_s, by_link_s = own.by_sms_s * np.exp(sm_rate), own.by_link_s * np.exp(link_rate)
    comm_s = own.latency_s + np.exp(collectives) * smooth_maximum(by_sms_s, by_link_s, float(1.0 + np.exp(norm)))
    slower = 1.0 / (1.0 - np.minimum(np.exp(lost) * own.sm_share, _MOST_LOST))
    beside_s = alone_s * (own.follows_clock * slower + (1.0 - own.follows_clock) * (1.0 + np.exp(memory)))
    first = np.arange(len(alone_s))[:, None] < own.before
    before_s = np.where(own.overlaps, (alone_s * first).sum(axis=0), np.inf)
    nothing = np.zeros_like(alone_s)
    rate = np.full_like(alone_s, float(logistic(progress)))
    found = two_streams(StreamPhases(alone_s, nothing, beside_s, nothing, rate), comm_s, before_s)
    time_s = found.time_s + np.where(own.overlaps, np.exp(join), 0.0)
    return StreamRuns(
        np.log(time_s), alone_s.sum(axis=0), found.time_s - found.exposed_s, comm_s, np.asarray(found.comm_s)
    )


def _log_time(values: Floats, terms: ModelTerms, _: Ints) -> Floats:
    return stream_runs(values, terms).log_time


def _log_energy(values: Floats, terms: ModelTerms, runs: StreamRuns, static_j: Floats) -> Floats:
    own, (y, slope, comm, static, static_slope, longer, comm_longer) = terms.columns, values[:7]
    operations, collectives = _constants(values, len(_ENERGY_PRIORS), terms)
    work_j = (own.dynamic_j * np.exp(y + slope * own.log_clock + operations)).sum(axis=0)
    beside = 1.0 + logistic(longer) * (runs.busy_s / runs.compute_s - 1.0)
    waits = 1.0 + logistic(comm_longer) * (runs.active_s / np.maximum(runs.comm_s, 1e-12) - 1.0)
    comm_j = own.comm_j * np.exp(comm + collectives) * waits
    return np.asarray(np.log(work_j * beside + comm_j + np.exp(static + static_slope * own.log_clock) * static_j))


def _constants(values: Floats, first: int, terms: ModelTerms) -> tuple[Floats, Floats]:
    """Return the constants of the operations and of the collective of every setting."""
    # Operations that a partition lacks take no time, so it does not matter whose constant they get.
    operations, collectives = np.split(values[first:], [terms.operations])
    return operations[terms.operation], collectives[terms.collective]


def _time_priors(terms: ModelTerms) -> tuple[Prior, ...]:
    return _priors(_TIME_PRIORS, _OPERATION_TIME, _COLLECTIVE_TIME, terms)


def _priors(common: tuple[Prior, ...], operation: Prior, collective: Prior, terms: ModelTerms) -> tuple[Prior, ...]:
    return (*common, *[operation] * terms.operations, *[collective] * terms.collectives)


def _most_likely(form: Form, priors: Sequence[Prior], terms: ModelTerms, places: Ints, measured: Floats) -> Floats:
    """Find the constants by damped Gauss-Newton steps from the means of the priors."""
    mean, spread = _moments(priors)
    values, damping, taken = mean, 1e-2, terms.taken(places)

    def errors(values: Floats) -> Floats:
        return np.concatenate([(form(values, taken, places) - measured) / _SD, (values - mean) / spread])

    now = errors(values)
    for _ in range(_ROUNDS if len(places) else 0):
        slopes = np.concatenate([_slopes(form, values, taken, places) / _SD, np.diag(1.0 / spread)])
        normal, downhill = slopes.T @ slopes, slopes.T @ now
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        trial = np.clip(values - step, mean - 6 * spread, mean + 6 * spread)
        then = errors(trial)
        gained = float(now @ now - then @ then)
        damping = damping / 5 if gained > 0 else damping * 10
        if gained > 0:
            values, now = trial, then
        if 0 <= gained < _ENOUGH:
            break
    return values


def _linear(form: Form, priors: Sequence[Prior], terms: ModelTerms, values: Floats) -> FittedForm:
    """Linearise around the constants, and go along the straight lines to the means of the priors."""
    mean, spread = _moments(priors)
    every = np.arange(len(terms.collective))
    slopes = _slopes(form, values, terms, every)
    return FittedForm(form(values, terms, every) + slopes @ (mean - values), slopes * spread)


def _slopes(form: Form, values: Floats, terms: ModelTerms, places: Ints) -> Floats:
    """(settings, constants): derivatives; those of an operation or a collective only where it is."""
    own = terms.operations + terms.collectives
    common, centre = len(values) - own, form(values, terms, places)
    slopes = np.zeros((len(places), len(values)))
    for number in range(len(values)):
        at = np.arange(len(places)) if number < common else np.flatnonzero(_uses(terms, number - common))
        if len(at):
            moved = values + _STEP * (np.arange(len(values)) == number)
            taken = terms if len(at) == len(places) else terms.taken(at)
            slopes[at, number] = (form(moved, taken, places[at]) - centre[at]) / _STEP
    return slopes


def _uses(terms: ModelTerms, number: int) -> NDArray[np.bool_]:
    if number < terms.operations:
        return np.asarray((terms.operation == number).any(axis=0))
    return np.asarray(terms.collective == number - terms.operations)


def _moments(priors: Sequence[Prior]) -> tuple[Floats, Floats]:
    return np.array([prior.mean for prior in priors]), np.array([prior.sd for prior in priors])
