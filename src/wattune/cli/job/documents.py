"""Recurring jobs as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wattune.core.codec import to_json
from wattune.core.job import JobRun
from wattune.core.measurement import Measurement

if TYPE_CHECKING:
    from wattune.levels.job.account import JobOverview
    from wattune.store.job_records import JobSummary, RecordedRun

Document = dict[str, Any]

_OVERVIEW_FIELDS = ("runs", "recurrences", "saving_percent", "energy_saving_percent", "break_even")
_OVERVIEW_COSTS = ("spent", "profiling", "exploring", "default_run", "best_run")
_SIZE_FIELDS = ("batch_size", "state", "runs", "reached", "failed", "epochs", "energy_j", "time_s")
_RECORD_FIELDS = ("definition", "comparable", "replaces", "lease_until", "ended_at", "host", "pid")
_SUMMARY_FIELDS = (
    "simulated",
    "definition",
    "defined_at",
    "recurrences",
    "runs",
    "running",
    "last_run_at",
    "energy_j",
    "time_s",
    "simulated_energy_j",
    "simulated_time_s",
)


def summary_document(summary: JobSummary) -> Document:
    """Describe a job and its totals."""
    return {**to_json(summary.job), **_picked(summary, _SUMMARY_FIELDS)}


def run_document(run: JobRun) -> Document:
    """Describe one run."""
    document: Document = to_json(run)
    del document["ended"]
    costs = {"cost": cost_document(run.cost), "profiling": cost_document(run.profiling)}
    return {**document, "epochs": run.epochs, **costs}


def record_document(record: RecordedRun) -> Document:
    """Describe one run and what the store adds to it."""
    return {**run_document(record.run), **_picked(record, _RECORD_FIELDS)}


def cost_document(cost: Measurement | None) -> Document | None:
    """Return seconds and joules without their errors."""
    return None if cost is None else {"time_s": cost.time_s, "energy_j": cost.energy_j}


def overview_document(overview: JobOverview) -> Document:
    """Describe a job on one GPU model: its account, the predicted epochs, and what comes next."""
    account, proposal = overview.account, overview.proposal
    return {
        "gpu": to_json(account.gpu),
        **_picked(account, _OVERVIEW_FIELDS),
        **{name: cost_document(getattr(account, name)) for name in _OVERVIEW_COSTS},
        "sizes": [{**_picked(size, _SIZE_FIELDS), "setting": to_json(size.setting)} for size in account.sizes],
        "law": to_json(overview.view.epochs),
        "next": None if proposal is None else {**to_json(proposal), "setting": to_json(overview.setting)},
    }


def simulated(runs: Sequence[JobRun]) -> bool:
    """Whether any figure comes from a simulated GPU."""
    return any(run.gpu.simulated for run in runs)


def _picked(value: object, names: Sequence[str]) -> Document:
    return {name: to_json(getattr(value, name)) for name in names}
