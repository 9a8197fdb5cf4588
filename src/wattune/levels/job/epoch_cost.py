"""What an epoch costs over batch size: c(b) = c₀·(s·b₀/b + r·b/b₀ + 1 − s − r).

Every iteration carries a fixed cost (s: its share at the default b₀), the work of the samples is the same at any size,
and very large batches may cost more again where they crowd the memory (r). A part that draws little power while the
job runs is waiting most of the time, so s is large: that is seen before a second size was ever tried.
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
from wattune.core.setting import Setting
from wattune.levels.job.level_shift import shifts
from wattune.levels.job.smooth_curve import Site, SizePosterior, SizeResidual, posterior_of
from wattune.response.ensemble import Floats

_FIXED = (0.0, 0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)
_CROWDED = (0.0, 0.15, 0.4, 0.7)
"""r."""

_OFTEN_CROWDED, _BUSY_CROWDED = 0.4, 0.04
"""How likely r is above 0 on a part that is not kept busy, and on one that is: a crowded memory makes it wait."""

_IDLE_DRAW, _BUSY_DRAW = 0.25, 0.65
"""Share of its highest limit that a part draws when it mostly waits and when it is kept busy: from 0.15 to 0.3 and from
0.6 to 0.9 on parts of several generations."""

_HINT_SD = 0.3
"""How far the fixed share may be from what the draw suggests."""

_RESIDUAL = SizeResidual(shared_sd=0.18, own_sd=0.12, octaves=2.5, single_sd=0.03, own_level_sd=1.5)
"""Recorded epochs stray from the form by a tenth over a few octaves, and a single size by 3 %."""


@lru_cache(maxsize=1)
def _hypotheses() -> Floats:
    """s and r, one hypothesis a row."""
    return np.array([(s, r) for s, r in product(_FIXED, _CROWDED) if s + r <= 1.0])


def cost_posterior(grid: Floats, sites: Sequence[Site], *, default_x: float, draw: float | None) -> SizePosterior:
    """What is believed of the logarithm of an epoch's cost at each log₂ batch size of the grid.

    `draw` is the power at the default size as a share of the highest limit, None where it was not measured.
    """
    at = np.array([site.x for site in sites])
    return posterior_of(
        grid,
        sites,
        laws=_laws(grid - default_x),
        site_laws=_laws(at - default_x),
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
    """Where a value lies from low (0) to high (1)."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _laws(octaves: Floats) -> Floats:
    fixed, crowded = _hypotheses().T
    smaller, larger = np.exp2(-octaves)[None, :], np.exp2(octaves)[None, :]
    steady = 1.0 - fixed - crowded
    return np.asarray(np.log(fixed[:, None] * smaller + crowded[:, None] * larger + steady[:, None] + 1e-3))


_COST_SD = 0.02
"""Scatter of what an epoch costs from run to run, until it is seen."""

_LITTLE = 0.02
"""Share of a run's time whose profiling leaves what the run cost as telling as it was."""


@dataclass(frozen=True, slots=True)
class CostEvidence:
    """Sites of the law of what an epoch costs, on one part."""

    sites: tuple[Site, ...]
    draw: float | None
    """Power at the default batch size and setting, as a share of the highest limit."""
    default_over_best: float
    """What the default batch size costs at its default setting, as a multiple of its best setting's."""
    epoch_s: Mapping[int, float]
    """How long an epoch takes at the best setting, by each size that was measured on this part."""
    reference: Measurement | None
    """What a run costs that its owner would make without us, where that is known."""


