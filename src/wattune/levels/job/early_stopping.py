"""Whether a run should go on, by what is known of its size and by its own learning curve."""

from __future__ import annotations

from math import exp, log2, sqrt

import numpy as np

from wattune.core.job import Job, JobMemory, JobRun, Outcome
from wattune.levels.job.epoch_cost_evidence import paid_per_epoch
from wattune.levels.job.epoch_evidence import nearest
from wattune.levels.job.learning_curve import pace
from wattune.levels.job.posterior import Knowledge, knowledge
from wattune.levels.job.stopping import Outlook, combined, patience
from wattune.levels.job.trial_choice import horizon

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
    seen = pace(job, run, last, octaves=0.0)
    if seen is not None and exp(seen.log_epochs) - run.epochs < _NEARLY * last.epochs:
        return None  # It is slow, but nearly there; and the run that replaced it might be as slow.
    return f"{run.epochs} epochs, where {run.batch_size} needed {last.epochs} the last time"


def why_stop_trial(job: Job, memory: JobMemory, run: JobRun) -> str | None:
    """Why a trial should end; None as long as it may win, and where nothing is known to be better."""
    known = _known(job, memory, run)
    if known is None:
        return None
    best = known.best
    outlook = _outlook(known, memory, run)
    if run.batch_size == known.sizes[best] or outlook.pays:
        return None
    epochs = float(np.exp(outlook.log_epochs))
    return f"about {epochs:.3g} epochs to the target: {known.sizes[best]} from the start is cheaper"


def _known(job: Job, memory: JobMemory, run: JobRun) -> Knowledge | None:
    """What is known of the job, where that includes a size that works."""
    if run.batch_size not in job.batch_sizes or not any(other.outcome is Outcome.REACHED for other in memory.runs):
        return None
    known = knowledge(job, memory, run.gpu)
    return known if known.proven.any() else None


def _outlook(known: Knowledge, memory: JobMemory, run: JobRun) -> Outlook:
    place = known.place(run.batch_size)
    mean = float(known.log_epochs.mean[place])
    sd = sqrt(float(known.log_epochs.variance[place]) + known.epochs.sd**2)
    beside = nearest(known.epochs.reached, run.batch_size, known.epochs.stretch, 0)
    octaves = 0.0 if beside is None else abs(log2(run.batch_size / beside.batch_size))
    seen = None if beside is None else pace(known.job, run, beside, octaves=octaves)
    if seen is not None:
        mean, sd = combined((mean, sd), (seen.log_epochs, sqrt(seen.sd**2 + known.epochs.sd**2)))
    return Outlook(
        epochs=run.epochs,
        max_epochs=known.job.max_epochs,
        log_epochs=mean,
        sd=sqrt(sd**2 + (_ODD_SD + _ODD_EPOCHS / exp(mean)) ** 2),
        miss=float(1.0 - 1.0 / known.burden[place]),
        epoch_cost=_epoch_cost(known, run) / float(known.expected_cost[known.best]),
        horizon=horizon(memory),
    )


def _epoch_cost(known: Knowledge, run: JobRun) -> float:
    paid = paid_per_epoch(run)
    if paid is None:
        return float(np.exp(known.log_epoch_cost.mean[known.place(run.batch_size)]))
    return known.job.objective_on(run.gpu.max_power_w).value(paid)
