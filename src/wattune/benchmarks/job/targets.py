"""Targets and default batch sizes of recorded workloads.

The trace of the Zeus paper names neither. For its own datasets those of experiments on it are used; for any other
dataset they are derived, as `_derived` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from statistics import median

from wattune.benchmarks.datasets.zeus_tables import RecordedTraining
from wattune.core.job import Job

PUBLISHED = {
    "cifar100": (0.60, True, 100, 1024),
    "imagenet": (0.65, True, 100, 256),
    "squad": (84.0, True, 6, 32),
    "librispeech": (40.0, False, 16, 192),
    "movielens-1m": (0.41, True, 100, 1024),
    "sentiment140": (0.84, True, 10, 128),
}
"""Target, whether more is better, most epochs and default batch size, by dataset, as experiments on the Zeus trace
have them."""

_SHARE_REACHING = 0.6
"""Share of recorded trainings that reach a derived target: most of them, so that there is something to choose from."""

_PATIENCE = 3
"""Most epochs of a derived job, as a multiple of what the default batch size needs."""


def job_of(name: str, sizes: Sequence[int], recorded: Sequence[RecordedTraining]) -> tuple[Job, tuple[str, ...]]:
    """The job of a workload, and remarks on what was derived."""
    published = PUBLISHED.get(name.split()[0])
    if published is None:
        return _derived(name, sizes, recorded)
    target, higher, max_epochs, default = published
    notes: tuple[str, ...] = ()
    if default not in sizes:
        nearest = min(sizes, key=lambda size: abs(log(size / default)))
        notes = (f"{name}: the paper's default batch size {default} was not measured here; {nearest} instead",)
        default = nearest
    job = Job(
        name=name,
        batch_sizes=tuple(sizes),
        default_batch_size=default,
        target=target,
        higher_is_better=higher,
        max_epochs=max_epochs,
    )
    return job, notes


def _derived(name: str, sizes: Sequence[int], recorded: Sequence[RecordedTraining]) -> tuple[Job, tuple[str, ...]]:
    """A job for a dataset that the paper has no target for.

    More is better if in most recorded trainings higher metrics come later. The target is the hardest metric that most
    trainings reach; the default is the middle one of the batch sizes at which most trainings reach it; and
    three times the epochs that the default needs are allowed.
    """
    usable = [training for training in recorded if training.batch_size in sizes]
    higher = _higher_is_better(usable)
    target = _hardest(usable, higher_is_better=higher)
    reached: dict[int, list[int | None]] = {}
    for training in usable:
        reached.setdefault(training.batch_size, []).append(dict(training.epochs).get(target))
    good = [size for size in sizes if _most([epoch is not None for epoch in reached[size]])] or [
        size for size in sizes if any(epoch is not None for epoch in reached[size])
    ]
    default = good[len(good) // 2]
    needed = median(epoch for epoch in reached[default] if epoch is not None)
    job = Job(
        name=name,
        batch_sizes=tuple(sizes),
        default_batch_size=default,
        target=target,
        higher_is_better=higher,
        max_epochs=ceil(_PATIENCE * needed),
    )
    return job, (
        f"{name}: target {target:g}, default batch size {default} and at most {job.max_epochs} epochs are derived",
    )


def _higher_is_better(recorded: Sequence[RecordedTraining]) -> bool:
    votes = 0
    for training in recorded:
        # A metric that was never reached counts as reached last.
        epochs = [float("inf") if epoch is None else epoch for _, epoch in training.epochs]
        votes += (epochs[-1] > epochs[0]) - (epochs[-1] < epochs[0])
    return votes >= 0


def _hardest(recorded: Sequence[RecordedTraining], *, higher_is_better: bool) -> float:
    metrics = sorted({metric for training in recorded for metric, _ in training.epochs}, reverse=higher_is_better)
    shares = {
        metric: sum(dict(training.epochs).get(metric) is not None for training in recorded) / len(recorded)
        for metric in metrics
    }
    return next(
        (metric for metric in metrics if shares[metric] >= _SHARE_REACHING), max(shares, key=lambda m: shares[m])
    )


def _most(flags: Sequence[bool]) -> bool:
    return 2 * sum(flags) > len(flags)
