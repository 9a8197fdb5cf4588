"""A generic physical form of a partition's time and energy over its knobs, for partitions without a model of their own.

Notation, relative to the shortest time and to the energy that were measured there
    f       core clock over the highest; s SMs that communicate, b threads of their blocks over the most
    C(f)    Σ c·shareᵢ·(mᵢ + (1 − mᵢ)/f): the computation by groups of operations, of which the memory's share mᵢ does
            not follow the clock; H(f) the groups in the window
    K       p-norm of k/(s^α·b^β·f) and of the link: the communication alone
    g, r    factor of computation beside communication, 1 + contention + loss·s; progress of communication beside
            computation over that alone, a mean of the groups in the window
    o       smooth minimum of H·g and K/r: how long both run together
    T       C + K − o·(r + 1/g − 1) + join, in sequence C + K + gap: what runs beside the other is not waited for
    v(f)    voltage over that of the highest clock: falls with the clock down to a knee
    A       K + o·(1 − r): how long communication is active
    E       w₀ + w₁·v² + (w₂ + w₃·v)·T + (w₄ + w₅·s·b^γ·f·v²)·A: work that does not follow the voltage and work that
            does, then the power of the time it takes, then that of communication

All parameters are logarithms or logits with normal priors, so that ten measurements suffice for a first form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from wattune.physics.fit.prior import Prior
from wattune.physics.gpu_parts import Floats

_WAIT_NORM = 12.0
_KNEE_NORM = 16.0
_TIME_SD, _ENERGY_SD = 0.015, 0.015
"""By which the form alone misses; what it misses is left to a process of residuals."""

_STEP = 1e-4
_ROUNDS = 25

Form = Callable[[Floats], Floats]
"""(sets, parameters) to (sets, choices)."""
Places = NDArray[np.int64]

_TIME_PRIORS = {
    "compute": Prior(-0.05, 0.4),
    "work": Prior(0.6, 0.8),
    "memory": Prior(-0.5, 1.0),
    "alpha": Prior(1.0, 0.1),
    "beta": Prior(0.8, 0.2),
    "norm": Prior(log(2.0), 0.4),
    "link": Prior(log(0.2), 0.7),
    "loss": Prior(log(1 / 108), 0.5),  # of an A100's SMs, each does its share
    "contention": Prior(log(0.05), 0.8),
    "progress": Prior(0.8, 0.8),
    "join": Prior(log(0.01), 1.0),
    "gap": Prior(log(0.02), 1.0),
}
_SHARE = Prior(0.0, 0.9)
_OWN_MEMORY, _OWN_PROGRESS = Prior(0.0, 0.8), Prior(0.0, 0.5)
_ENERGY_PRIORS = {
    "constant": Prior(log(0.15), 0.8),
    "work": Prior(log(0.4), 0.7),
    "power": Prior(log(0.2), 0.7),
    "leakage": Prior(log(0.1), 0.8),
    "active": Prior(log(0.1), 0.8),
    "active_sm": Prior(log(0.05), 1.0),
    "gamma": Prior(0.5, 0.4),
    "slope": Prior(0.8, 0.8),
    "knee": Prior(0.6, 0.7),
}


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


@dataclass(frozen=True, slots=True, eq=False)
class FittedTime:
    """The form of time, and how long communication is active by it."""

    form: FittedForm
    active: Floats
    """(choices,) over the shortest time measured."""


def fit_time(knobs: Knobs, places: Places, log_time: Floats) -> FittedTime:
    """Fit log time at the measured places; without any, take the priors."""
    unit = float(log_time.min()) if len(log_time) else 0.0
    groups = knobs.inside.shape[1]
    priors = (*_TIME_PRIORS.values(), *[_SHARE] * groups, *[_OWN_MEMORY] * groups, *[_OWN_PROGRESS] * groups)
    measured, measured_inside = knobs.taken(places), knobs.inside[places]
    values = _most_likely(
        lambda sets: np.log(_times(sets, measured, measured_inside)[0]), priors, log_time - unit, _TIME_SD
    )
    form = _linear(lambda sets: np.log(_times(sets, knobs, knobs.inside)[0]) + unit, priors, values)
    return FittedTime(form, _times(values[None], knobs, knobs.inside)[1][0])


def fit_energy(knobs: Knobs, places: Places, log_energy: Floats, log_time: Floats, active: Floats) -> FittedForm:
    """Fit log energy at the measured places, with the (choices,) expected logarithms of time."""
    fastest = int(np.argmin(log_time[places])) if len(places) else 0
    unit = float(log_energy[fastest]) if len(places) else 0.0
    time = np.exp(log_time - (log_time[places[fastest]] if len(places) else log_time.min()))
    sms = knobs.comm_sms / max(float(knobs.comm_sms.max()), 1.0)
    priors = tuple(_ENERGY_PRIORS.values())

    def form(sets: Floats, at: Places) -> Floats:
        return np.log(_energies(sets, knobs.taken(at), sms[at], time[at], active[at]))

    values = _most_likely(lambda sets: form(sets, places), priors, log_energy - unit, _ENERGY_SD)
    everywhere = np.arange(len(time))
    return _linear(lambda sets: form(sets, everywhere) + unit, priors, values)


def _most_likely(form: Form, priors: tuple[Prior, ...], measured: Floats, sd: float) -> Floats:
    """Find the parameters by damped Gauss-Newton steps: a few milliseconds where general solvers take a hundred."""
    mean, spread = _moments(priors)
    values, damping = mean, 1e-2
    if not len(measured):
        return values

    def errors(sets: Floats) -> Floats:
        return np.concatenate([(form(sets) - measured) / sd, (sets - mean) / spread], axis=1)

    now = errors(values[None])[0]
    for _ in range(_ROUNDS):
        slopes = (errors(values + _STEP * np.eye(len(values))) - now).T / _STEP
        normal, downhill = slopes.T @ slopes, slopes.T @ now
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        trial = np.clip(values - step, mean - 6 * spread, mean + 6 * spread)
        then = errors(trial[None])[0]
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
    centre = form(values[None])[0]
    slopes = (form(values + _STEP * np.eye(len(values))) - centre).T / _STEP
    return FittedForm(centre + slopes @ (mean - values), slopes * spread)


def _moments(priors: tuple[Prior, ...]) -> tuple[Floats, Floats]:
    return np.array([prior.mean for prior in priors]), np.array([prior.sd for prior in priors])


def _times(sets: Floats, knobs: Knobs, inside: Floats) -> tuple[Floats, Floats]:
    """(sets, choices): T, and how long communication is active, over the shortest time measured."""
    named = {name: sets[:, place, None] for place, name in enumerate(_TIME_PRIORS)}
    shares, own_memory, own_progress = np.split(sets[:, len(_TIME_PRIORS) :], 3, axis=1)
    shares = np.exp(named["compute"]) * np.exp(shares) / np.exp(shares).sum(axis=1, keepdims=True)
    memory = _logistic(named["memory"] + own_memory)
    bound, free = shares * memory, shares * (1.0 - memory)
    compute = bound.sum(axis=1)[:, None] + free.sum(axis=1)[:, None] / knobs.clock
    hidden = np.maximum(bound @ inside.T + free @ inside.T / knobs.clock, 1e-9)
    progress = _logistic(named["progress"] + (shares * own_progress) @ inside.T / np.maximum(shares @ inside.T, 1e-9))
    work = np.exp(named["work"]) / (knobs.comm_sms ** named["alpha"] * knobs.block ** named["beta"] * knobs.clock)
    alone = _norm(work, np.exp(named["link"]), 1.0 + np.exp(named["norm"]))
    slower = 1.0 + np.exp(named["contention"]) + np.exp(named["loss"]) * knobs.comm_sms
    beside = knobs.start >= 0
    together = np.where(beside, 1.0 / _norm(1.0 / (hidden * slower), progress / alone, _WAIT_NORM), 0.0)
    waits = np.where(beside, np.exp(named["join"]), np.exp(named["gap"]))
    time = compute + alone - together * (progress + 1.0 / slower - 1.0) + waits
    return np.maximum(time, 1e-3), alone + together * (1.0 - progress)


def _energies(sets: Floats, knobs: Knobs, sms: Floats, time: Floats, active: Floats) -> Floats:
    """(sets, choices): E over the energy at the shortest time."""
    named = {name: sets[:, place, None] for place, name in enumerate(_ENERGY_PRIORS)}
    weight = {name: np.exp(values) for name, values in named.items()}
    lowered = 1.0 - _norm(knobs.clock, _logistic(named["knee"]), _KNEE_NORM)
    threads = sms * knobs.block ** named["gamma"]
    voltage = 1.0 - _logistic(named["slope"]) * lowered
    return np.asarray(
        weight["constant"]
        + weight["work"] * voltage**2
        + (weight["power"] + weight["leakage"] * voltage) * time
        + (weight["active"] + weight["active_sm"] * threads * knobs.clock * voltage**2) * active
    )


def _norm(first: Floats, second: Floats, power: Floats | float) -> Floats:
    """Return the p-norm of two positive quantities, a smooth maximum."""
    largest = np.maximum(first, second)
    return np.asarray(largest * ((first / largest) ** power + (second / largest) ** power) ** (1.0 / power))


def _logistic(values: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-values)))
