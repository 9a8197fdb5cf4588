"""Our choice of batch sizes: one model for all sizes, trials only where they pay and are safe, early stopping."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import exp, log2, sqrt

import numpy as np

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import SIGMAS_95
from wattune.levels.job.early_stopping import why_stop_known, why_stop_trial
from wattune.levels.job.epochs import in_order_of_ending
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.posterior import JobPosterior, job_posterior, unusable
from wattune.levels.job.trial_choice import trial

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
