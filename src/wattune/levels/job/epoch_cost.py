"""Cost of an epoch over batch size: c(b) = c₀·(s·b₀/b + r·b/b₀ + 1 − s − r).

Every iteration has a fixed cost (s: its share at the default b₀), the work of the samples is the same at any size, and
very large batches may cost more again where they crowd the memory (r). A GPU that draws little power while the job runs
waits most of the time, so s is large: the power shows it before a second size was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import log, log2
from statistics import fmean

import numpy as np

from wattune.core.errors import Infeasible
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobRun, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.levels.job.level_shift import shifts
from wattune.levels.job.smooth_curve import Site, SizePosterior, SizeResidual, posterior_of
from wattune.response.statistics import Floats

_FIXED = (0.0, 0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
_CROWDED = (0.0, 0.15, 0.4, 0.7)
"""r"""

_OFTEN_CROWDED, _BUSY_CROWDED = 0.4, 0.04
"""Probability that r > 0 on a GPU that is mostly idle, and on one that is busy: a crowded memory makes it wait."""

_IDLE_DRAW, _BUSY_DRAW = 0.25, 0.65
"""Share of its highest limit that a GPU draws when it mostly waits and when it is busy: from 0.15 to 0.3 and from 0.6
to 0.9 on several generations."""

_HINT_SD = 0.3
"""Standard deviation of the fixed share around the one that the power suggests."""

_RESIDUAL = SizeResidual(shared_sd=0.18, own_sd=0.12, octaves=2.5, single_sd=0.03, own_level_sd=1.5)
"""Recorded epochs differ from the form by a tenth over a few octaves, and a single size by 3 %."""


@lru_cache(maxsize=1)
def _hypotheses() -> Floats:
    """s and r, one hypothesis per row."""
    return np.array([(s, r) for s, r in product(_FIXED, _CROWDED) if s + r <= 1.0])


def cost_posterior(grid: Floats, sites: Sequence[Site], *, default_x: float, draw: float | None) -> SizePosterior:
    """Return the posterior of the logarithm of an epoch's cost at each log₂ batch size of the grid.

    `draw` is the power at the default size as a share of the highest limit, None where it was not measured.
    """
    at = np.array([site.x for site in sites])
    return posterior_of(
        grid,
        sites,
        curves=_curves(grid - default_x),
        site_curves=_curves(at - default_x),
        prior=_prior(draw),
        residual=_RESIDUAL,
    )


def _prior(draw: float | None) -> Floats:
    fixed, crowded = _hypotheses().T
    busy = 0.5 if draw is None else _between(draw, _BUSY_DRAW - 0.1, _BUSY_DRAW + 0.1)
    some = _OFTEN_CROWDED + busy * (_BUSY_CROWDED - _OFTEN_CROWDED)
    prior = np.log(np.where(crowded > 0.0, some / (len(_CROWDED) - 1), 1.0 - some))
    if draw is None:
        return prior
    return np.asarray(prior - 0.5 * ((fixed - 1.0 + _between(draw, _IDLE_DRAW, _BUSY_DRAW)) / _HINT_SD) ** 2)


def _between(value: float, low: float, high: float) -> float:
    """Return the position of a value between low (0) and high (1)."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _curves(octaves: Floats) -> Floats:
    fixed, crowded = _hypotheses().T
    smaller, larger = np.exp2(-octaves)[None, :], np.exp2(octaves)[None, :]
    steady = 1.0 - fixed - crowded
    return np.asarray(np.log(fixed[:, None] * smaller + crowded[:, None] * larger + steady[:, None] + 1e-3))


_COST_SD = 0.02
"""Scatter of an epoch's cost from run to run, until it was measured."""

_LITTLE = 0.02
"""A run is used as evidence of its cost if profiling took no more than this share of its time."""


@dataclass(frozen=True, slots=True)
class CostEvidence:
    """Evidence of the cost of an epoch on one GPU model."""

    sites: tuple[Site, ...]
    draw: float | None
    """Power at the default batch size and setting, as a share of the highest limit."""
    default_over_best: float
    """Cost of the default batch size at its default setting over that at its best setting."""
    epoch_s: Mapping[int, float]
    """Time of an epoch at the best setting, by each size that was measured on this GPU model; of its newest run where
    no setting was."""
    reference: Measurement | None
    """Cost of a run without tuning, where known."""


