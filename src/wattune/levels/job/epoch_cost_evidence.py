"""What profiles and runs teach of an epoch's cost on a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log2
from statistics import fmean

from wattune.core.errors import Infeasible
from wattune.core.job import Job, JobGpu, JobRun, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.core.trial import Trial
from wattune.levels.job.level_shift import shifts
from wattune.levels.job.smooth_curve import Site

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
    for (size, value, _), stretch in zip(values, shifts(values, sd=_COST_SD).stretch, strict=True):
        if stretch == 0:
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
