"""The policies that are held against each other, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from wattune.benchmarks.job.replayed_run import Limits, Ruled, ShippedLimits, ZeusLimits
from wattune.benchmarks.job.trace import TraceWorkload
from wattune.core.job import Job, JobChoice, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.levels.job.policies import JobSearcher
from wattune.levels.job.policy import WattuneJobPolicy
from wattune.levels.job.zeus import ZeusSearcher

Policy = tuple[JobSearcher, Limits]
"""Who chooses the batch sizes, and how limits are found."""


@dataclass(frozen=True, slots=True)
class FixedChoice:
    """Always the same batch size."""

    name: str
    batch_size: int

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """That size."""
        del job, memory, gpu
        return Proposal(self.batch_size, exploring=False, why="always the same")

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """None."""
        del job, memory, run
        return None


@dataclass(frozen=True, slots=True)
class GridSearch:
    """Every batch size with every limit, one run each, from the default outwards; then what was cheapest.

    A batch size that did not reach the target is not tried with its other limits. Runs are stopped as Zeus's are.
    """

    cells: tuple[JobChoice, ...]
    """In the order of trying."""
    stopping: ZeusSearcher = field(default=ZeusSearcher())

    @property
    def name(self) -> str:
        """What tables call it."""
        return "grid"

    def propose(self, job: Job, memory: JobMemory, gpu: JobGpu) -> Proposal:
        """The batch size of the cell that is next."""
        cell = self.cell(job, memory, gpu)
        return Proposal(cell.batch_size, exploring=False, why="the next cell, or the cheapest one")

    def stop(self, job: Job, memory: JobMemory, run: JobRun) -> str | None:
        """As Zeus would, while the cell is new."""
        if run.setting is None or any(
            _cell(old) == _cell(run) for old in memory.runs if old.outcome is Outcome.REACHED
        ):
            return None
        return self.stopping.stop(job, memory, run)

    def cell(self, job: Job, memory: JobMemory, gpu: JobGpu) -> JobChoice:
        """The first cell that was not tried, or of those that reached the target the cheapest one in the mean."""
        objective = job.objective_on(gpu.max_power_w)
        tried = {_cell(run) for run in memory.runs}
        failed = {run.batch_size for run in memory.runs if run.outcome is not Outcome.REACHED}
        untried = (cell for cell in self.cells if cell not in tried and cell.batch_size not in failed)
        if (new := next(untried, None)) is not None:
            return new
        costs: dict[JobChoice | None, list[float]] = {}
        for run in memory.runs:
            if run.cost is not None:
                costs.setdefault(_cell(run), []).append(objective.value(run.cost))
        good = [cell for run in memory.runs if run.outcome is Outcome.REACHED and (cell := _cell(run)) is not None]
        return min(good, key=lambda cell: fmean(costs[cell]), default=self.cells[0])


def _cell(run: JobRun) -> JobChoice | None:
    return None if run.setting is None else JobChoice(run.batch_size, run.setting)


def default(workload: TraceWorkload, seed: int) -> Policy:
    """The default batch size at the highest limit."""
    del seed
    return _fixed("default", workload.default)


def oracle(workload: TraceWorkload, seed: int) -> Policy:
    """The choice of least expected cost, which only the table knows."""
    del seed
    return _fixed("oracle", workload.oracle[0])


def grid(workload: TraceWorkload, seed: int) -> Policy:
    """Grid search with pruning."""
    del seed
    sizes = workload.job.batch_sizes
    start = sizes.index(workload.job.default_batch_size)
    nearest = sorted(sizes, key=lambda size: abs(sizes.index(size) - start))
    search = GridSearch(
        tuple(JobChoice(size, limit) for size in nearest for limit in sorted(workload.epochs[size], reverse=True))
    )
    return search, Ruled(lambda memory, run: search.cell(workload.job, memory, run.gpu).setting)


def zeus(workload: TraceWorkload, seed: int) -> Policy:
    """Zeus as published, in the conditions of its published simulator."""
    del workload
    return ZeusSearcher(seed=seed), ZeusLimits()


def wattune(workload: TraceWorkload, seed: int) -> Policy:
    """Ours, which pays for all it measures."""
    del workload, seed
    return WattuneJobPolicy(), ShippedLimits()


POLICIES: dict[str, Callable[[TraceWorkload, int], Policy]] = {
    "default": default,
    "grid": grid,
    "zeus": zeus,
    "wattune": wattune,
    "oracle": oracle,
}
"""By name; each makes a policy for a workload and a seed."""


def _fixed(name: str, choice: JobChoice) -> Policy:
    return FixedChoice(name, choice.batch_size), Ruled(lambda *_: choice.setting)
