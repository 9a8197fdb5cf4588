"""Whether a run should go on, by what is known of its size and by its own learning curve."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2, sqrt

import numpy as np
from scipy.special import ndtr

from wattune.core.job import Job, JobMemory, JobRun, Outcome
from wattune.levels.job.epoch_cost import paid_per_epoch
from wattune.levels.job.epochs import nearest
from wattune.levels.job.learning_curve import speed
from wattune.levels.job.posterior import Knowledge, knowledge
from wattune.levels.job.trial_choice import horizon
from wattune.response.ensemble import normal_nodes

_PATIENCE = 3.0
"""A run of a known size is hopeless at so many times the most epochs that the size has needed."""

_LOOK = 0.1
"""Share of a run of the best size after which it is looked at anew: what the chance to find out costs at most."""

_MOST = 2.0
"""Runs of the best size that a trial may cost: one that is dearer is of no use, however near its end it seems."""

_HOPELESS = 2.0
"""What is still to come if the run never reaches the target, in runs of the best size: some more waste, then that."""

_STANDARD = [(float(z), float(w)) for z, w in zip(*normal_nodes(9), strict=True)]


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """How a trial stands: epochs passed, what is believed of the epochs it needs, and costs.

    Costs are in runs of the best size known, so that a run which would replace this one costs 1.
    """

    epochs: int
    max_epochs: int
    log_epochs: float
    sd: float
    miss: float
    """How likely it was, before it began, that the run would never reach the target."""
    epoch_cost: float
    horizon: float
    """How many later runs a better size would serve."""

    @property
    def never(self) -> float:
        """How likely the run never reaches the target, now that it has not so far."""
        beyond = 1.0 - ndtr((log(max(self.epochs, 0.5)) - self.log_epochs) / self.sd)
        capped = 1.0 - ndtr((log(self.max_epochs + 0.5) - self.log_epochs) / self.sd)
        never = self.miss + (1.0 - self.miss) * capped
        return float(never / max(self.miss + (1.0 - self.miss) * beyond, 1e-12))

    @property
    def pays(self) -> bool:
        """Whether it pays to go on: chances for this run and later ones against the cost of another look."""
        spent = self.epochs * self.epoch_cost
        if spent > _MOST:
            return False
        chance = risk = 0.0
        for weight, cost in self._costs():
            to_come = cost - spent
            chance += weight * (max(1.0 - to_come, 0.0) + self.horizon * max(1.0 - cost, 0.0))
            risk += weight * min(max(to_come - 1.0, 0.0), _LOOK)
        return chance >= risk

    def _costs(self) -> list[tuple[float, float]]:
        """What the run may cost in all, each with its likelihood."""
        never = min(self.never, 1.0)
        costs = [(never, self.epochs * self.epoch_cost + _HOPELESS)]
        left = [(w, exp(self.log_epochs + self.sd * z)) for z, w in _STANDARD]
        left = [(w, epochs) for w, epochs in left if self.epochs < epochs <= self.max_epochs]
        # Where nearly all of the belief is behind the run, what is left is little more than one epoch ahead.
        left = left or [(1.0, min(self.epochs + 1.0, float(self.max_epochs)))]
        whole = sum(w for w, _ in left)
        return costs + [((1.0 - never) * w / whole, epochs * self.epoch_cost) for w, epochs in left]


def combined(law: tuple[float, float], curve: tuple[float, float]) -> tuple[float, float]:
    """Mean and standard deviation of what a law and a learning curve (each mean and deviation) say together.

    Where they disagree by more than two deviations the law gives way: it is of other sizes, the curve of this one.
    """
    apart = (law[0] - curve[0]) ** 2 / (law[1] ** 2 + curve[1] ** 2)
    law_variance, curve_variance = law[1] ** 2 * max(1.0, apart / 4.0), curve[1] ** 2
    weight = curve_variance / (law_variance + curve_variance)
    return weight * law[0] + (1.0 - weight) * curve[0], sqrt(weight * law_variance)


def patience(longest: int, stopped_before: int) -> float:
    """The epochs after which a run of a known size is given up; twice as many after each one that was."""
    return _PATIENCE * longest * 2.0**stopped_before


_ODD_SD, _ODD_EPOCHS = 0.1, 0.4
"""Now and then a run takes a few epochs more than its size does: no reason to stop it on its last steps. The deviation
of that, in logarithms and, where a few epochs are all, in epochs."""


_NEARLY = 2.0
"""A run that needs no more than so many times what its size needed the last time is let go on."""


def why_stop_known(job: Job, memory: JobMemory, run: JobRun) -> str | None:
    """Why a run of a size that is thought best should end; None nearly always."""
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
    seen = speed(job, run, last, octaves=0.0)
    if seen is not None and exp(seen.log_epochs) - run.epochs < _NEARLY * last.epochs:
        return None  # It is slow, but nearly there; and the run that replaced it might be as slow.
    return f"{run.epochs} epochs, where {run.batch_size} needed {last.epochs} the last time"


def why_stop_trial(job: Job, memory: JobMemory, run: JobRun) -> str | None:
    """Why a trial should end; None as long as it may win, and where nothing is known to be better."""
    known = _known(job, memory, run)
    if known is None:
        return None
    best = known.best
    prediction = _prediction(known, memory, run)
    if run.batch_size == known.sizes[best] or prediction.pays:
        return None
    epochs = float(np.exp(prediction.log_epochs))
    return f"about {epochs:.3g} epochs to the target: {known.sizes[best]} from the start is cheaper"


def _known(job: Job, memory: JobMemory, run: JobRun) -> Knowledge | None:
    """What is known of the job, where that includes a size that works."""
    if run.batch_size not in job.batch_sizes or not any(other.outcome is Outcome.REACHED for other in memory.runs):
        return None
    known = knowledge(job, memory, run.gpu)
    return known if known.proven.any() else None


def _prediction(known: Knowledge, memory: JobMemory, run: JobRun) -> RunPrediction:
    place = known.place(run.batch_size)
    mean = float(known.log_epochs.mean[place])
    sd = sqrt(float(known.log_epochs.variance[place]) + known.epochs.sd**2)
    beside = nearest(known.epochs.reached, run.batch_size, known.epochs.interval, 0)
    octaves = 0.0 if beside is None else abs(log2(run.batch_size / beside.batch_size))
    seen = None if beside is None else speed(known.job, run, beside, octaves=octaves)
    if seen is not None:
        mean, sd = combined((mean, sd), (seen.log_epochs, sqrt(seen.sd**2 + known.epochs.sd**2)))
    return RunPrediction(
        epochs=run.epochs,
        max_epochs=known.job.max_epochs,
        log_epochs=mean,
        sd=sqrt(sd**2 + (_ODD_SD + _ODD_EPOCHS / exp(mean)) ** 2),
        miss=float(1.0 - 1.0 / known.overhead[place]),
        epoch_cost=_epoch_cost(known, run) / float(known.expected_cost[known.best]),
        horizon=horizon(memory),
    )


def _epoch_cost(known: Knowledge, run: JobRun) -> float:
    paid = paid_per_epoch(run)
    if paid is None:
        return float(np.exp(known.log_epoch_cost.mean[known.place(run.batch_size)]))
    return known.job.objective_on(run.gpu.max_power_w).value(paid)