def cost_evidence(
    job: Job, profiles: Sequence[Profile], gpu: JobGpu, *, over: Sequence[JobRun], epochs: Mapping[int, float]
) -> CostEvidence:
    """Collect what is known of an epoch's cost on a GPU model; other models add evidence of its shape.

    `over` are the runs that have ended, `epochs` the expected epochs of each size: time limits are on whole runs.
    """
    models = {gpu.key: gpu}
    for profile in profiles:
        models.setdefault(profile.gpu.key, profile.gpu)
    size = job.default_batch_size
    own = next((own for own in profiles if (own.gpu.key, own.batch_size) == (gpu.key, size) and own.trials), None)
    # The highest setting is the one without tuning.
    untuned = None if own is None else max(own.trials, key=lambda trial: trial.choice).cost
    reference = None if untuned is None else untuned / (1.0 / epochs.get(size, 1.0))
    sites: list[Site] = []
    here: dict[int, Measurement] = {}
    for number, model in enumerate(models.values()):
        objective = job.objective_on(model.max_power_w)
        held = {
            profile.batch_size: _held(profile, objective, epochs, None if number else reference)
            for profile in profiles
            if profile.gpu.key == model.key and profile.trials
        }
        here = here if number else held
        costs = _epoch_costs(objective, held, model, over)
        sites += [Site(log2(size), value, _COST_SD**2 / count**2, number) for size, (value, count) in costs.items()]
    draw, default_over_best = None, 1.0
    if own is not None and untuned is not None:
        value = job.objective_on(gpu.max_power_w).value
        draw = untuned.power_w / own.gpu.max_power_w if own.gpu.max_power_w > 0 else None
        default_over_best = max(value(untuned) / value(here[size]), 1.0) if value(here[size]) > 0 else 1.0
    epoch_s = {
        **{run.batch_size: run.cost.time_s / run.epochs for run in over if run.cost is not None and _is_paid(run, gpu)},
        **{size: cost.time_s for size, cost in here.items()},
    }
    return CostEvidence(tuple(sites), draw, default_over_best, epoch_s, reference)


def _held(
    profile: Profile, objective: Objective, epochs: Mapping[int, float], reference: Measurement | None
) -> Measurement:
    """Return the cost of an epoch at the setting that is best for a run; the fastest where none meets the limits."""
    count = epochs.get(profile.batch_size, 1.0)
    runs = tuple(Trial(trial.choice, trial.cost / (1.0 / count)) for trial in profile.trials)
    try:
        return objective.choose(runs, reference=reference).cost / count
    except Infeasible:
        return min((trial.cost for trial in profile.trials), key=lambda cost: cost.time_s)


def _is_paid(run: JobRun, gpu: JobGpu) -> bool:
    return run.cost is not None and len(run.metrics) > 0 and (run.gpu is gpu or run.gpu.key == gpu.key)


def paid_per_epoch(run: JobRun) -> Measurement | None:
    """Return the cost of each epoch of a run, or None where much of it was profiling."""
    if run.cost is None or not run.epochs:
        return None
    if run.profiling is not None and run.profiling.time_s > _LITTLE * run.cost.time_s:
        return None
    return run.cost / run.epochs


def _epoch_costs(
    objective: Objective, held: Mapping[int, Measurement], model: JobGpu, over: Sequence[JobRun]
) -> dict[int, tuple[float, int]]:
    """Return the logarithm of an epoch's value and its number of observations, by size: from runs, else profiles,
    else runs with much profiling."""
    own = [run for run in over if _is_paid(run, model)]
    # Runs that were too short for a profile show what an epoch costs all the same, profiling included.
    newest = {run.batch_size: run for run in own}
    found = {
        size: (log(value), 1)
        for size, run in newest.items()
        if run.cost is not None and (value := objective.value(run.cost / run.epochs)) > 0
    }
    found |= {size: (log(value), 1) for size, cost in held.items() if (value := objective.value(cost)) > 0}
    values = [
        (run.batch_size, log(value), _COST_SD)
        for run in own
        if (paid := paid_per_epoch(run)) is not None and (value := objective.value(paid)) > 0
    ]
    paid_by_size: dict[int, list[float]] = {}
    for (size, value, _), interval in zip(values, shifts(values, sd=_COST_SD).interval, strict=True):
        if interval == 0:
            paid_by_size.setdefault(size, []).append(value)
    return found | {size: (fmean(some), 1 + len(some)) for size, some in paid_by_size.items()}
