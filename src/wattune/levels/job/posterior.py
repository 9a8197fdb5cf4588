"""All that is believed of a job on one part: epochs, what an epoch costs, and so what a run costs at each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log, log2

import numpy as np
from numpy.typing import NDArray

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.levels.job.epoch_cost import CostEvidence, cost_evidence, cost_posterior
from wattune.levels.job.epochs import EpochEvidence, epoch_evidence, epochs_posterior, in_order_of_ending
from wattune.levels.job.smooth_curve import SizePosterior
from wattune.response.ensemble import Floats

_CRASHES = 2
"""Crashes in a row that make a size suspect."""

_RUNS_AVOIDED = 5
"""Runs that must end well elsewhere before a suspect size is tried again, doubled with every crash."""


def unusable(job: Job, over: Sequence[JobRun], gpu: JobGpu) -> frozenset[int]:
    """Sizes that do not fit this part, and those that crashed again and again there not long ago."""
    too_large = min((run.batch_size for run in over if _out_of_memory(run, gpu)), default=None)
    out = {size for size in job.batch_sizes if too_large is not None and size >= too_large}
    for size in {run.batch_size for run in over if run.outcome is Outcome.CRASHED} & set(job.batch_sizes):
        streak, since = _crashes(over, size, gpu)
        if streak >= _CRASHES and since < _RUNS_AVOIDED * 2**streak:
            out.add(size)
    return frozenset(out)


def _out_of_memory(run: JobRun, gpu: JobGpu) -> bool:
    return run.outcome is Outcome.OUT_OF_MEMORY and run.gpu.key == gpu.key


def _crashes(over: Sequence[JobRun], size: int, gpu: JobGpu) -> tuple[int, int]:
    """How many runs of a size crashed in a row, up to the newest, and how many other runs ended well since."""
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
"""How likely a run misses the target at a size where none did: the further from sizes that reach it, the likelier."""

_PRIOR_RUNS = 3.0
"""How many runs that is worth: one unlucky run does not condemn a size."""

_MISS_COST = 1.0
"""What a missed run costs beside one that reaches the target: it is stopped about when it should have reached it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What is believed of a job on one part; arrays are by batch size, ascending."""

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
    """What runs that miss add to the cost, as a factor."""
    usable: Flags
    """Fits the part, does not crash there, and keeps the limit of time."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batch sizes."""
        return self.job.batch_sizes

    @property
    def expected_cost(self) -> Floats:
        """Of a run at each size."""
        return np.asarray(np.exp(self.log_cost.mean + 0.5 * self.log_cost.variance) * self.overhead)

    @property
    def proven(self) -> Flags:
        """Which usable sizes have reached the target."""
        reached = np.array([size in self.epochs.reached_count for size in self.sizes])
        return np.asarray(self.usable & reached)

    @property
    def best(self) -> int:
        """The place of the proven size of least expected cost; some size must be proven."""
        return int(np.argmin(np.where(self.proven, self.expected_cost, np.inf)))

    @property
    def default_cost(self) -> float:
        """What the owner would pay for a run without us."""
        place = self.sizes.index(self.job.default_batch_size)
        return float(np.exp(self.log_cost.mean[place]) * self.overhead[place] * self.costs.default_over_best)

    @property
    def beyond(self) -> Floats:
        """How many octaves each size is away from the nearest one that has reached the target."""
        x = np.log2(np.array(self.sizes, dtype=float))
        reached = np.log2(np.array(sorted(self.epochs.reached_count), dtype=float))
        return np.asarray(np.abs(x[:, None] - reached[None, :]).min(axis=1))

    def place(self, size: int) -> int:
        """Where a size stands in the arrays."""
        return self.sizes.index(size)


def knowledge(job: Job, memory: JobMemory, gpu: JobGpu) -> Knowledge:
    """What the history of a job teaches for its runs on a part."""
    over = in_order_of_ending(run for run in memory.runs if run.batch_size in job.batch_sizes)
    return _knowledge(_Asked(job, gpu, tuple(over), memory.profiles))


@dataclass(frozen=True, slots=True)
class _Asked:
    """All that knowledge follows from. A run is asked about after each of its epochs, while nothing else changes."""

    job: Job
    gpu: JobGpu
    over: tuple[JobRun, ...]
    profiles: tuple[Profile, ...]

    def __hash__(self) -> int:
        return hash((self.job.name, self.gpu.key, len(self.over), len(self.profiles)))


@lru_cache(maxsize=8)
def _knowledge(asked: _Asked) -> Knowledge:
    job, gpu, over = asked.job, asked.gpu, asked.over
    epochs = epoch_evidence(job, over)
    grid = np.log2(np.array(job.batch_sizes, dtype=float))
    default_x = log2(job.default_batch_size)
    log_epochs = epochs_posterior(grid, epochs.sites, default_x=default_x)
    needed = dict(zip(job.batch_sizes, np.exp(log_epochs.mean).tolist(), strict=True))
    costs = cost_evidence(job, asked.profiles, gpu, over=over, epochs=needed)
    log_epoch_cost = cost_posterior(grid, costs.sites, default_x=default_x, draw=costs.draw)
    objective = job.objective_on(gpu.max_power_w)
    degree = _degree(objective)
    out = unusable(job, over, gpu)
    usable = np.array([size not in out for size in job.batch_sizes])
    return Knowledge(
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
        overhead=_overhead(grid, job, epochs),
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
    """The usable sizes whose runs are expected to keep the limit of time, or the fastest where none does."""
    limit_s = objective.limit_s(costs.reference)
    known = [place for place, size in enumerate(sizes) if size in costs.epoch_s]
    if limit_s is None or not known or not usable.any():
        return usable
    # The time of a size that was not measured is taken to change from a measured one's as the cost does.
    x = np.log2(np.array(sizes, dtype=float))
    near = np.array([min(known, key=lambda place: abs(x[place] - at)) for at in x])
    epoch_s = np.array([costs.epoch_s[sizes[place]] for place in near])
    change = log_epoch_cost.mean - log_epoch_cost.mean[near]
    run_s = epoch_s * np.exp(log_epochs.mean + change)
    keeping = usable & (run_s <= limit_s)
    return keeping if keeping.any() else np.asarray(usable & (run_s <= run_s[usable].min()))


def _degree(objective: Objective) -> float:
    """By which power of the epochs the value of a run grows: 1 for energy and money, 2 for the energy-delay product."""
    one, two = objective.value(Measurement(1.0, 1.0)), objective.value(Measurement(2.0, 2.0))
    return log(two / one) / log(2.0) if one > 0 and two > 0 else 1.0


def _overhead(grid: Floats, job: Job, epochs: EpochEvidence) -> Floats:
    reached = np.log2(np.array(sorted(epochs.reached_count), dtype=float))
    apart = np.abs(grid[:, None] - reached[None, :]).min(axis=1) if len(reached) else np.zeros(len(grid))
    prior = np.minimum(_MISS + _MISS_PER_OCTAVE * apart, 0.5)
    hits = np.array([epochs.reached_count.get(size, 0) for size in job.batch_sizes])
    misses = np.array([epochs.missed_count.get(size, 0) for size in job.batch_sizes])
    share = (misses + _PRIOR_RUNS * prior) / (hits + misses + _PRIOR_RUNS)
    return np.asarray(1.0 + _MISS_COST * share / (1.0 - share))
