"""Posterior of a job on one GPU model: epochs, cost of an epoch, and so the cost of a run at each batch size.

A run under way is predicted from it and from the learning curve so far, which shows when to stop the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.levels.job.epoch_cost import CostEvidence, cost_evidence, cost_posterior, paid_per_epoch
from wattune.levels.job.epochs import EpochEvidence, epoch_evidence, epochs_posterior, in_order_of_ending, nearest
from wattune.levels.job.learning_curve import speed
from wattune.levels.job.smooth_curve import SizePosterior
from wattune.response.statistics import Floats, normal_nodes

_CRASHES = 2
"""Crashes in a row that make a size suspect."""

_RUNS_AVOIDED = 5
"""Runs that must reach the target elsewhere before a suspect size is tried again, doubled with every crash."""


def unusable(job: Job, over: Sequence[JobRun], gpu: JobGpu) -> frozenset[int]:
    """Return the sizes that do not fit this GPU model, and those that crashed repeatedly there not long ago."""
    failed = (run.batch_size for run in over if run.outcome is Outcome.OUT_OF_MEMORY and run.gpu.key == gpu.key)
    too_large = min(failed, default=None)
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
        GPU model: the ratio of an estimate from other models to a measurement would mean nothing."""
        default = self.job.default_batch_size
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


_PATIENCE = 3.0
"""A run of a known size is hopeless at so many times the most epochs that the size has needed."""

_CHECK = 0.1
"""Share of a run of the best size between two decisions: the most that waiting for the next one costs."""

_MOST = 1.75
"""Most runs of the best size that a trial may cost, known before it starts: a more expensive one is of no use, however
near its end it seems."""

_HOPELESS = 2.0
"""Cost still to come if the run never reaches the target, in runs of the best size: some waste, then a new run."""

_STANDARD = [(float(z), float(w)) for z, w in zip(*normal_nodes(9), strict=True)]


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """State of a trial: epochs passed, expected epochs, and costs.

    Costs are in runs of the best size known, so that a run that would replace this one costs 1.
    """

    epochs: int
    max_epochs: int
    log_epochs: float
    sd: float
    miss: float
    """Prior probability that the run never reaches the target."""
    epoch_cost: float
    horizon: float
    """Number of later runs that a better size would serve."""

    @property
    def never(self) -> float:
        """Probability that the run never reaches the target, given that it has not so far."""
        beyond = 1.0 - ndtr((log(max(self.epochs, 0.5)) - self.log_epochs) / self.sd)
        capped = 1.0 - ndtr((log(self.max_epochs + 0.5) - self.log_epochs) / self.sd)
        never = self.miss + (1.0 - self.miss) * capped
        return float(never / max(self.miss + (1.0 - self.miss) * beyond, 1e-12))

    @property
    def pays(self) -> bool:
        """True where going on pays: gains for this run and later ones against the cost until the next decision."""
        spent = self.epochs * self.epoch_cost
        if spent > _MOST:
            return False
        chance = risk = 0.0
        for weight, cost in self._costs():
            to_come = cost - spent
            chance += weight * (max(1.0 - to_come, 0.0) + self.horizon * max(1.0 - cost, 0.0))
            risk += weight * min(max(to_come - 1.0, 0.0), _CHECK)
        return chance >= risk

    def _costs(self) -> list[tuple[float, float]]:
        """Return possible total costs of the run, each with its probability."""
        never = min(self.never, 1.0)
        costs = [(never, self.epochs * self.epoch_cost + _HOPELESS)]
        left = [(w, exp(self.log_epochs + self.sd * z)) for z, w in _STANDARD]
        left = [(w, epochs) for w, epochs in left if self.epochs < epochs <= self.max_epochs]
        # Where the run has passed nearly all of the distribution, one more epoch is expected.
        left = left or [(1.0, min(self.epochs + 1.0, float(self.max_epochs)))]
        whole = sum(w for w, _ in left)
        return costs + [((1.0 - never) * w / whole, epochs * self.epoch_cost) for w, epochs in left]


