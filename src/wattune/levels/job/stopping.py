"""When a run is stopped: a trial that no longer pays or that the job cannot afford, and a hopeless run of a known size.

A run under way is predicted from the posterior of the job and from its learning curve so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2, sqrt

import numpy as np
from scipy.special import ndtr

from wattune.core.job import Job, JobMemory, JobRun, Outcome
from wattune.levels.job.epoch_cost import paid_per_epoch
from wattune.levels.job.epochs import nearest
from wattune.levels.job.learning_curve import speed
from wattune.levels.job.posterior import JobPosterior, horizon, job_posterior
from wattune.levels.job.safety import affordable_loss
from wattune.response.statistics import normal_nodes

_PATIENCE = 3.0
"""A run of a known size is hopeless at so many times the most epochs that the size has needed."""

_CHECK = 0.1
"""Share of a run of the best size between two decisions: the most that waiting for the next one costs."""

_MOST = 1.75
"""Most runs of the best size that a trial may cost, known before it starts: a more expensive one is of no use, however
near its end it seems."""

_SURE = 0.5
"""Probability of an affordable end with which a trial goes on beyond what the job can lose."""

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
    patience: float = 1.0
    """Probability that a run that reaches the target shows no progress for as long as this one."""

    @property
    def never(self) -> float:
        """Probability that the run never reaches the target, given that it has not so far."""
        beyond = 1.0 - ndtr((log(max(self.epochs, 0.5)) - self.log_epochs) / self.sd)
        capped = 1.0 - ndtr((log(self.max_epochs + 0.5) - self.log_epochs) / self.sd)
        works = (1.0 - self.miss) * self.patience
        return float((self.miss + works * capped) / max(self.miss + works * beyond, 1e-12))

    @property
    def pays(self) -> bool:
        """True where going on pays: gains for this run and later ones against the cost until the next decision."""
        spent, next_epoch = self.epochs * self.epoch_cost, self.epoch_cost
        if spent + next_epoch > max(_MOST, next_epoch):
            return False
        if spent + next_epoch >= 1.0:
            return self.is_nearly_over
        chance = risk = 0.0
        for weight, cost in self._costs():
            to_come = cost - spent
            chance += weight * (max(1.0 - to_come, 0.0) + self.horizon * max(1.0 - cost, 0.0))
            risk += weight * min(max(to_come - 1.0, 0.0), max(_CHECK, next_epoch))
        return chance >= risk

    @property
    def is_nearly_over(self) -> bool:
        """True where some number of further epochs is expected to cost less than a run that replaces this one.

        A trial that costs as much as a run of the best size shows nothing better; only its replacement can be saved.
        """
        unfinished = self._beyond(self.epochs)
        expected, left = 0.0, 1.0
        for further in range(1, min(int(1.0 / self.epoch_cost), self.max_epochs - self.epochs) + 1):
            after = (1.0 - self.never) * self._beyond(self.epochs + further) / max(unfinished, 1e-12) + self.never
            expected += (left - after) * further * self.epoch_cost
            left = after
            if expected + left * (further * self.epoch_cost + 1.0) < 1.0:
                return True
        return False

    def _beyond(self, epochs: int) -> float:
        """Return the probability that a run that reaches the target needs more than so many epochs."""
        return float(1.0 - ndtr((log(epochs + 0.5) - self.log_epochs) / self.sd))

    def is_affordable(self, most: float, *, sure: float) -> bool:
        """Return False where the next epoch would cross what the job can lose, `most`.

        A run may cross it if, with the probability `sure`, it ends by when it and its replacement would have cost as
        much.
        """
        spent = self.epochs * self.epoch_cost
        if spent + self.epoch_cost <= most:
            return True
        if sure >= 1.0:
            return False
        last = max(int((1.0 + most) / self.epoch_cost), self.epochs) + 0.5
        now, then = (float(ndtr((log(max(at, 0.5)) - self.log_epochs) / self.sd)) for at in (self.epochs, last))
        # Beyond that point all is lost or nearly won, and only the gain counts.
        return spent > most or (1.0 - self.never) * (then - now) / max(1.0 - now, 1e-12) >= sure

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


def why_stop_trial(job: Job, memory: JobMemory, run: JobRun, *, safe: bool) -> str | None:
    """Return why a trial should end; None as long as it may win, and where no better size is known.

    Where `safe`, it ends before it loses more than the job can afford. Otherwise the first trial is not bound by that,
    and a later one may cross it where it probably ends in time.
    """
    known = _posterior_with_best(job, memory, run)
    if known is None:
        return None
    best = known.best
    prediction = _prediction(known, memory, run)
    if run.batch_size == known.sizes[best]:
        return None
    if not prediction.pays:
        epochs = float(np.exp(prediction.log_epochs))
        return f"about {epochs:.3g} epochs to the target: {known.sizes[best]} from the start is cheaper"
    others = [other for other in memory.runs if other.id != run.id]
    most = affordable_loss(known, others, safe=safe, recurrence=run.recurrence) / float(known.expected_cost[best])
    if not safe and not any(other.exploring for other in others):
        return None
    if prediction.is_affordable(most, sure=1.0 if safe else _SURE):
        return None
    return f"the trial may lose {max(most, 0.0):.0%} of a run at {known.sizes[best]}, and its end is not in sight"


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
        patience=1.0 if found is None else found.patience,
    )


def _epoch_cost(known: JobPosterior, run: JobRun) -> float:
    paid = paid_per_epoch(run)
    if paid is None:
        return float(np.exp(known.log_epoch_cost.mean[known.place(run.batch_size)]))
    return known.job.objective_on(run.gpu.max_power_w).value(paid)
