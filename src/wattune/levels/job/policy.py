"""Our choice of batch sizes: one model for all sizes, trials only where they pay and are safe, early stopping."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import exp, log, log2, sqrt

import numpy as np
from scipy.special import ndtr

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import SIGMAS_95
from wattune.levels.job.epoch_cost import paid_per_epoch
from wattune.levels.job.epochs import in_order_of_ending, nearest
from wattune.levels.job.learning_curve import speed
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.posterior import JobPosterior, job_posterior, unusable
from wattune.levels.job.trial_choice import horizon, trial
from wattune.response.statistics import normal_nodes

_PATIENCE = 3.0
"""A run of a known size is hopeless at so many times the most epochs that the size has needed."""

_CHECK = 0.1
"""Share of a run of the best size between two decisions: the most that waiting for the next one costs."""

_MOST = 2.0
"""Most runs of the best size that a trial may cost: a more expensive one is of no use, however near its end it
seems."""

_HOPELESS = 2.0
"""What is still to come if the run never reaches the target, in runs of the best size: some waste, then a new run."""

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
        """Whether it pays to go on: gains for this run and later ones against the cost until the next decision."""
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


_OCTAVE = 0.75
"""A size one octave further from the default is tried before one that has missed the target once more."""


@dataclass(frozen=True, slots=True)
class WattuneJobPolicy:
    """Chooses batch sizes by the posterior of all of them together."""

    @property
    def name(self) -> str:
        return "wattune"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        if not any(run.outcome is Outcome.REACHED and run.batch_size in job.batch_sizes for run in memory.runs):
            return _first(job, memory, gpu)
        posterior = job_posterior(job, memory, gpu)
        if not posterior.proven.any():
            return _first(job, memory, gpu)
        return trial(posterior, memory) or _best(posterior)

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        if run.exploring:
            return why_stop_trial(job, memory, run)
        return why_stop_known(job, memory, run)

    def predict_epochs(self, job: Job, memory: JobMemory, gpu: JobGpu) -> tuple[EpochsBand, ...]:
        if not any(run.outcome is Outcome.REACHED for run in memory.runs):
            return ()
        posterior = job_posterior(job, memory, gpu)
        log_epochs = posterior.log_epochs
        bands = []
        for size, mean, variance in zip(posterior.sizes, log_epochs.mean, log_epochs.variance, strict=True):
            # The scatter of single runs counts too: the band is where the next run will lie.
            spread = SIGMAS_95 * sqrt(float(variance) + posterior.epochs.sd**2)
            bands.append(EpochsBand(size, exp(mean), exp(mean - spread), exp(mean + spread)))
        return tuple(bands)


def _first(job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
    """Choose before any run has reached the target: the default, and where that misses, its neighbours in turn."""
    over = in_order_of_ending(memory.runs)
    out = unusable(job, over, gpu)
    missed = Counter(run.batch_size for run in over if run.outcome in (Outcome.MISSED, Outcome.STOPPED))
    # Where no size is usable, the smallest is the likeliest to fit.
    sizes = [size for size in job.batch_sizes if size not in out] or [job.batch_sizes[0]]
    size = min(sizes, key=lambda size: (missed[size] + _OCTAVE * abs(log2(size / job.default_batch_size)), size))
    if size == job.default_batch_size:
        return Proposal(size, exploring=False, why="the default, since no run has reached the target yet")
    return Proposal(size, exploring=True, why=f"no run has reached the target yet; {size} is the next to try")


def _best(posterior: JobPosterior) -> Proposal:
    place = posterior.best
    size, epochs = posterior.sizes[place], float(np.exp(posterior.log_epochs.mean[place]))
    share = posterior.expected_cost[place] / posterior.default_cost
    why = f"{size} is the cheapest known: about {epochs:.3g} epochs, {share:.0%} of the default's cost"
    return Proposal(size, exploring=False, why=why)
