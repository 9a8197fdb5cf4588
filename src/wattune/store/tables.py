"""The tables of the newest schema, for queries, and records as their rows. `migrations.py` creates them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    RowMapping,
    Table,
    Text,
    TypeDecorator,
)

from wattune.core.codec import JsonReader, to_json
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.job_records import RecordedRun
from wattune.store.records import SETTING, FullRun, Run, RunGpu, TraceSummary, TrialRecord


class UtcTime(TypeDecorator[datetime]):
    """A time: with its zone on PostgreSQL, as the text of its UTC time on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class JsonText(TypeDecorator[dict[str, Any]]):
    """A JSON document as ASCII text, which every database returns unchanged."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else json.dumps(value, allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:
        del dialect
        return None if value is None else json.loads(value)


metadata = MetaData()

_TYPES: dict[str, Any] = {
    "text": Text,
    "integer": Integer,
    "bigint": BigInteger,
    "double": Double,
    "boolean": Boolean,
    "time": UtcTime,
    "json": JsonText,
}


def _table(name: str, columns: str) -> Table:
    """Make a table from `NAME TYPE` pairs; `TYPE?` may be NULL, `TYPE!` belongs to the primary key."""
    return Table(name, metadata, *(_column(*pair.split()) for pair in columns.split(",")))


def _column(name: str, kind: str, reference: str | None = None) -> Column[Any]:
    key, nullable = kind.endswith("!"), kind.endswith("?")
    foreign = () if reference is None else (ForeignKey(reference),)
    return Column(name, _TYPES[kind.rstrip("!?")], *foreign, primary_key=key, nullable=nullable)


runs = _table(
    "wattune_runs",
    "id text!, kind text, name text, started_at time, time_s double, energy_j double?, energy_error_j double?, "
    "simulated boolean, host text, version text, note text?, details json",
)
run_gpus = _table(
    "wattune_run_gpus",
    "run_id text! wattune_runs.id, position integer!, uuid text, name text, simulated boolean, time_s double, "
    "energy_j double?, energy_error_j double?",
)
trials = _table(
    "wattune_trials",
    "run_id text! wattune_runs.id, position integer!, workload text, gpu text, simulated boolean, "
    "choice_kind text, choice json, sm_mhz integer?, mem_mhz integer?, power_limit_w double?, time_s double, "
    "energy_j double, time_error_s double?, energy_error_j double?",
)
traces = _table(
    "wattune_traces",
    "run_id text! wattune_runs.id, position integer!, gpu text, simulated boolean, samples bigint, "
    "duration_s double, mean_power_w double?, min_power_w double?, max_power_w double?, p95_power_w double?, "
    "mean_sm_mhz double?, mean_mem_mhz double?, refresh_s double?",
)
jobs = _table(
    "wattune_jobs",
    "name text!, definition integer, submitted integer, recurrences integer",
)
definitions = _table(
    "wattune_job_definitions",
    "job text! wattune_jobs.name, number integer!, defined_at time, batch_sizes json, default_batch_size bigint, "
    "target double, higher_is_better boolean, max_epochs bigint, objective text",
)
job_runs = _table(
    "wattune_job_runs",
    "id text!, job text wattune_jobs.name, position integer, definition integer, recurrence integer, "
    "replaces text?, replaced boolean, batch_size bigint, exploring boolean, why text, gpu text, "
    "simulated boolean, gpus integer, max_power_w double, host text, pid integer, submitted_at time, "
    "lease_until time, outcome text, ended_at time?, ended integer?, time_s double?, energy_j double?, "
    "time_error_s double?, energy_error_j double?, profiling_time_s double?, profiling_energy_j double?, "
    "profiling_time_error_s double?, profiling_energy_error_j double?, settled boolean, sm_mhz integer?, "
    "mem_mhz integer?, power_limit_w double?",
)
epochs = _table(
    "wattune_job_epochs",
    "run_id text! wattune_job_runs.id, epoch bigint!, metric double?, reported_at time, time_s double?, "
    "energy_j double?",
)
profiles = _table(
    "wattune_job_profiles",
    "job text! wattune_jobs.name, number integer!, measured_at time, batch_size bigint, gpu text, "
    "simulated boolean, gpus integer, max_power_w double, trials json",
)


Row = dict[str, Any]

_RUN = [field.name for field in fields(Run) if field.name not in ("gpus", "details")]
_GPU = [field.name for field in fields(RunGpu)]
_TRACE = [field.name for field in fields(TraceSummary)]
_TRIAL = ("workload", "gpu", "simulated", "choice_kind", "choice")
_SETTING = [field.name for field in fields(Setting)]
_COST = [field.name for field in fields(Measurement)]
_DEFINITION = ("default_batch_size", "target", "higher_is_better", "max_epochs", "objective")
_JOB_RECORD = [field.name for field in fields(RecordedRun) if field.name not in ("run", "comparable")]
_JOB_RUN = ("id", "recurrence", "batch_size", "exploring", "why", "submitted_at", "ended")

_SIDE_BY_SIDE = JsonReader(unknown_fields="skip")
"""Reads a setting, or a cost, from an object that holds both."""


def run_row(run: Run) -> Row:
    """Return the row of a run, without its GPUs."""
    return _columns(run, _RUN) | {"details": dict(run.details)}


def gpu_rows(run: Run) -> list[Row]:
    """Return a row per GPU of the run."""
    return _numbered(run.id, (_columns(gpu, _GPU) for gpu in run.gpus))


def trial_rows(full: FullRun) -> list[Row]:
    """Return a row per trial of the run."""
    rows = (
        _columns(trial, _TRIAL) | _columns(trial.setting, _SETTING) | _columns(trial.cost, _COST)
        for trial in full.trials
    )
    return _numbered(full.run.id, rows)


def trace_rows(full: FullRun) -> list[Row]:
    """Return a row per trace summary of the run."""
    return _numbered(full.run.id, (_columns(trace, _TRACE) for trace in full.traces))


def run_of(row: RowMapping, gpus: tuple[RunGpu, ...]) -> Run:
    """Return the run of a row."""
    return Run(**_picked(row, _RUN), details=row["details"], gpus=gpus)


def gpu_of(row: RowMapping) -> RunGpu:
    """Return the GPU of a row."""
    return RunGpu(**_picked(row, _GPU))


def trace_of(row: RowMapping) -> TraceSummary:
    """Return the trace summary of a row."""
    return TraceSummary(**_picked(row, _TRACE))


def trial_of(row: RowMapping) -> TrialRecord:
    """Return the trial of a row."""
    setting = Setting(**_picked(row, _SETTING))
    has_setting = row["choice_kind"] == SETTING or setting != Setting()
    cost = Measurement(**_picked(row, _COST))
    return TrialRecord(**_picked(row, _TRIAL), setting=setting if has_setting else None, cost=cost)


def definition_row(job: Job) -> Row:
    """Return the row of a job's definition, without its number and date."""
    return _columns(job, _DEFINITION) | {"job": job.name, "batch_sizes": {"sizes": list(job.batch_sizes)}}


