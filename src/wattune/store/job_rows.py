"""Jobs, their runs and their profiles as rows of the tables, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping

from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile, metric_value
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.job_records import JobTotals, RecordedRun, RunEnd, moment

Document = dict[str, Any]


def gpu_to_json(gpu: JobGpu) -> Document:
    """What tells one part from another."""
    return {"gpu": gpu.name, "simulated": gpu.simulated, "gpus": gpu.count, "max_power_w": gpu.max_power_w}


def trial_to_json(trial: Trial[Setting]) -> Document:
    """The setting and its cost side by side."""
    return (setting_to_json(trial.choice) or {}) | (cost_to_json(trial.cost) or {})


def end_to_json(end: RunEnd) -> Document:
    """How a run ended, as `end_from_json` reads it."""
    return {
        "run_id": end.run_id,
        "outcome": end.outcome.value,
        "ended_at": end.ended_at.isoformat(),
        "cost": cost_to_json(end.cost),
        "profiling": cost_to_json(end.profiling),
        "setting": setting_to_json(end.setting),
        "metrics": [metric_value(metric) for metric in end.metrics],
    }


def end_from_json(document: Mapping[str, Any]) -> RunEnd:
    """The ending that a document describes; KeyError, TypeError, ValueError or InputError where it is none."""
    cost, profiling, setting = document["cost"], document["profiling"], document["setting"]
    totals = JobTotals.of(
        None if cost is None else cost_from_json(cost),
        None if profiling is None else cost_from_json(profiling),
        None if setting is None else setting_from_json(setting),
    )
    return RunEnd(
        run_id=str(document["run_id"]),
        outcome=Outcome(document["outcome"]),
        ended_at=moment(datetime.fromisoformat(document["ended_at"])),
        cost=totals.cost,
        profiling=totals.profiling,
        setting=totals.setting,
        metrics=tuple(metric_value(metric) for metric in document["metrics"]),
    )


def cost_to_json(cost: Measurement | None) -> Document | None:
    """Seconds and joules with their errors."""
    return None if cost is None else {name: getattr(cost, name) for name in Measurement.__dataclass_fields__}


def setting_to_json(setting: Setting | None) -> Document | None:
    """Clocks and limit; null in one of them leaves it to the driver."""
    return None if setting is None else {name: getattr(setting, name) for name in Setting.__dataclass_fields__}


def cost_from_json(document: Mapping[str, Any]) -> Measurement:
    """The measurement that a document of `cost_to_json` holds; what else is in it does no harm."""
    return Measurement(*(document[name] for name in Measurement.__dataclass_fields__))


def setting_from_json(document: Mapping[str, Any]) -> Setting:
    """The setting that a document of `setting_to_json` holds; what else is in it does no harm."""
    return Setting(*(document[name] for name in Setting.__dataclass_fields__))


Row = dict[str, Any]

_DEFINITION = ("default_batch_size", "target", "higher_is_better", "max_epochs", "objective")
_KEPT = ("job", "definition", "replaces", "replaced", "lease_until", "ended_at", "host", "pid")
_RUN = ("id", "recurrence", "batch_size", "exploring", "why", "submitted_at", "ended")


def definition_row(job: Job) -> Row:
    """The row of a job's definition, without its number and date."""
    row = {name: getattr(job, name) for name in _DEFINITION}
    return row | {"job": job.name, "batch_sizes": {"sizes": list(job.batch_sizes)}}


def job_of(row: RowMapping) -> Job:
    """The job that a row of definitions holds."""
    sizes = tuple(row["batch_sizes"]["sizes"])
    return Job(name=row["job"], batch_sizes=sizes, **{name: row[name] for name in _DEFINITION})


def run_row(record: RecordedRun) -> Row:
    """The row of a run, its epochs apart."""
    run = record.run
    return (
        {name: getattr(record, name) for name in _KEPT}
        | {name: getattr(run, name) for name in _RUN}
        | {"position": run.order, "outcome": run.outcome.value, "settled": run.setting is not None}
        | (setting_to_json(run.setting or Setting()) or {})
        | gpu_to_json(run.gpu)
        | _cost_columns("", run.cost)
        | _cost_columns("profiling_", run.profiling)
    )


def record_of(row: RowMapping, metrics: tuple[float | None, ...], *, comparable: bool) -> RecordedRun:
    """The run that a row holds, with its metrics."""
    run = JobRun(
        **{name: row[name] for name in _RUN},
        order=row["position"],
        gpu=gpu_of(row),
        outcome=Outcome(row["outcome"]),
        metrics=metrics,
        cost=_cost_of(row, ""),
        profiling=_cost_of(row, "profiling_"),
        setting=Setting(row["sm_mhz"], row["mem_mhz"], row["power_limit_w"]) if row["settled"] else None,
    )
    return RecordedRun(**{name: row[name] for name in _KEPT}, run=run, comparable=comparable)


def gpu_of(row: RowMapping) -> JobGpu:
    """The part that a row names."""
    return JobGpu(name=row["gpu"], simulated=row["simulated"], max_power_w=row["max_power_w"], count=row["gpus"])


def profile_row(profile: Profile) -> Row:
    """The row of a profile, without its job, number and date."""
    trials = {"trials": [trial_to_json(trial) for trial in profile.trials]}
    return {"batch_size": profile.batch_size, "trials": trials} | gpu_to_json(profile.gpu)


def profile_of(row: RowMapping) -> Profile:
    """The profile that a row holds."""
    trials = tuple(Trial(setting_from_json(trial), cost_from_json(trial)) for trial in row["trials"]["trials"])
    return Profile(gpu=gpu_of(row), batch_size=row["batch_size"], trials=trials)


def _cost_columns(prefix: str, cost: Measurement | None) -> Row:
    return {prefix + name: None if cost is None else getattr(cost, name) for name in Measurement.__dataclass_fields__}


def _cost_of(row: RowMapping, prefix: str) -> Measurement | None:
    time_s, energy_j = row[f"{prefix}time_s"], row[f"{prefix}energy_j"]
    if time_s is None or energy_j is None:
        return None
    return Measurement(time_s, energy_j, row[f"{prefix}time_error_s"], row[f"{prefix}energy_error_j"])
