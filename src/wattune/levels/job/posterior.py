"""Posterior of a job on one GPU model: epochs, cost of an epoch, and so the cost of a run at each batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log, log2

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.levels.job.epoch_cost import CostEvidence, cost_evidence, cost_posterior
from wattune.levels.job.epochs import EpochEvidence, epoch_evidence, epochs_posterior, in_order_of_ending
from wattune.levels.job.memory_fit import least_too_large
from wattune.levels.job.smooth_curve import SizePosterior
from wattune.response.statistics import Floats

_CRASHES = 2
"""Crashes in a row that make a size suspect."""

_RUNS_AVOIDED = 5
"""Runs that must reach the target elsewhere before a suspect size is tried again, doubled with every crash."""


def unusable(job: Job, over: Sequence[JobRun], gpu: JobGpu) -> frozenset[int]:
    """Return the sizes that do not fit this GPU, and those that crashed repeatedly on its model not long ago."""
    too_large = least_too_large(over, gpu)
    out = {size for size in job.batch_sizes if too_large is not None and size >= too_large}
    for size in {run.batch_size for run in over if run.outcome is Outcome.CRASHED} & set(job.batch_sizes):
        streak, since = _crashes(over, size, gpu)
        if streak >= _CRASHES and since < _RUNS_AVOIDED * 2**streak:
            out.add(size)
    return frozenset(out)


def _crashes(over: Sequence[JobRun], size: int, gpu: JobGpu) -> tuple[int, int]:
    """Count the newest crashes in a row of a size, and the runs that reached the target since."""
    streak = since = 0
    for run in reversed(over):
        if run.gpu.key != gpu.key:
            continue
        if run.batch_size == size and run.outcome is Outcome.CRASHED:
            streak += 1
        elif run.batch_size == size and run.outcome is not Outcome.LOST:
            break
        elif run.outcome is Outcome.REACHED and not streak:
            since += 1
    return streak, since


Flags = NDArray[np.bool_]

_MISS, _MISS_PER_OCTAVE = 0.01, 0.04
"""Probability that a run misses the target at a size where none did, and how it grows with distance from those that
reach it."""

_PRIOR_RUNS = 3.0
"""Weight of that prior, in runs: one unlucky run does not exclude a size."""

_MOST_MISSED = 0.9
"""Highest probability of a miss that is considered."""

_MISS_COST = 1.0
"""Cost of a missed run over one that reaches the target: it is stopped about when it should have reached it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPosterior:
    """The posterior of a job on one GPU model; arrays are by batch size, ascending."""

    job: Job
    gpu: JobGpu
    over: tuple[JobRun, ...]
    epochs: EpochEvidence
    costs: CostEvidence
    log_epochs: SizePosterior
    log_epoch_cost: SizePosterior
    log_cost: SizePosterior
    """Of a run that reaches the target."""
    overhead: Floats
    """Factor on the cost for runs that miss the target."""
    usable: Flags
    """Fits the GPU, does not crash there, and meets the time limit."""

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.job.batch_sizes

    @property
    def expected_cost(self) -> Floats:
        """Of a run at each size."""
        return np.asarray(np.exp(self.log_cost.mean + 0.5 * self.log_cost.variance) * self.overhead)

    @property
    def proven(self) -> Flags:
        """The usable sizes that have reached the target."""
        reached = np.array([size in self.epochs.reached_count for size in self.sizes])
        return np.asarray(self.usable & reached)

    @property
    def best(self) -> int:
        """Index of the proven size of least expected cost; some size must be proven."""
        return int(np.argmin(np.where(self.proven, self.expected_cost, np.inf)))

    @property
    def default_cost(self) -> float:
        """Cost of a run without tuning."""
        place = self.sizes.index(self.job.default_batch_size)
        return float(np.exp(self.log_cost.mean[place]) * self.overhead[place] * self.costs.default_over_best)

    def share_of_default(self, size: int) -> float | None:
        """Return the cost of a run at a size over that of one without tuning; None unless both were paid for on this
        GPU model, and an epoch without tuning was measured: the ratio of an estimate to a measurement would mean
        nothing."""
        default = self.job.default_batch_size
        if self.costs.reference is None:
            return None
        if not {size, default} <= set(self.costs.epoch_s) or not {size, default} <= set(self.epochs.reached_count):
            return None
        level = self.log_cost.mean + np.log(self.overhead)
        return float(np.exp(level[self.place(size)] - level[self.place(default)]) / self.costs.default_over_best)

    @property
    def beyond(self) -> Floats:
        """Octaves from each size to the nearest one that has reached the target."""
        x = np.log2(np.array(self.sizes, dtype=float))
        reached = np.log2(np.array(sorted(self.epochs.reached_count), dtype=float))
        return np.asarray(np.abs(x[:, None] - reached[None, :]).min(axis=1))

    def place(self, size: int) -> int:
        return self.sizes.index(size)


def job_posterior(job: Job, memory: JobMemory, gpu: JobGpu) -> JobPosterior:
    """Return the posterior of a job on a GPU model, given its history."""
    over = in_order_of_ending(run for run in memory.runs if run.batch_size in job.batch_sizes)
    return _job_posterior(_Inputs(job, gpu, tuple(over), memory.profiles))