def job_of(row: RowMapping) -> Job:
    """Return the job of a row of definitions."""
    sizes = tuple(row["batch_sizes"]["sizes"])
    return Job(name=row["job"], batch_sizes=sizes, **_picked(row, _DEFINITION))


def job_run_row(record: RecordedRun) -> Row:
    """Return the row of a job's run, without its epochs."""
    run = record.run
    return (
        _columns(record, _JOB_RECORD)
        | _columns(run, _JOB_RUN)
        | {"position": run.order, "outcome": run.outcome.value, "settled": run.setting is not None}
        | _columns(run.setting, _SETTING)
        | _job_gpu_columns(run.gpu)
        | _columns(run.cost, _COST)
        | _columns(run.profiling, _COST, prefix="profiling_")
    )


def job_record_of(row: RowMapping, metrics: tuple[float | None, ...], *, comparable: bool) -> RecordedRun:
    """Return the job's run of a row, with its metrics."""
    run = JobRun(
        **_picked(row, _JOB_RUN),
        order=row["position"],
        gpu=_job_gpu_of(row),
        outcome=Outcome(row["outcome"]),
        metrics=metrics,
        cost=_cost_of(row, ""),
        profiling=_cost_of(row, "profiling_"),
        setting=Setting(**_picked(row, _SETTING)) if row["settled"] else None,
    )
    return RecordedRun(**_picked(row, _JOB_RECORD), run=run, comparable=comparable)


def profile_row(profile: Profile) -> Row:
    """Return the row of a profile, without its job, number and date."""
    trials = [to_json(trial.choice) | to_json(trial.cost) for trial in profile.trials]
    return {"batch_size": profile.batch_size, "trials": {"trials": trials}} | _job_gpu_columns(profile.gpu)


def profile_of(row: RowMapping) -> Profile:
    """Return the profile of a row."""
    trials = tuple(
        Trial(_SIDE_BY_SIDE.read(Setting, trial), _SIDE_BY_SIDE.read(Measurement, trial))
        for trial in row["trials"]["trials"]
    )
    return Profile(gpu=_job_gpu_of(row), batch_size=row["batch_size"], trials=trials)


def _job_gpu_columns(gpu: JobGpu) -> Row:
    return {"gpu": gpu.name, "simulated": gpu.simulated, "gpus": gpu.count, "max_power_w": gpu.max_power_w}


def _job_gpu_of(row: RowMapping) -> JobGpu:
    return JobGpu(name=row["gpu"], simulated=row["simulated"], max_power_w=row["max_power_w"], count=row["gpus"])


def _cost_of(row: RowMapping, prefix: str) -> Measurement | None:
    numbers = [row[prefix + name] for name in _COST]
    return None if numbers[0] is None or numbers[1] is None else Measurement(*numbers)


def _columns(record: object | None, names: Iterable[str], *, prefix: str = "") -> Row:
    """Return the fields of a record by column; all None without a record."""
    return {prefix + name: None if record is None else getattr(record, name) for name in names}


def _picked(row: RowMapping, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names}


def _numbered(run_id: str, rows: Iterable[Row]) -> list[Row]:
    return [{"run_id": run_id, "position": position} | row for position, row in enumerate(rows)]
