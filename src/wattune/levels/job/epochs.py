"""Evidence and posterior of the epochs to the target, and when they changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import log, log2, sqrt
from statistics import fmean

import numpy as np
from scipy.special import ndtr

from wattune.core.job import Job, JobRun, Outcome
from wattune.levels.job.learning_curve import LearningSpeed, speed, speed_on_the_way
from wattune.levels.job.level_shift import shifts
from wattune.levels.job.smooth_curve import Site, SizePosterior, SizeResidual, posterior_of
from wattune.response.statistics import Floats

_EPOCHS_SD = 0.12
"""Scatter of the logarithm of epochs from one training to the next, until it was measured."""

_LEAST_SCATTER = 0.7
"""Epochs that two runs may always differ by: where a few are enough, one or two more are no sign of a change."""

_OUTLIER, _OUTLIER_SPREADS = 0.12, 2.0
"""Now and then a run takes half as many epochs again. Among few runs such an outlier cannot be recognised; but where
all runs are alike there are none."""

_FEW = 3
"""Up to so many runs of a size, their learning curves are used as well as their ends."""

_MISSED_BY = 0.3
"""A run that missed the target and reported no metric is assumed to have needed a third more epochs."""

_STALLS = 0.05
"""Probability that a size an octave from one that works never reaches the target, before its curve is known."""

_KEPT_INTERVALS = 2
"""Only the interval since the last change and the one before it are used."""


@dataclass(frozen=True, slots=True)
class EpochEvidence:
    """Evidence of the epochs to the target, and the runs behind it."""

    sites: tuple[Site, ...]
    sd: float
    """Scatter of one run's logarithm of epochs."""
    reached: tuple[JobRun, ...]
    """Runs that reached the target, oldest first."""
    interval: dict[str, int]
    """By the id of a run: 0 since the last change, 1 before it."""
    reached_count: dict[int, int]
    """By batch size, since the last change but one."""
    missed_count: dict[int, float]
    """The same for runs that missed the target; a trial that was stopped counts with the probability that it would
    have."""


def in_order_of_ending(runs: Iterable[JobRun]) -> list[JobRun]:
    """Return the runs that have ended, in the order in which they ended."""
    return sorted(
        (run for run in runs if run.ended is not None or run.outcome is not Outcome.RUNNING),
        key=lambda run: (run.order + 1 if run.ended is None else run.ended, run.order),
    )


def epoch_evidence(job: Job, over: Sequence[JobRun]) -> EpochEvidence:
    """Collect the evidence of epochs from the runs that have ended."""
    informative = _informative(over)
    values = [(run.batch_size, log(run.epochs), _LEAST_SCATTER / run.epochs) for run in informative]
    found = shifts(values, sd=_EPOCHS_SD)
    interval = {run.id: number for run, number in zip(informative, found.interval, strict=True)}
    _spread_over_others(over, interval)
    reached = tuple(run for run in informative if run.outcome is Outcome.REACHED and interval[run.id] < _KEPT_INTERVALS)
    recent = [run for run in over if interval.get(run.id, 0) < _KEPT_INTERVALS]
    sites = (
        *_reached_sites(reached, interval, found.sd),
        *_curve_sites(job, reached, interval, found.sd),
        *_unfinished_sites(job, recent, reached, interval),
    )
    return EpochEvidence(sites, found.sd, reached, interval, _counts(reached), _missed(job, recent, reached, interval))


def _informative(over: Sequence[JobRun]) -> list[JobRun]:
    """Return the runs that reached the target, and those that missed it although their size had reached it in fewer
    epochs."""
    longest: dict[int, int] = {}
    informative = []
    for run in over:
        if not run.epochs:
            continue
        if run.outcome is Outcome.REACHED:
            longest[run.batch_size] = max(run.epochs, longest.get(run.batch_size, 0))
            informative.append(run)
        elif run.outcome in (Outcome.MISSED, Outcome.STOPPED) and run.epochs > longest.get(run.batch_size, run.epochs):
            informative.append(run)
    return informative


def _spread_over_others(over: Sequence[JobRun], interval: dict[str, int]) -> None:
    """Put the other runs into the same interval as the run before them."""
    current = max(interval.values(), default=0)
    for run in over:
        current = interval.setdefault(run.id, current)


def _reached_sites(reached: tuple[JobRun, ...], interval: dict[str, int], sd: float) -> list[Site]:
    groups: dict[tuple[int, int], list[int]] = {}
    for run in reached:
        groups.setdefault((run.batch_size, interval[run.id]), []).append(run.epochs)
    return [
        Site(log2(size), _log_mean(epochs, sd), _variance(len(epochs), sd), group)
        for (size, group), epochs in groups.items()
    ]


def _log_mean(epochs: list[int], sd: float) -> float:
    """Return the logarithm of the mean, not the mean of logarithms: expensive runs count in full. Of few it is low by
    sd²/2n."""
    return log(fmean(epochs)) + 0.5 * sd**2 / len(epochs)


def _curve_sites(job: Job, reached: tuple[JobRun, ...], interval: dict[str, int], sd: float) -> list[Site]:
    """Compare learning curves of sizes with few runs with those of the size with most, in the newest interval."""
    now: dict[int, list[JobRun]] = {}
    for run in reached:
        if interval[run.id] == 0:
            now.setdefault(run.batch_size, []).append(run)
    if len(now) < 2:
        return []
    most = max(now, key=lambda size: len(now[size]))
    usual = fmean(log(run.epochs) for run in now[most])
    reference = min(now[most], key=lambda run: abs(log(run.epochs) - usual))
    sites = []
    for size, runs in now.items():
        if size == most or len(runs) > _FEW:
            continue
        octaves = abs(log2(size / most))
        found = [way for run in runs if (way := speed_on_the_way(job, run, reference, octaves=octaves)) is not None]
        if found:
            variance = fmean(way.sd for way in found) ** 2 + sd**2 / len(now[most])
            sites.append(Site(log2(size), fmean(way.log_epochs for way in found), variance))
    return sites


