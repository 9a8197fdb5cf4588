"""Our searcher of batch sizes: one law for all of them, trials only where they pay and are safe, runs judged early."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import log2

import numpy as np

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.levels.job.early_stopping import why_stop_known, why_stop_trial
from wattune.levels.job.epochs import in_order_of_ending
from wattune.levels.job.posterior import Knowledge, knowledge, unusable
from wattune.levels.job.trial_choice import trial

_OCTAVE = 0.75
"""A size an octave further from the default is tried before one that has missed the target once more."""


@dataclass(frozen=True, slots=True)
class WattuneJobPolicy:
    """Chooses batch sizes by what is believed of all of them together."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return "wattune"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """The batch size of the next run on this part."""
        if not any(run.outcome is Outcome.REACHED and run.batch_size in job.batch_sizes for run in memory.runs):
            return _first(job, memory, gpu)
        known = knowledge(job, memory, gpu)
        if not known.proven.any():
            return _first(job, memory, gpu)
        return trial(known, memory) or _best(known)

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """Why a run should end now, or None."""
        if run.exploring:
            return why_stop_trial(job, memory, run)
        return why_stop_known(job, memory, run)


def _first(job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
    """Before any run has reached the target: the default, and where that misses, its neighbours in turn."""
    over = in_order_of_ending(memory.runs)
    out = unusable(job, over, gpu)
    missed = Counter(run.batch_size for run in over if run.outcome in (Outcome.MISSED, Outcome.STOPPED))
    # Where nothing is usable, the smallest is the likeliest to fit.
    sizes = [size for size in job.batch_sizes if size not in out] or [job.batch_sizes[0]]
    size = min(sizes, key=lambda size: (missed[size] + _OCTAVE * abs(log2(size / job.default_batch_size)), size))
    if size == job.default_batch_size:
        return Proposal(size, exploring=False, why="the default, since no run has reached the target yet")
    return Proposal(size, exploring=True, why=f"no run has reached the target yet; {size} is the next to try")


def _best(known: Knowledge) -> Proposal:
    place = known.best
    size, epochs = known.sizes[place], float(np.exp(known.log_epochs.mean[place]))
    share = known.expected_cost[place] / known.default_cost
    why = f"{size} is the cheapest known: about {epochs:.3g} epochs, {share:.0%} of the default's cost"
    return Proposal(size, exploring=False, why=why)
