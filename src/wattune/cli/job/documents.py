"""Recurring jobs as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wattune.core.codec import to_json
from wattune.core.job import Job, JobGpu, JobRun
from wattune.core.measurement import Measurement
from wattune.levels.job.account import Account, SizeAccount

if TYPE_CHECKING:
    from wattune.levels.job.account import JobOverview
    from wattune.store.job_records import JobSummary, RecordedRun

Document = dict[str, Any]


def job_document(job: Job) -> Document:
    """What a job is."""
    return {
        "name": job.name,
        "batch_sizes": list(job.batch_sizes),
        "default_batch_size": job.default_batch_size,
        "target": job.target,
        "higher_is_better": job.higher_is_better,
        "max_epochs": job.max_epochs,
        "objective": job.objective,
    }


def summary_document(summary: JobSummary) -> Document:
    """A job at a glance."""
    return {
        **job_document(summary.job),
        "simulated": summary.simulated,
        "definition": summary.definition,
        "defined_at": summary.defined_at.isoformat(),
        "recurrences": summary.recurrences,
        "runs": summary.runs,
        "running": summary.running,
        "last_run_at": None if summary.last_run_at is None else summary.last_run_at.isoformat(),
        "energy_j": summary.energy_j,
        "time_s": summary.time_s,
        "simulated_energy_j": summary.simulated_energy_j,
        "simulated_time_s": summary.simulated_time_s,
    }


def gpu_document(gpu: JobGpu) -> Document:
    """A part."""
    return {"name": gpu.name, "simulated": gpu.simulated, "count": gpu.count, "max_power_w": gpu.max_power_w}


def run_document(run: JobRun) -> Document:
    """One run."""
    return {
        "id": run.id,
        "order": run.order,
        "recurrence": run.recurrence,
        "batch_size": run.batch_size,
        "gpu": gpu_document(run.gpu),
        "exploring": run.exploring,
        "why": run.why,
        "submitted_at": None if run.submitted_at is None else run.submitted_at.isoformat(),
        "outcome": run.outcome.value,
        "epochs": run.epochs,
        "metrics": list(run.metrics),
        "cost": cost_document(run.cost),
        "profiling": cost_document(run.profiling),
        "setting": to_json(run.setting),
    }


def record_document(record: RecordedRun) -> Document:
    """One run with what the store keeps beside it."""
    return {
        **run_document(record.run),
        "definition": record.definition,
        "comparable": record.comparable,
        "replaces": record.replaces,
        "lease_until": record.lease_until.isoformat(),
        "ended_at": None if record.ended_at is None else record.ended_at.isoformat(),
        "host": record.host,
        "pid": record.pid,
    }


def cost_document(cost: Measurement | None) -> Document | None:
    """Seconds and joules."""
    return None if cost is None else {"time_s": cost.time_s, "energy_j": cost.energy_j}


def account_document(account: Account) -> Document:
    """What was learned and spent on one part."""
    return {
        "gpu": gpu_document(account.gpu),
        "runs": account.runs,
        "recurrences": account.recurrences,
        "spent": cost_document(account.spent),
        "profiling": cost_document(account.profiling),
        "exploring": cost_document(account.exploring),
        "default_run": cost_document(account.default_run),
        "best_run": cost_document(account.best_run),
        "saving_percent": account.saving_percent,
        "energy_saving_percent": account.energy_saving_percent,
        "break_even": account.break_even,
        "sizes": [_size_document(size) for size in account.sizes],
    }


def overview_document(found: JobOverview) -> Document:
    """A job on one part: its account, the law, and what comes next."""
    proposal = found.proposal
    return {
        **account_document(found.account),
        "law": [
            {"batch_size": band.batch_size, "epochs": band.epochs, "low": band.low, "high": band.high}
            for band in found.view.epochs
        ],
        "next": None
        if proposal is None
        else {
            "batch_size": proposal.batch_size,
            "exploring": proposal.exploring,
            "why": proposal.why,
            "setting": to_json(found.setting),
        },
    }


def _size_document(size: SizeAccount) -> Document:
    return {
        "batch_size": size.batch_size,
        "state": size.state,
        "runs": size.runs,
        "reached": size.reached,
        "failed": size.failed,
        "epochs": size.epochs,
        "energy_j": size.energy_j,
        "time_s": size.time_s,
        "setting": to_json(size.setting),
    }


def simulated(runs: Sequence[JobRun]) -> bool:
    """Whether any figure comes from a simulated GPU."""
    return any(run.gpu.simulated for run in runs)
