"""Which size to try, if any: where what may be learned is worth more than it costs, and the budget can bear it."""

from __future__ import annotations

from math import sqrt

import numpy as np
from scipy.special import ndtr

from wattune.core.job import JobMemory, Outcome, Proposal
from wattune.levels.job.exploration_budget import budget
from wattune.levels.job.posterior import Flags, Knowledge
from wattune.levels.job.smooth_curve import Floats
from wattune.levels.job.trial_value import gains, stakes

_RECURRENCES = 40.0
"""Recurrences to come that a job is credited with at least; later, as many as there were."""

_CAUTION = 0.25
"""Share of the expected harm of a trial that counts beside its expected excess."""

_LEAST_LIKED = 0.1
"""What is left of a trial's worth if it may eat all of the budget."""

_NEAR = 0.6
"""Octaves that a first trial may go."""

_ONE_VALLEY = 0.83
"""How surely costs have one valley over batch size: of recorded jobs one in six has a second one."""

_SAME = 0.02
"""Sizes whose costs (in logarithms) are nearer to each other than this are one floor of a valley."""


def trial(known: Knowledge, memory: JobMemory) -> Proposal | None:
    """The size to try, or None where no trial pays or none is safe."""
    if not known.costs.epoch_s or _just_failed(known):
        return None
    best = known.best
    cost = known.expected_cost
    untouched = known.usable & ~_out_on_trial(known, memory)
    worth = horizon(memory) * gains(known.log_cost, known.epochs.sd, burden=known.burden, among=known.usable)
    worth *= _on_the_way_down(known)
    left = _budget(known, memory)
    first_epoch = 1.0 / np.maximum(np.exp(known.log_epochs.mean), 1.0)
    at_stake = stakes(
        known.log_cost, best_cost=float(cost[best]), beyond=known.beyond, first_epoch=np.minimum(first_epoch, 1.0)
    )
    excess = at_stake.excess + np.log(known.burden) * cost[best]
    affordable = at_stake.bad <= left
    if not any(run.exploring for run in memory.runs):
        affordable |= _next_to_best(known) & (excess + _CAUTION * at_stake.harm <= left)
    # The more of the budget a trial may eat, the less it is liked: other trials may be needed later.
    eaten = np.maximum(excess + _CAUTION * at_stake.harm, 0.0) / max(left, 1e-9 * float(cost[best]))
    liked = worth * np.maximum(1.0 - eaten, _LEAST_LIKED) / (1.0 + _stopped(known)) ** 2
    net = np.where(untouched & affordable, liked - excess, -np.inf)
    net[best] = worth[best]
    place = int(np.argmax(net))
    if place == best or not net[place] > 0:
        return None
    return Proposal(known.sizes[place], exploring=True, why=_why(known, place))


def _on_the_way_down(known: Knowledge) -> Floats:
    """How much of each size's worth is left, where a size was tried between it and the best and found dearer.

    Costs have one valley over batch size, nearly always: behind a dearer size come dearer ones. What was tried before
    the job changed says nothing of that.
    """
    best, places = known.best, np.arange(len(known.sizes))
    now = [run.batch_size for run in known.over if run.epochs and not known.epochs.stretch[run.id]]
    tried = np.isin(known.sizes, now)
    belief = known.log_cost
    apart = belief.mean + np.log(known.burden) - belief.mean[best] - np.log(known.burden[best]) - _SAME
    variance = belief.variance + belief.variance[best] - 2.0 * belief.covariance[best]
    dearer = np.where(tried & (places != best), ndtr(apart / np.sqrt(np.maximum(variance, 1e-12))), 0.0)
    left = np.ones(len(places))
    for side in (places[:best][::-1], places[best + 1 :]):
        hidden = np.concatenate(([0.0], np.maximum.accumulate(dearer[side])[:-1])) if len(side) else dearer[side]
        left[side] = 1.0 - _ONE_VALLEY * hidden
    return left


def _why(known: Knowledge, place: int) -> str:
    size, best = known.sizes[place], known.sizes[known.best]
    epochs = float(np.exp(known.log_epochs.mean[place]))
    spread = epochs * sqrt(float(known.log_epochs.variance[place]))
    share = float(np.exp(known.log_cost.mean[place] - known.log_cost.mean[known.best]))
    return f"tries {size}: the law expects {epochs:.3g} ± {spread:.2g} epochs, {share:.0%} of the cost of {best}"


def horizon(memory: JobMemory) -> float:
    """How many recurrences are reckoned with still to come: as many as there were, and at least some."""
    return max(_RECURRENCES, 1.0 + max((run.recurrence for run in memory.runs), default=0))


def _just_failed(known: Knowledge) -> bool:
    """Whether the run that ended last was a trial that did not reach the target: what replaces it is no trial."""
    last = known.over[-1]
    return last.exploring and last.outcome is not Outcome.REACHED


def _stopped(known: Knowledge) -> Floats:
    """How many trials of each size were stopped since the last change: to try again after so many tells ever less."""
    stretch = known.epochs.stretch
    stopped = [
        run.batch_size for run in known.over if run.outcome is Outcome.STOPPED and run.exploring and not stretch[run.id]
    ]
    return np.array([float(stopped.count(size)) for size in known.sizes])


def _next_to_best(known: Knowledge) -> Flags:
    """Sizes that are the neighbours of the best one, or near it."""
    places = np.arange(len(known.sizes))
    octaves = np.abs(np.log2(np.array(known.sizes) / known.sizes[known.best]))
    return np.asarray((np.abs(places - known.best) <= 1) | (octaves <= _NEAR))


def _out_on_trial(known: Knowledge, memory: JobMemory) -> Flags:
    out = {run.batch_size for run in memory.runs if run.exploring and run.outcome is Outcome.RUNNING}
    return np.array([size in out for size in known.sizes])


def _budget(known: Knowledge, memory: JobMemory) -> float:
    return budget(
        [run for run in memory.runs if run.gpu.key == known.gpu.key and run.batch_size in known.sizes],
        objective=known.job.objective_on(known.gpu.max_power_w),
        stretch=known.epochs.stretch,
        default_cost=known.default_cost,
        best_cost=float(known.expected_cost[known.best]),
        usual_cost=dict(zip(known.sizes, np.exp(known.log_cost.mean).tolist(), strict=True)),
    )
