"""Zeus's choice of batch sizes, as published: pruning, then Gaussian Thompson sampling, with early stopping.

Source: You, Chung and Chowdhury, "Zeus", NSDI 2023, section 4, and the policy in the package of its authors.

Notation: b0 default batch size; C cost of a run; β early-stopping factor; per surviving batch size n observations of
mean m and population variance v, so that the posterior of its expected cost is N(m, v/n) under a flat prior.

1. Pruning, in rounds: from b0 down through smaller sizes until one fails, then up from b0 until one fails. Sizes that
   reached the target are kept, and the next round starts from the cheapest one.
2. Thompson sampling: one draw per kept size, and the size whose draw is cheapest is used.
3. A run stops before an epoch with which its cost would exceed β times the least cost of a recurrence so far.

The state follows from the history: the runs that have ended, in the order in which they ended. Runs that crashed or
were lost do not count. A size that ran out of memory counts as failed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt

import numpy as np

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.levels.job.policies import EpochsBand

_COUNTED = (Outcome.REACHED, Outcome.MISSED, Outcome.STOPPED, Outcome.OUT_OF_MEMORY)
_CALLED_OFF = 100
"""Cost of a run that was stopped before its first epoch, as a multiple of the stopping cost."""

_Observation = tuple[int, float, bool]
"""A batch size, its cost, and whether it reached the target."""


@dataclass(frozen=True, slots=True)
class ZeusSearcher:
    """Zeus's batch size optimizer; random numbers follow from the seed and the number of runs so far."""

    beta: float | None = 2.0
    """A run is stopped at so many times the least cost so far; None: never."""
    rounds: int = 2
    window: int = 0
    """Number of latest observations of a size that count; 0: all."""
    seed: int = 123456

    @property
    def name(self) -> str:
        return "zeus"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """Return the next size of the pruning or a Thompson sample; the best known size while a pruning run has not
        ended."""
        observed = self._observations(job, memory, job.objective_on(gpu.max_power_w))
        expected, kept = _pruned(job, observed, self.rounds)
        if expected is None:
            return self._sampled(job, observed, kept, draws=len(memory.runs))
        if any(run.outcome is Outcome.RUNNING for run in memory.runs):
            best = _cheapest(observed) or job.default_batch_size
            return Proposal(best, exploring=False, why=f"a pruning run has not ended; {best} is the cheapest so far")
        return Proposal(expected, exploring=True, why=f"pruning: {expected} is the next size")

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """Return a reason where the next epoch would bring the cost above β times the least one so far."""
        profile = memory.profile(run.gpu, run.batch_size)
        if self.beta is None:
            return None
        objective = job.objective_on(run.gpu.max_power_w)
        bound = self.beta * _least_cost(_History(memory.runs, objective))
        if bound == inf:
            return None
        if profile is not None:
            ahead = (run.epochs + 1) * objective.value(profile.best(objective).cost)
        else:
            ahead = _value(objective, run.cost) * (1 + 1 / max(1, run.epochs))
        if ahead <= bound * (1 + 1e-12):
            return None
        return f"its cost would exceed {self.beta:g} times the least one so far"

    def predict_epochs(self, job: Job, memory: JobMemory, gpu: JobGpu) -> tuple[EpochsBand, ...]:
        del job, memory, gpu  # Zeus models costs, not epochs
        return ()

    def _observations(self, job: Job, memory: JobMemory, objective: Objective) -> list[_Observation]:
        """Return the observations, in the order in which runs ended."""
        over = [run for run in memory.runs if run.outcome in _COUNTED and run.batch_size in job.batch_sizes]
        over.sort(key=lambda run: (run.ended or 0, run.order))
        observed: list[_Observation] = []
        for place, run in enumerate(over):
            cost = _value(objective, run.cost)
            if not cost:
                least = _least_cost(_History(tuple(over[:place]), objective))
                cost = _CALLED_OFF * (self.beta or 1.0) * (1.0 if least == inf else least)
            observed.append((run.batch_size, cost, run.outcome is Outcome.REACHED))
        return observed

    def _sampled(self, job: Job, observed: Sequence[_Observation], kept: Sequence[int], *, draws: int) -> Proposal:
        if not kept:
            size = job.default_batch_size
            return Proposal(size, exploring=False, why=f"pruning left no size, so it is {size}, the default")
        generator = np.random.default_rng([self.seed, draws])
        normal = generator.standard_normal(len(kept))
        drawn = {}
        for size, luck in zip(kept, normal, strict=True):
            costs = np.array([cost for other, cost, _ in observed if other == size][-self.window :])
            drawn[size] = costs.mean() + luck * sqrt(costs.var() / len(costs))
        size = min(drawn, key=lambda kept: drawn[kept])
        return Proposal(size, exploring=False, why=f"Thompson sampling: {size} has the cheapest draw")


def _pruned(job: Job, observed: Sequence[_Observation], rounds: int) -> tuple[int | None, list[int]]:
    """Return the next size of the pruning, None where it is over, and the sizes it left."""
    pruning = _pruning(job, rounds)
    expected = next(pruning)
    try:
        for size, cost, reached in observed:
            # Others were submitted while the pruning waited for its own run.
            if size == expected:
                expected = pruning.send((cost, reached))
    except StopIteration as over:
        return None, over.value
    return expected, []


def _pruning(job: Job, rounds: int) -> Generator[int, tuple[float, bool], list[int]]:
    sizes, start = list(job.batch_sizes), job.default_batch_size
    for _ in range(rounds):
        good: list[int] = []
        least = inf
        place = sizes.index(start) if start in sizes else 0
        for way in (sizes[place::-1], sizes[place + 1 :]):
            for size in way:
                cost, reached = yield size
                if not reached:
                    break
                good.append(size)
                if cost < least:
                    least, start = cost, size
        sizes = sorted(good)
        if not sizes:
            break
    return sizes


@dataclass(frozen=True, slots=True)
class _History:
    """Runs with a cheap hash: early stopping asks after every epoch, while they do not change."""

    runs: tuple[JobRun, ...]
    objective: Objective

    def __hash__(self) -> int:
        return len(self.runs)


@lru_cache(maxsize=4)
def _least_cost(history: _History) -> float:
    """Return the least cost of a recurrence that reached the target, its failed runs included."""
    spent: dict[int, float] = {}
    least = inf
    for run in history.runs:
        if run.cost is None:
            continue
        cost = spent[run.recurrence] = spent.get(run.recurrence, 0.0) + history.objective.value(run.cost)
        if run.outcome is Outcome.REACHED and cost < least:
            least = cost
    return least


def _cheapest(observed: Sequence[_Observation]) -> int | None:
    reached = [(cost, size) for size, cost, reached in observed if reached]
    return min(reached)[1] if reached else None


def _value(objective: Objective, cost: Measurement | None) -> float:
    return 0.0 if cost is None else objective.value(cost)
