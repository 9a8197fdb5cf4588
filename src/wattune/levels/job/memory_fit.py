"""Which batch sizes fit the memory of a GPU, as far as runs that ran out of memory show."""

from __future__ import annotations

from collections.abc import Iterable

from wattune.core.job import JobGpu, JobRun, Outcome


def least_too_large(runs: Iterable[JobRun], gpu: JobGpu) -> float | None:
    """Return the least batch size that does not fit, unless a later run as large reported an epoch; None if all may.

    What did not fit one GPU does not fit others with no more memory. Where the memory of either is not known, it says
    something about GPUs of the same model and number only. GPUs of a job share its batches.
    """
    least: float | None = None
    for run in runs:
        size = run.batch_size * gpu.count / run.gpu.count
        if run.outcome is Outcome.OUT_OF_MEMORY:
            if _has_no_more_memory(gpu, run.gpu):
                least = size if least is None else min(least, size)
        elif least is not None and run.epochs and size >= least and _has_no_more_memory(run.gpu, gpu):
            least = None
    return least


def _has_no_more_memory(gpu: JobGpu, other: JobGpu) -> bool:
    if gpu.memory_bytes is None or other.memory_bytes is None:
        return gpu.key == other.key
    return gpu.simulated == other.simulated and gpu.memory_bytes <= other.memory_bytes
