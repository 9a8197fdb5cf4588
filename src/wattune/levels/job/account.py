"""What the runs of a job have cost on one GPU model, compared with default runs.

Notation: a *default run* is what the owner would do without tuning: the default batch size at the setting that was
found on the GPU. Its cost is the mean number of epochs of the default size times the profiled cost of an epoch at the
highest measured setting; without a profile, the mean cost of the runs at the default size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from wattune.core.errors import WattuneError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Proposal
from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.levels.job.policies import JobPolicy
from wattune.levels.job.view.view_model import JobView, barred_sizes, best_setting

FAILED = (Outcome.MISSED, Outcome.STOPPED)
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAccount:
    """One batch size on one GPU model; None where a figure is not known."""

    batch_size: int
    runs: int
    reached: int
    failed: int
    """Runs that missed the target or were stopped."""
    barred: str | None
    """Why it is excluded: out of memory on this GPU model, or every run missed the target; None where it is not."""
    epochs: float | None
    """Mean epochs to the target, over all GPU models, since epochs do not depend on them."""
    energy_j: float | None
    """Mean of the runs that reached the target on this GPU model."""
    time_s: float | None
    setting: Setting | None
    """That of its newest run on this GPU model."""

    @property
    def state(self) -> str:
        """One word: untried, infeasible, failed, running or tried."""
        if self.barred == OUT_OF_MEMORY:
            return "infeasible"
        if not self.runs:
            return "untried"
        if self.reached:
            return "tried"
        return "failed" if self.failed else "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All runs of a job on one GPU model."""

    gpu: JobGpu
    sizes: tuple[SizeAccount, ...]
    runs: int
    recurrences: int
    """Those that reached the target on this GPU model."""
    spent: Measurement
    """Cost of all runs, failed ones and profiling included."""
    profiling: Measurement
    exploring: Measurement
    """Cost of the runs that were trials."""
    default_run: Measurement | None
    best_run: Measurement | None
    """Mean cost of the batch size that is cheapest so far."""
    saving_percent: float | None
    """Of the objective's cost, against default runs; negative where more was spent so far."""
    energy_saving_percent: float | None
    break_even: int | None
    """Recurrences until the savings equal the cost of learning: 0 where they do, None where that is not in sight."""


def account(job: Job, memory: JobMemory, gpu: JobGpu) -> Account:
    """Add up the runs of a job on one GPU model."""
    here = tuple(run for run in memory.runs if run.gpu.key == gpu.key)
    objective = job.objective_on(gpu.max_power_w)
    view = JobView(job=job, memory=memory, gpu=gpu)
    barred = barred_sizes(view)
    sizes = tuple(_size(size, barred.get(size), memory.runs, here) for size in view.batch_sizes)
    default = _default_run(job, memory, gpu, next(size for size in sizes if size.batch_size == job.default_batch_size))
    best = _best_run(sizes, objective)
    served = {run.recurrence for run in here if run.outcome is Outcome.REACHED}
    over = tuple(run for run in here if run.outcome is not Outcome.RUNNING)
    spent = _sum(run.cost for run in over)
    return Account(
        gpu=gpu,
        sizes=sizes,
        runs=len(here),
        recurrences=len(served),
        spent=spent,
        profiling=_sum(run.profiling for run in here),
        exploring=_sum(run.cost for run in over if run.exploring),
        default_run=default,
        best_run=best,
        saving_percent=_saving(objective, spent, default, len(served)),
        energy_saving_percent=None
        if default is None or not served
        else _percent(spent.energy_j, len(served) * default.energy_j),
        break_even=_break_even(objective, spent, default, best, len(served)),
    )


def gpus_of(memory: JobMemory) -> tuple[JobGpu, ...]:
    """Return the GPU models that a job ran on, the one of its newest run first."""
    newest_first = {run.gpu.key: run.gpu for run in memory.runs[::-1]}
    return tuple(newest_first.values())