def cost_evidence(
    job: Job, profiles: Sequence[Profile], gpu: JobGpu, *, over: Sequence[JobRun], epochs: Mapping[int, float]
) -> CostEvidence:
    """What is known of an epoch's cost on a part; other parts teach of its shape.

    `over` are the runs that are over, `epochs` what each size is thought to need: limits of time are on whole runs.
    """
    parts = {gpu.key: gpu}
    for profile in profiles:
        parts.setdefault(profile.gpu.key, profile.gpu)
    at_default = _at_default(job, profiles, gpu)
    reference = _reference(job, at_default, epochs)
    sites: list[Site] = []
    for number, part in enumerate(parts.values()):
        wish = _Wish(job.objective_on(part.max_power_w), epochs, reference if part.key == gpu.key else None)
        costs = _epoch_costs(wish, profiles, part, over)
        sites += [Site(log2(size), value, _COST_SD**2 / seen**2, number) for size, (value, seen) in costs.items()]
    here = _Wish(job.objective_on(gpu.max_power_w), epochs, reference)
    return CostEvidence(
        tuple(sites), _draw(at_default), _default_over_best(here, at_default), _epoch_s(here, profiles, gpu), reference
    )


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is wanted of a whole run, to judge an epoch by."""

    objective: Objective
    epochs: Mapping[int, float]
    reference: Measurement | None

    def held(self, profile: Profile) -> Measurement:
        """What an epoch costs at the setting that is best for a run; the fastest where none keeps the limits."""
        epochs = self.epochs.get(profile.batch_size, 1.0)
        runs = tuple(Trial(trial.choice, trial.cost / (1.0 / epochs)) for trial in profile.trials)
        try:
            return self.objective.choose(runs, reference=self.reference).cost / epochs
        except Infeasible:
            return min((trial.cost for trial in profile.trials), key=lambda cost: cost.time_s)


def paid_per_epoch(run: JobRun) -> Measurement | None:
    """What each epoch of a run has cost, or None where much profiling was mixed in."""
    if run.cost is None or not run.epochs:
        return None
    if run.profiling is not None and run.profiling.time_s > _LITTLE * run.cost.time_s:
        return None
    return run.cost / run.epochs


def _epoch_costs(
    wish: _Wish, profiles: Sequence[Profile], part: JobGpu, over: Sequence[JobRun]
) -> dict[int, tuple[float, int]]:
    """The logarithm of an epoch's value and how often it was seen, by size: as paid, else as profiled."""
    found = {
        profile.batch_size: (log(value), 1)
        for profile in _profiles(profiles, part)
        if (value := wish.objective.value(wish.held(profile))) > 0
    }
    key, objective = part.key, wish.objective
    values = [
        (run.batch_size, log(value), _COST_SD)
        for run in over
        if run.gpu.key == key and (paid := paid_per_epoch(run)) is not None and (value := objective.value(paid)) > 0
    ]
    paid_by_size: dict[int, list[float]] = {}
    for (size, value, _), interval in zip(values, shifts(values, sd=_COST_SD).interval, strict=True):
        if interval == 0:
            paid_by_size.setdefault(size, []).append(value)
    return found | {size: (fmean(some), 1 + len(some)) for size, some in paid_by_size.items()}


def _profiles(profiles: Sequence[Profile], part: JobGpu) -> list[Profile]:
    return [profile for profile in profiles if profile.gpu.key == part.key and profile.trials]


def _at_default(job: Job, profiles: Sequence[Profile], gpu: JobGpu) -> Profile | None:
    same = (own for own in profiles if own.gpu.key == gpu.key and own.batch_size == job.default_batch_size)
    return next(same, None)


def _epoch_s(wish: _Wish, profiles: Sequence[Profile], gpu: JobGpu) -> dict[int, float]:
    return {profile.batch_size: wish.held(profile).time_s for profile in _profiles(profiles, gpu)}


def _reference(job: Job, profile: Profile | None, epochs: Mapping[int, float]) -> Measurement | None:
    if profile is None or not profile.trials:
        return None
    return _top(profile).cost / (1.0 / epochs.get(job.default_batch_size, 1.0))


def _draw(profile: Profile | None) -> float | None:
    if profile is None or not profile.trials or not profile.gpu.max_power_w > 0:
        return None
    return _top(profile).cost.power_w / profile.gpu.max_power_w


def _default_over_best(wish: _Wish, profile: Profile | None) -> float:
    if profile is None or not profile.trials:
        return 1.0
    best = wish.objective.value(wish.held(profile))
    return max(wish.objective.value(_top(profile).cost) / best, 1.0) if best > 0 else 1.0


def _top(profile: Profile) -> Trial[Setting]:
    """The highest setting: what an owner has who sets nothing."""
    return max(profile.trials, key=lambda trial: trial.choice)