def _variance(runs: int, sd: float) -> float:
    """Return the variance of the logarithm of the mean of the epochs of so many runs."""
    outlier = min(_OUTLIER, _OUTLIER_SPREADS * sd)
    return sd**2 / runs + (outlier / runs) ** 2


def _unfinished_sites(
    job: Job, recent: list[JobRun], reached: tuple[JobRun, ...], interval: dict[str, int]
) -> list[Site]:
    """Use runs that did not reach the target, where no run of their size did in that interval."""
    done = {(run.batch_size, interval[run.id]) for run in reached}
    sites = []
    for run in recent:
        group = interval[run.id]
        if run.outcome not in (Outcome.MISSED, Outcome.STOPPED) or not run.epochs or (run.batch_size, group) in done:
            continue
        found = _compared(job, run, reached, interval)
        x, least = log2(run.batch_size), log(run.epochs)
        if found is not None and found.log_epochs > least:
            sites.append(Site(x, found.log_epochs, found.sd**2 + _EPOCHS_SD**2, group))
        elif found is not None:
            # It has passed the end that its curve predicts: what it took is certain, and only runs scatter.
            sites.append(Site(x, least, _EPOCHS_SD**2, group))
        elif run.outcome is Outcome.MISSED:
            sites.append(Site(x, least + _MISSED_BY, _MISSED_BY**2, group))
    return sites


def _compared(job: Job, run: JobRun, reached: tuple[JobRun, ...], interval: dict[str, int]) -> LearningSpeed | None:
    """Compare a run's learning curve with the nearest one that reached the target, if there is one."""
    reference = nearest(reached, run.batch_size, interval, interval[run.id])
    if reference is None:
        return None
    return speed(job, run, reference, octaves=abs(log2(run.batch_size / reference.batch_size)))


def _missed(job: Job, recent: list[JobRun], reached: tuple[JobRun, ...], interval: dict[str, int]) -> dict[int, float]:
    """Count the runs of each size that missed the target, and in part the trials that were stopped without progress."""
    counts: dict[int, float] = {}
    for run in recent:
        if run.outcome is Outcome.MISSED:
            counts[run.batch_size] = counts.get(run.batch_size, 0.0) + 1.0
        elif run.outcome is Outcome.STOPPED and run.exploring and run.epochs:
            found = _compared(job, run, reached, interval)
            share = 0.0 if found is None else _hopeless(found, run.epochs)
            counts[run.batch_size] = counts.get(run.batch_size, 0.0) + share
    return counts


def _hopeless(found: LearningSpeed, epochs: int) -> float:
    """Return the probability that a run whose curve was like this never reaches the target."""
    beyond = 1.0 - ndtr((log(epochs) - found.log_epochs) / sqrt(found.sd**2 + _EPOCHS_SD**2))
    return float(_STALLS / (_STALLS + (1.0 - _STALLS) * found.patience * beyond))


def nearest(reached: Iterable[JobRun], size: int, interval: dict[str, int], group: int) -> JobRun | None:
    """Return the newest run that reached the target at the nearest batch size, of the same interval if there is one."""
    runs = list(reached)
    same = [run for run in runs if interval[run.id] == group] or runs
    return min(same, key=lambda run: (abs(log(run.batch_size / size)), -run.order), default=None)


def _counts(runs: Iterable[JobRun]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for run in runs:
        counts[run.batch_size] = counts.get(run.batch_size, 0) + 1
    return counts


_CRITICAL = range(-2, 9)
"""log₂(B_c/b₀), b₀ the default: owners seldom train far above the critical size, and often far below."""

_SMALL = range(-10, 2)
"""log₂(B_s/b₀)"""

_RESIDUAL = SizeResidual(shared_sd=0.15, own_sd=0.3, octaves=1.0, single_sd=0.07, own_level_sd=1.0)
"""Recorded trainings (Zeus, NSDI'23, to all their targets) differ from the curve by an eighth over an octave or so,
which is where the marginal likelihood of five jobs is highest, and single sizes of the two that differ most by another
7 %. A change of the data moves the level by any factor near 1, and the ratios of neighbouring sizes by a fifth or
so."""


@lru_cache(maxsize=1)
def _pairs() -> Floats:
    """log₂ of B_c/b₀ and B_s/b₀, one hypothesis per row; the fall ends before the rise begins."""
    return np.array([(c, s) for c, s in product(_CRITICAL, _SMALL) if s <= c - 1], dtype=float)


def epochs_posterior(grid: Floats, sites: Sequence[Site], *, default_x: float) -> SizePosterior:
    """Return the posterior of the logarithm of the epochs to the target at each log₂ batch size of the grid."""
    at = np.array([site.x for site in sites])
    return posterior_of(
        grid,
        sites,
        curves=_curves(grid - default_x),
        site_curves=_curves(at - default_x),
        prior=np.zeros(len(_pairs())),
        residual=_RESIDUAL,
    )


def _curves(octaves: Floats) -> Floats:
    critical, small = _pairs().T
    above = np.exp2(octaves[None, :] - critical[:, None])
    below = np.exp2(small[:, None] - octaves[None, :])
    return np.asarray(np.log1p(above + below))