def _size(size: int, barred: str | None, everywhere: Sequence[JobRun], here: Sequence[JobRun]) -> SizeAccount:
    mine = [run for run in here if run.batch_size == size]
    reached = [run for run in mine if run.outcome is Outcome.REACHED]
    epochs = [run.epochs for run in everywhere if run.batch_size == size and run.outcome is Outcome.REACHED]
    costs = [run.cost for run in reached if run.cost is not None]
    return SizeAccount(
        batch_size=size,
        runs=len(mine),
        reached=len(reached),
        failed=sum(run.outcome in FAILED for run in mine),
        barred=barred,
        epochs=_mean(epochs),
        energy_j=_mean([cost.energy_j for cost in costs]),
        time_s=_mean([cost.time_s for cost in costs]),
        setting=next((run.setting for run in reversed(mine) if run.setting is not None), None),
    )


def _default_run(job: Job, memory: JobMemory, gpu: JobGpu, size: SizeAccount) -> Measurement | None:
    profile = memory.profile(gpu, job.default_batch_size)
    if profile is not None and profile.trials and size.epochs is not None:
        epoch = max(profile.trials, key=lambda trial: trial.choice).cost  # the highest setting, where searches begin
        return Measurement(epoch.time_s * size.epochs, epoch.energy_j * size.epochs)
    return _run_of(size)


def _best_run(sizes: Sequence[SizeAccount], objective: Objective) -> Measurement | None:
    runs = [run for size in sizes if size.barred is None and (run := _run_of(size)) is not None]
    return min(runs, key=objective.value, default=None)


def _run_of(size: SizeAccount) -> Measurement | None:
    if size.energy_j is None or size.time_s is None:
        return None
    return Measurement(size.time_s, size.energy_j)


def _saving(objective: Objective, spent: Measurement, default: Measurement | None, served: int) -> float | None:
    if default is None or not served:
        return None
    return _percent(objective.value(spent), served * objective.value(default))


def _percent(spent: float, default_value: float) -> float | None:
    return 100 * (1 - spent / default_value) if default_value > 0 else None


def _break_even(
    objective: Objective, spent: Measurement, default: Measurement | None, best: Measurement | None, served: int
) -> int | None:
    if default is None or best is None or not served:
        return None
    owed = objective.value(spent) - served * objective.value(default)
    if owed <= 0:
        return 0
    gain = objective.value(default) - objective.value(best)
    return ceil(owed / gain) if gain > 0 else None


def _sum(costs: Iterable[Measurement | None]) -> Measurement:
    total = Measurement(0.0, 0.0)
    for cost in costs:
        if cost is not None:
            total = Measurement(total.time_s + cost.time_s, total.energy_j + cost.energy_j)
    return total


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOverview:
    """A job on one GPU model: its account, what the charts need, and what the next run would get."""

    account: Account
    view: JobView
    proposal: Proposal | None
    """None where no size is left to try."""
    setting: Setting | None
    """The setting of the next run, where it was measured before."""


def job_overview(job: Job, memory: JobMemory, gpu: JobGpu, *, searcher: JobPolicy) -> JobOverview:
    """Gather what people are shown of a job on one GPU model, by this policy."""
    proposal = _proposal(job, memory, gpu, searcher)
    found = account(job, memory, gpu)
    view = JobView(
        job=job,
        memory=memory,
        gpu=gpu,
        predicted=searcher.predict_epochs(job, memory, gpu),
        next_size=None if proposal is None else proposal.batch_size,
        default_run=found.default_run,
    )
    setting = None if proposal is None else best_setting(view, memory.profile(gpu, proposal.batch_size))
    return JobOverview(account=found, view=view, proposal=proposal, setting=setting)


def _proposal(job: Job, memory: JobMemory, gpu: JobGpu, searcher: JobPolicy) -> Proposal | None:
    try:
        return searcher.propose(job, memory, gpu)
    except WattuneError:  # no size is left; the history can be shown all the same
        return None
