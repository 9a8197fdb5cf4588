"""Our choice of batch sizes: one model for all sizes, trials only where they pay and are safe, early stopping.

A size is tried if its expected gain exceeds its cost and its risk fits the budget.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import exp, log2, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import SIGMAS_95
from wattune.levels.job.epochs import in_order_of_ending
from wattune.levels.job.policies import EpochsBand
from wattune.levels.job.posterior import (
    Flags,
    JobPosterior,
    horizon,
    job_posterior,
    unusable,
)
from wattune.levels.job.safety import affordable_loss
from wattune.levels.job.smooth_curve import SizePosterior
from wattune.levels.job.stopping import why_stop_known, why_stop_trial
from wattune.response.statistics import Floats, normal_nodes

_NODES, _WEIGHTS = normal_nodes(11)

_REPEATS = np.array([1.0, 4.0, 16.0])
"""Numbers of runs at a size that are considered together."""

_JUDGED_AFTER, _JUDGED_LATE = 0.3, 0.5
"""Share of a run after which a bad trial is recognised, usually and at worst; later by a run for every octave from
sizes that work, since learning may go well for long before it stalls."""

_EDGE = 1.0
"""Extra cost of an untried size per octave from sizes that work: learning may fail on either side, abruptly."""

_ONE_IN_TEN = 1.2816
"""Standard deviations that one normal draw in ten exceeds."""


def gains(posterior: SizePosterior, sd: float, *, overhead: Floats, among: NDArray[np.bool_]) -> Floats:
    """Return what each run at each size is expected to save every later run.

    `overhead` multiplies the cost of each size for runs that miss; `among` are the sizes that may be chosen later. One
    run may not be enough where several would decide (Frazier and Powell 2010), so the gain of several is shared among
    them.
    """
    level = posterior.mean + np.log(overhead)
    now = float(np.exp(level + 0.5 * posterior.variance)[among].min())
    # Rows are sizes x, columns tried sizes b; layers are the number of runs of b, then the possible results.
    learned = posterior.covariance[:, :, None] / np.sqrt(posterior.variance[:, None] + sd**2 / _REPEATS)[None, :, :]
    left = np.maximum(posterior.variance[:, None, None] - learned**2, 0.0)
    later = (level[:, None, None] + 0.5 * left)[among, :, :, None] + learned[among, :, :, None] * _NODES
    cheapest = np.exp(later.min(axis=0)) @ _WEIGHTS
    return np.asarray((np.maximum(now - cheapest, 0.0) / _REPEATS).max(axis=1))


@dataclass(frozen=True, slots=True)
class Stakes:
    """Possible cost of a trial of each size over a run at the best one, without the scatter of single runs."""

    excess: Floats
    """Expected."""
    harm: Floats
    """Expected, without the cases in which the trial is cheaper."""
    bad: Floats
    """The loss if it goes badly, as one in ten does, or if the size does not work."""


def stakes(posterior: SizePosterior, *, best_cost: float, beyond: Floats, first_epoch: Floats) -> Stakes:
    """Return what is at stake in a trial of each size.

    `first_epoch` is the share of a run before which none is stopped, `beyond` the octaves from sizes that work.
    """
    sd = np.sqrt(posterior.variance)
    costs = np.exp(posterior.mean[:, None] + sd[:, None] * _NODES)
    judged = np.maximum(_JUDGED_AFTER, first_epoch)
    more = np.minimum(costs - best_cost, judged[:, None] * costs)
    likely = np.exp(posterior.mean)
    costly = likely * np.maximum(np.exp(_ONE_IN_TEN * sd), 1.0 + _EDGE * beyond)
    late = np.maximum(_JUDGED_LATE + beyond, first_epoch) * likely
    return Stakes(
        more @ _WEIGHTS,
        np.maximum(more, 0.0) @ _WEIGHTS,
        np.maximum(np.minimum(costly - best_cost, late), 0.0),
    )


_CAUTION = 0.25
"""Share of the expected harm of a trial that is added to its expected excess."""

_LEAST_PREFERENCE = 0.1
"""Least factor on the worth of a trial that may use all of the budget."""

_NEAR = 0.6
"""Most octaves of a first trial."""

_ONE_VALLEY = 0.83
"""Probability that costs have one valley over batch size: of recorded jobs one in six has a second one."""

_SAME = 0.02
"""Sizes whose costs (in logarithms) differ by less than this are one floor of a valley."""


def trial(known: JobPosterior, memory: JobMemory, *, safe: bool) -> Proposal | None:
    """Return the size to try, or None where no trial pays or none is affordable.

    Where `safe`, the job must be able to lose a whole run of it.
    """
    if not known.costs.epoch_s or _just_failed(known):
        return None
    best = known.best
    cost = known.expected_cost
    untouched = known.usable & ~_out_on_trial(known, memory)
    worth = horizon(memory) * gains(known.log_cost, known.epochs.sd, overhead=known.overhead, among=known.usable)
    worth *= _on_the_way_down(known)
    left = affordable_loss(known, memory.runs, safe=safe)
    first_epoch = 1.0 / np.maximum(np.exp(known.log_epochs.mean), 1.0)
    at_stake = stakes(
        known.log_cost, best_cost=float(cost[best]), beyond=known.beyond, first_epoch=np.minimum(first_epoch, 1.0)
    )
    excess = at_stake.excess + np.log(known.overhead) * cost[best]
    if safe:
        affordable = np.exp(known.log_cost.mean) <= left
    else:
        affordable = _affordable(known, memory, at_stake, left=left, excess=excess)
    # The more of the budget a trial may use, the less it is preferred: other trials may be needed later.
    used = np.maximum(excess + _CAUTION * at_stake.harm, 0.0) / max(left, 1e-9 * float(cost[best]))
    preferred = worth * np.maximum(1.0 - used, _LEAST_PREFERENCE) / (1.0 + _stopped(known)) ** 2
    net = np.where(untouched & affordable, preferred - excess, -np.inf)
    net[best] = worth[best]
    place = int(np.argmax(net))
    if place == best or not net[place] > 0:
        return None
    return Proposal(known.sizes[place], exploring=True, why=_why(known, place))


def _affordable(known: JobPosterior, memory: JobMemory, at_stake: Stakes, *, left: float, excess: Floats) -> Flags:
    """Return the sizes whose bad case fits what the job can afford to lose.

    The first trial, to a neighbour, is made as soon as its expected loss fits: waiting delays a gain of unknown size.
    """
    fits = at_stake.bad <= left
    if not any(run.exploring for run in memory.runs):
        fits |= _next_to_best(known) & (excess + _CAUTION * at_stake.harm <= left)
    return np.asarray(fits)


def _on_the_way_down(known: JobPosterior) -> Floats:
    """Return the factor on each size's worth where a size between it and the best was tried and cost more.

    Costs nearly always have one valley over batch size, so sizes beyond an expensive one cost more too. Runs before the
    job changed do not count.
    """
    best, places = known.best, np.arange(len(known.sizes))
    now = [run.batch_size for run in known.over if run.epochs and not known.epochs.interval[run.id]]
    tried = np.isin(known.sizes, now)
    posterior = known.log_cost
    distance = posterior.mean + np.log(known.overhead) - posterior.mean[best] - np.log(known.overhead[best]) - _SAME
    variance = posterior.variance + posterior.variance[best] - 2.0 * posterior.covariance[best]
    worse = np.where(tried & (places != best), ndtr(distance / np.sqrt(np.maximum(variance, 1e-12))), 0.0)
    left = np.ones(len(places))
    for side in (places[:best][::-1], places[best + 1 :]):
        hidden = np.concatenate(([0.0], np.maximum.accumulate(worse[side])[:-1])) if len(side) else worse[side]
        left[side] = 1.0 - _ONE_VALLEY * hidden
    return left


def _why(known: JobPosterior, place: int) -> str:
    size, best = known.sizes[place], known.sizes[known.best]
    epochs = float(np.exp(known.log_epochs.mean[place]))
    spread = epochs * sqrt(float(known.log_epochs.variance[place]))
    share = float(np.exp(known.log_cost.mean[place] - known.log_cost.mean[known.best]))
    return f"trial of {size}: {epochs:.3g} ± {spread:.2g} epochs expected, {share:.0%} of the cost of {best}"


def _just_failed(known: JobPosterior) -> bool:
    """Return True where the run that ended last was a trial that failed; its replacement is no trial."""
    last = known.over[-1]
    return last.exploring and last.outcome is not Outcome.REACHED


def _stopped(known: JobPosterior) -> Floats:
    """Count the trials of each size that were stopped since the last change: each repetition is worth less."""
    interval = known.epochs.interval
    stopped = [
        run.batch_size
        for run in known.over
        if run.outcome is Outcome.STOPPED and run.exploring and not interval[run.id]
    ]
    return np.array([float(stopped.count(size)) for size in known.sizes])


def _next_to_best(known: JobPosterior) -> Flags:
    """Sizes that are neighbours of the best one, or near it."""
    places = np.arange(len(known.sizes))
    octaves = np.abs(np.log2(np.array(known.sizes) / known.sizes[known.best]))
    return np.asarray((np.abs(places - known.best) <= 1) | (octaves <= _NEAR))


def _out_on_trial(known: JobPosterior, memory: JobMemory) -> Flags:
    out = {run.batch_size for run in memory.runs if run.exploring and run.outcome is Outcome.RUNNING}
    return np.array([size in out for size in known.sizes])


_OCTAVE = 0.75
"""A size one octave further from the default is tried before one that has missed the target once more."""


@dataclass(frozen=True, slots=True)
class WattuneJobPolicy:
    """Chooses batch sizes by the posterior of all of them together.

    A safe one makes no trial before the job can afford to lose all of it, and stops it before it loses more.
    """

    safe: bool = False

    @property
    def name(self) -> str:
        return "wattune-safe" if self.safe else "wattune"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        if not any(run.outcome is Outcome.REACHED and run.batch_size in job.batch_sizes for run in memory.runs):
            return _first(job, memory, gpu)
        posterior = job_posterior(job, memory, gpu)
        if not posterior.proven.any():
            return _first(job, memory, gpu)
        return trial(posterior, memory, safe=self.safe) or _best(posterior)

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        if run.exploring:
            return why_stop_trial(job, memory, run, safe=self.safe)
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
    why = f"{size} is the cheapest known: about {epochs:.3g} epochs"
    share = posterior.share_of_default(size)
    why += "" if share is None else f", {100 * share:.0f} % of the default's cost"
    return Proposal(size, exploring=False, why=why)
