"""Zeus's choice of batch sizes, as published: pruning, then Gaussian Thompson sampling, with early stopping.

Source: You, Chung and Chowdhury, "Zeus", NSDI 2023, section 4, and the policy in the package of its authors.

Notation: b0 default batch size; C cost of a run; β early-stopping factor; per surviving batch size n observations of
mean m and population variance v, so that its expected cost is believed to be N(m, v/n), the prior being flat.

1. Pruning, in rounds: from b0 down through smaller sizes until one fails, then up from b0 until one fails. Sizes that
   reached the target are kept, and the next round starts from the cheapest one.
2. Thompson sampling: one draw per kept size, and the size whose draw is cheapest is used.
3. A run stops before an epoch with which its cost would pass β times the least cost of a recurrence so far.

The memory is the history: the state is found again by going through the runs that are over, in the order they ended.
What a run that crashed or was lost did says nothing. A size that ran out of memory counts as one that failed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective

_COUNTED = (Outcome.REACHED, Outcome.MISSED, Outcome.STOPPED, Outcome.OUT_OF_MEMORY)
_CALLED_OFF = 100
"""Times the stopping cost that a run counts which was called off before its first epoch."""

_Seen = tuple[int, float, bool]
"""A batch size, its cost, and whether it reached the target."""


@dataclass(frozen=True, slots=True)
class ZeusSearcher:
    """Zeus's batch size optimizer; randomness comes from the seed and the number of runs so far."""

    beta: float | None = 2.0
    """A run is stopped at so many times the least cost so far; None: never."""
    rounds: int = 2
    window: int = 0
    """How many of the latest observations of a size count; 0: all."""
    seed: int = 123456

    @property
    def name(self) -> str:
        """What tables call it."""
        return "zeus"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """The size to prune with, or a Thompson sample; the best known one while a run of the pruning is out."""
        seen = self._seen(job, memory, job.objective_on(gpu.max_power_w))
        expected, kept = _pruned(job, seen, self.rounds)
        if expected is None:
            return self._sampled(job, seen, kept, draws=len(memory.runs))
        if any(run.outcome is Outcome.RUNNING for run in memory.runs):
            best = _cheapest(seen) or job.default_batch_size
            return Proposal(best, exploring=False, why=f"the pruning waits for a run; {best} was the cheapest so far")
        return Proposal(expected, exploring=True, why=f"prunes: {expected} is next in line")

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """A sentence where the next epoch would bring the cost above β times the least one so far."""
        profile = memory.profile(run.gpu, run.batch_size)
        if self.beta is None:
            return None
        objective = job.objective_on(run.gpu.max_power_w)
        bound = self.beta * _least_cost(memory.runs, objective)
        if bound == inf:
            return None
        if profile is not None:
            ahead = (run.epochs + 1) * objective.value(profile.best(objective).cost)
        else:
            ahead = _value(objective, run.cost) * (1 + 1 / max(1, run.epochs))
        if ahead <= bound * (1 + 1e-12):
            return None
        return f"its cost would pass {self.beta:g} times the least one so far"

    def _seen(self, job: Job, memory: JobMemory, objective: Objective) -> list[_Seen]:
        """What was observed, in the order in which runs ended."""
        over = [run for run in memory.runs if run.outcome in _COUNTED and run.batch_size in job.batch_sizes]
        over.sort(key=lambda run: (run.ended or 0, run.order))
        seen: list[_Seen] = []
        for place, run in enumerate(over):
            cost = _value(objective, run.cost)
            if not cost:
                least = _least_cost(over[:place], objective)
                cost = _CALLED_OFF * (self.beta or 1.0) * (1.0 if least == inf else least)
            seen.append((run.batch_size, cost, run.outcome is Outcome.REACHED))
        return seen

    def _sampled(self, job: Job, seen: Sequence[_Seen], kept: Sequence[int], *, draws: int) -> Proposal:
        if not kept:
            size = job.default_batch_size
            return Proposal(size, exploring=False, why=f"no size was left by the pruning, so it is {size}, the default")
        generator = np.random.default_rng([self.seed, draws])
        normal = generator.standard_normal(len(kept))
        drawn = {}
        for size, luck in zip(kept, normal, strict=True):
            costs = np.array([cost for other, cost, _ in seen if other == size][-self.window :])
            drawn[size] = costs.mean() + luck * sqrt(costs.var() / len(costs))
        size = min(drawn, key=lambda kept: drawn[kept])
        return Proposal(size, exploring=False, why=f"a draw from what is believed of each size was least for {size}")


def _pruned(job: Job, seen: Sequence[_Seen], rounds: int) -> tuple[int | None, list[int]]:
    """The size that the pruning wants to see next, None where it is over; and the sizes it left."""
    pruning = _pruning(job, rounds)
    expected = next(pruning)
    try:
        for size, cost, reached in seen:
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


def _least_cost(runs: Sequence[JobRun], objective: Objective) -> float:
    """The least that a recurrence has cost which came to its end, its failed runs included."""
    spent: dict[int, float] = {}
    least = inf
    for run in runs:
        if run.cost is None:
            continue
        cost = spent[run.recurrence] = spent.get(run.recurrence, 0.0) + objective.value(run.cost)
        if run.outcome is Outcome.REACHED and cost < least:
            least = cost
    return least


def _cheapest(seen: Sequence[_Seen]) -> int | None:
    reached = [(cost, size) for size, cost, reached in seen if reached]
    return min(reached)[1] if reached else None


def _value(objective: Objective, cost: Measurement | None) -> float:
    return 0.0 if cost is None else objective.value(cost)
