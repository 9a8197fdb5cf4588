"""Predict the epochs of a run from its learning curve, compared with a run that reached the target.

Between batch sizes the epochs at which a metric is reached scale by nearly one factor, so a fraction of a run shows how
long the whole will be; the closer the two batch sizes and the further the run, the better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, log, sqrt

from wattune.core.job import Job, JobRun

_SHAPE_SD = 0.45
"""Standard deviation of the factor at the beginning of a curve around that at its end, in logarithms, for one octave.
In recorded trainings of images, speech, text and recommendations it was 0.3 after a fifth of the run, 0.2 after two
fifths and 0.1 after two thirds, and grew with the square root of the octaves."""

_SHAPE_FADES = 1.4
"""Exponent of the remaining share with which that decreases, as in those three figures."""

_LEAST_OCTAVES = 0.2
"""Two runs of one size differ as much as two sizes at this distance."""

_EPOCH_SD = 0.3
"""Standard deviation that rounding to whole epochs adds."""

_STALLS_FADE = 3.0
"""Exponent with which long waits for a better metric get rare among runs that reach the target. In recorded trainings
compared with one of the same size or an octave from it, 10 % of the waits were twice as long as the same wait of the
other where that was most frequent (ImageNet), 5 % three times, 2 % four times and 1 % six times. Metrics may be noisy,
so the longest wait of the other counts, where it is longer."""

_ON_THE_WAY = 2 / 3


@dataclass(frozen=True, slots=True)
class LearningSpeed:
    """Expected logarithm of the epochs of a run, with its standard deviation."""

    log_epochs: float
    sd: float
    patience: float = 1.0
    """Probability that a run that reaches the target waits for its next better metric as long as this one has."""


def best_so_far(job: Job, metrics: Sequence[float | None]) -> list[float]:
    """Return the best metric by the end of each epoch, negated where lower is better; -inf before the first."""
    best, found = -inf, []
    for metric in metrics:
        if metric is not None and isfinite(metric):
            best = max(best, metric if job.higher_is_better else -metric)
        found.append(best)
    return found


def speed(job: Job, run: JobRun, reference: JobRun, *, octaves: float) -> LearningSpeed | None:
    """Compare a run's curve so far with a run that reached the target; None where they cannot be compared."""
    mine, theirs = best_so_far(job, run.metrics), best_so_far(job, reference.metrics)
    if not mine or not theirs or theirs[0] == -inf == theirs[-1]:
        return None
    epochs, whole = len(mine), len(theirs)
    metric = mine[-1]
    ahead = _first(theirs, metric, beyond=True)
    # This run has not yet passed what the reference had by its epoch `ahead`, so it is slower by at least this factor.
    # The target itself is never passed yet, so it does not count.
    slower_than = epochs / ahead if ahead is not None and ahead < whole else 0.0
    factor, passed, patience = slower_than, (ahead or whole) - 1.0, 1.0
    if metric > -inf:
        since, then = _first(mine, metric), _crossing(theirs, metric)
        if since is not None and then is not None:
            factor, passed = max(factor, since / then), _comparable(theirs, metric)
            # The last improvement is the end of the run, which the number of epochs is about.
            if ahead is not None and ahead < whole:
                patience = _patience(epochs - since, since / then * max(ahead - then, _longest_wait(theirs)))
    if factor <= 0.0:
        return None
    shape, rounding = _errors(epochs, passed, whole, octaves)
    return LearningSpeed(log(factor * whole), sqrt(shape**2 + rounding**2), patience)


def speed_on_the_way(job: Job, run: JobRun, reference: JobRun, *, octaves: float) -> LearningSpeed | None:
    """Compare a finished run with a reference before their ends, where chance matters less.

    The two curves are compared at the metric that the reference had after two thirds of its epochs.
    """
    mine, theirs = best_so_far(job, run.metrics), best_so_far(job, reference.metrics)
    if not mine or not theirs:
        return None
    level = theirs[ceil(_ON_THE_WAY * len(theirs)) - 1]
    since, then = _first(mine, level), _first(theirs, level)
    if level == -inf or level >= theirs[-1] or since is None or then is None:
        return None
    shape, rounding = _errors(since, then, len(theirs), octaves)
    return LearningSpeed(log(since / then * len(theirs)), sqrt(shape**2 + rounding**2))


def _longest_wait(curve: Sequence[float]) -> int:
    """Return the most epochs that a curve went without a better metric, except before its last one."""
    better = [epoch for epoch, metric in enumerate(curve) if metric > (curve[epoch - 1] if epoch else -inf)]
    return max((later - earlier for earlier, later in pairwise([-1, *better[:-1]])), default=0)


def _patience(waited: float, expected: float) -> float:
    """Return the probability of so long a wait, where a run that reached the target suggests another one."""
    return float(max(waited / max(expected, 1.0), 1.0) ** -_STALLS_FADE)


def _errors(epochs: float, passed: float, whole: int, octaves: float) -> tuple[float, float]:
    """Return the standard deviations of the logarithm of a factor due to the shape of curves and to whole epochs."""
    share = min(passed / whole, 1.0)
    shape = _SHAPE_SD * sqrt(max(octaves, _LEAST_OCTAVES)) * (1.0 - share) ** _SHAPE_FADES
    return shape, _EPOCH_SD * sqrt(1.0 / epochs**2 + 1.0 / max(passed, 1.0) ** 2)


def _crossing(curve: Sequence[float], metric: float) -> float | None:
    """Return when a curve reached a metric, in epochs, interpolated."""
    epoch = _first(curve, metric)
    if epoch is None or epoch == 1 or curve[epoch - 2] == -inf:
        return None if epoch is None else float(epoch)
    before, after = curve[epoch - 2], curve[epoch - 1]
    return epoch - 1 + (metric - before) / (after - before)


def _comparable(curve: Sequence[float], metric: float) -> float:
    """Return the epochs of a curve that a run which has this metric can be compared with.

    Where the curve rested and then jumped past the metric, as when the learning rate falls, that is up to where its
    rest began: the share of the jump that the run has behind it shows nothing of when its own jump ends.
    """
    epoch = _first(curve, metric)
    if epoch is None or epoch == 1 or curve[epoch - 1] == metric:
        return float(epoch or len(curve))
    rest = _first(curve, curve[epoch - 2])
    then = _crossing(curve, metric)
    if rest is None or then is None:
        return float(epoch)
    return then if rest == epoch - 1 else float(rest)


def _first(curve: Sequence[float], metric: float, *, beyond: bool = False) -> int | None:
    """Return the first epoch, from 1, whose metric is at least that good, or better where `beyond`."""
    for epoch, value in enumerate(curve, start=1):
        if value > metric or (value == metric and not beyond):
            return epoch
    return None