def combined(prior: tuple[float, float], curve: tuple[float, float]) -> tuple[float, float]:
    """Combine a prior and a learning curve, each a mean and a standard deviation.

    Where they differ by more than two deviations the prior gets less weight: it is of other sizes, the curve of this
    one.
    """
    distance = (prior[0] - curve[0]) ** 2 / (prior[1] ** 2 + curve[1] ** 2)
    prior_variance, curve_variance = prior[1] ** 2 * max(1.0, distance / 4.0), curve[1] ** 2
    weight = curve_variance / (prior_variance + curve_variance)
    return weight * prior[0] + (1.0 - weight) * curve[0], sqrt(weight * prior_variance)


def patience(longest: int, stopped_before: int) -> float:
    """Return the epochs after which a run of a known size is stopped; twice as many after each one that was."""
    return _PATIENCE * longest * 2.0**stopped_before


_OUTLIER_SD, _OUTLIER_EPOCHS = 0.1, 0.4
"""Now and then a run takes a few epochs more than its size does: no reason to stop it near its end. The deviation of
that, in logarithms and, where few epochs are needed, in epochs."""


_NEARLY = 2.0
"""A run that needs at most so many times the epochs that its size needed the last time goes on."""


def why_stop_known(job: Job, memory: JobMemory, run: JobRun) -> str | None:
    """Return why a run of the best size should end; nearly always None."""
    last, stopped = None, 0
    for other in reversed(memory.runs):
        if other.batch_size != run.batch_size or other.id == run.id:
            continue
        if other.outcome is Outcome.REACHED:
            last = other
            break
        stopped += other.outcome in (Outcome.STOPPED, Outcome.MISSED) and not other.exploring
    if last is None or run.epochs < patience(last.epochs, stopped):
        return None
    found = speed(job, run, last, octaves=0.0)
    if found is not None and exp(found.log_epochs) - run.epochs < _NEARLY * last.epochs:
        return None  # It is slow, but nearly there; a replacement might be as slow.
    return f"{run.epochs} epochs, where {run.batch_size} needed {last.epochs} the last time"


def why_stop_trial(job: Job, memory: JobMemory, run: JobRun) -> str | None:
    """Return why a trial should end; None as long as it may win, and where no better size is known."""
    known = _posterior_with_best(job, memory, run)
    if known is None:
        return None
    best = known.best
    prediction = _prediction(known, memory, run)
    if run.batch_size == known.sizes[best] or prediction.pays:
        return None
    epochs = float(np.exp(prediction.log_epochs))
    return f"about {epochs:.3g} epochs to the target: {known.sizes[best]} from the start is cheaper"


def _posterior_with_best(job: Job, memory: JobMemory, run: JobRun) -> JobPosterior | None:
    """Return the posterior of the job, if a size is known to work."""
    if run.batch_size not in job.batch_sizes or not any(other.outcome is Outcome.REACHED for other in memory.runs):
        return None
    known = job_posterior(job, memory, run.gpu)
    return known if known.proven.any() else None


def _prediction(known: JobPosterior, memory: JobMemory, run: JobRun) -> RunPrediction:
    place = known.place(run.batch_size)
    mean = float(known.log_epochs.mean[place])
    sd = sqrt(float(known.log_epochs.variance[place]) + known.epochs.sd**2)
    reference = nearest(known.epochs.reached, run.batch_size, known.epochs.interval, 0)
    octaves = 0.0 if reference is None else abs(log2(run.batch_size / reference.batch_size))
    found = None if reference is None else speed(known.job, run, reference, octaves=octaves)
    if found is not None:
        mean, sd = combined((mean, sd), (found.log_epochs, sqrt(found.sd**2 + known.epochs.sd**2)))
    return RunPrediction(
        epochs=run.epochs,
        max_epochs=known.job.max_epochs,
        log_epochs=mean,
        sd=sqrt(sd**2 + (_OUTLIER_SD + _OUTLIER_EPOCHS / exp(mean)) ** 2),
        miss=float(1.0 - 1.0 / known.overhead[place]),
        epoch_cost=_epoch_cost(known, run) / float(known.expected_cost[known.best]),
        horizon=horizon(memory),
    )


def _epoch_cost(known: JobPosterior, run: JobRun) -> float:
    paid = paid_per_epoch(run)
    if paid is None:
        return float(np.exp(known.log_epoch_cost.mean[known.place(run.batch_size)]))
    return known.job.objective_on(run.gpu.max_power_w).value(paid)