@dataclass(frozen=True, slots=True)
class _Inputs:
    """All that the posterior depends on; early stopping asks for it after every epoch, while nothing here changes."""

    job: Job
    gpu: JobGpu
    over: tuple[JobRun, ...]
    profiles: tuple[Profile, ...]

    def __hash__(self) -> int:
        return hash((self.job.name, self.gpu.key, len(self.over), len(self.profiles)))


@lru_cache(maxsize=8)
def _job_posterior(inputs: _Inputs) -> JobPosterior:
    job, gpu, over = inputs.job, inputs.gpu, inputs.over
    epochs = epoch_evidence(job, over)
    grid = np.log2(np.array(job.batch_sizes, dtype=float))
    default_x = log2(job.default_batch_size)
    log_epochs = epochs_posterior(grid, epochs.sites, default_x=default_x)
    needed = dict(zip(job.batch_sizes, np.exp(log_epochs.mean).tolist(), strict=True))
    costs = cost_evidence(job, inputs.profiles, gpu, over=over, epochs=needed)
    log_epoch_cost = cost_posterior(grid, costs.sites, default_x=default_x, draw=costs.draw)
    objective = job.objective_on(gpu.max_power_w)
    degree = _degree(objective)
    out = unusable(job, over, gpu)
    usable = np.array([size not in out for size in job.batch_sizes])
    return JobPosterior(
        job=job,
        gpu=gpu,
        over=over,
        epochs=epochs,
        costs=costs,
        log_epochs=log_epochs,
        log_epoch_cost=log_epoch_cost,
        log_cost=SizePosterior(
            degree * log_epochs.mean + log_epoch_cost.mean,
            degree**2 * log_epochs.covariance + log_epoch_cost.covariance,
        ),
        overhead=_overhead(grid, job, epochs, log_epochs),
        usable=_in_time(
            usable, objective, costs, log_epochs=log_epochs, log_epoch_cost=log_epoch_cost, sizes=job.batch_sizes
        ),
    )


def _in_time(
    usable: Flags,
    objective: Objective,
    costs: CostEvidence,
    *,
    log_epochs: SizePosterior,
    log_epoch_cost: SizePosterior,
    sizes: Sequence[int],
) -> Flags:
    """Return the usable sizes whose runs are expected to meet the time limit, or the fastest where none does."""
    limit_s = objective.limit_s(costs.reference)
    known = [place for place, size in enumerate(sizes) if size in costs.epoch_s]
    if limit_s is None or not known or not usable.any():
        return usable
    # The time of a size that was not measured is assumed to change as its cost does.
    x = np.log2(np.array(sizes, dtype=float))
    near = np.array([min(known, key=lambda place: abs(x[place] - at)) for at in x])
    epoch_s = np.array([costs.epoch_s[sizes[place]] for place in near])
    change = log_epoch_cost.mean - log_epoch_cost.mean[near]
    run_s = epoch_s * np.exp(log_epochs.mean + change)
    keeping = usable & (run_s <= limit_s)
    return keeping if keeping.any() else np.asarray(usable & (run_s <= run_s[usable].min()))


def _degree(objective: Objective) -> float:
    """Return the power of the epochs with which the value of a run grows: 1 for energy and money, 2 for
    energy-delay."""
    one, two = objective.value(Measurement(1.0, 1.0)), objective.value(Measurement(2.0, 2.0))
    return log(two / one) / log(2.0) if one > 0 and two > 0 else 1.0


def _overhead(grid: Floats, job: Job, epochs: EpochEvidence, log_epochs: SizePosterior) -> Floats:
    """Return the factor on the cost of each size for runs that miss the target, for whatever reason or because they
    need more epochs than the job allows."""
    reached = np.log2(np.array(sorted(epochs.reached_count), dtype=float))
    distance = np.abs(grid[:, None] - reached[None, :]).min(axis=1) if len(reached) else np.zeros(len(grid))
    prior = np.minimum(_MISS + _MISS_PER_OCTAVE * distance, 0.5)
    hits = np.array([epochs.reached_count.get(size, 0) for size in job.batch_sizes])
    misses = np.array([epochs.missed_count.get(size, 0) for size in job.batch_sizes])
    share = (misses + _PRIOR_RUNS * prior) / (hits + misses + _PRIOR_RUNS)
    sd = np.sqrt(log_epochs.variance + epochs.sd**2)
    too_long = 1.0 - ndtr((np.log(job.max_epochs + 0.5) - log_epochs.mean) / sd)
    # Larger batches need as many epochs or more; a smaller one seldom does.
    too_long = np.where(grid > (reached[-1] if len(reached) else np.inf), too_long, 0.0)
    share = np.minimum(1.0 - (1.0 - share) * (1.0 - too_long), _MOST_MISSED)
    return np.asarray(1.0 + _MISS_COST * share / (1.0 - share))


_RECURRENCES = 40.0
"""Least number of recurrences to come; later, as many as there were."""


def horizon(memory: JobMemory) -> float:
    """Return the expected number of recurrences to come: as many as there were, and at least `_RECURRENCES`."""
    return max(_RECURRENCES, 1.0 + max((run.recurrence for run in memory.runs), default=0))
