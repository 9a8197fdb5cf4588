"""All that is shown of a job: its accounts, the law that was learned, what comes next, and the page of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt
from typing import TYPE_CHECKING

from wattune.cli.job.account import Account, account
from wattune.core.errors import WattuneError
from wattune.core.job import Job, JobGpu, JobMemory, Outcome, Proposal
from wattune.core.measurement import SIGMAS_95
from wattune.core.setting import Setting
from wattune.levels.job.policy_protocol import JobSearcher
from wattune.levels.job.view.view_model import EpochsBand, JobView, best_setting

if TYPE_CHECKING:
    from wattune.levels.job.view.page import JobReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A job on one part as people see it."""

    account: Account
    view: JobView
    proposal: Proposal | None
    """What the next run would get; None where no size is left to try."""
    setting: Setting | None
    """What would be held in it, where that was measured before."""


def shown(job: Job, memory: JobMemory, gpu: JobGpu, *, searcher: JobSearcher) -> Shown:
    """A job on one part, as this searcher sees it."""
    proposal = _proposal(job, memory, gpu, searcher)
    known = account(job, memory, gpu)
    view = JobView(
        job=job,
        memory=memory,
        gpu=gpu,
        law=law(job, memory, gpu) if searcher.name == "wattune" else (),
        next_size=None if proposal is None else proposal.batch_size,
        default_run=known.default_run,
    )
    setting = None if proposal is None else best_setting(view, memory.profile(gpu, proposal.batch_size))
    return Shown(account=known, view=view, proposal=proposal, setting=setting)


def law(job: Job, memory: JobMemory, gpu: JobGpu) -> tuple[EpochsBand, ...]:
    """What is believed of each batch size's epochs; nothing before any run has reached the target."""
    from wattune.levels.job.posterior import knowledge

    if not any(run.outcome is Outcome.REACHED for run in memory.runs):
        return ()
    known = knowledge(job, memory, gpu)
    log_epochs = known.log_epochs
    bands = []
    for size, mean, variance in zip(known.sizes, log_epochs.mean, log_epochs.variance, strict=True):
        # The spread of a run about the law counts too: the band is where the next run will lie.
        spread = SIGMAS_95 * sqrt(float(variance) + known.epochs.sd**2)
        bands.append(EpochsBand(size, exp(mean), exp(mean - spread), exp(mean + spread)))
    return tuple(bands)


def page_of(found: Shown, *, searcher: str, made: str) -> JobReport:
    """What the page of a job is made of."""
    from wattune.levels.job.view.page import JobReport

    spent = found.account
    return JobReport(
        view=found.view,
        searcher=searcher,
        next_why=None if found.proposal is None else found.proposal.why,
        recurrences=spent.recurrences,
        spent=spent.spent,
        profiling=spent.profiling,
        exploring=spent.exploring,
        saving_percent=spent.saving_percent,
        energy_saving_percent=spent.energy_saving_percent,
        break_even=spent.break_even,
        made=made,
    )


def _proposal(job: Job, memory: JobMemory, gpu: JobGpu, searcher: JobSearcher) -> Proposal | None:
    try:
        return searcher.propose(job, memory, gpu)
    except WattuneError:  # no size is left; what was learned can be looked at all the same
        return None
