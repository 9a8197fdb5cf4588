"""Batch sizes that cannot be used on a part: too large for its memory, or crashing there."""

from __future__ import annotations

from collections.abc import Sequence

from wattune.core.job import Job, JobGpu, JobRun, Outcome

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
