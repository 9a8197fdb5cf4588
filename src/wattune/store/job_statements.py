"""SQL statements for recurring jobs, and their records as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Subquery, and_, case, func, insert, select, update

from wattune.core.bounds import is_finite
from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import InputError, StoreError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store import schema
from wattune.store.engine import DamagedRecord
from wattune.store.job_records import JobSummary, NoSuchRun, RecordedRun, storable_gpu
from wattune.store.records import storable
from wattune.store.schema import Row, record_of, row_of

MOST_EPOCHS = 10_000_000
"""Epochs of one run that are read: a damaged number would fill the memory."""


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """A job as it is defined now, and how many runs and recurrences it has."""

    job: Job
    definition: int
    defined_at: datetime
    submitted: int
    recurrences: int
    comparable: frozenset[int]
    """The definitions of the same target and direction."""


def current_job(connection: Connection, name: str, *, locked: bool = False) -> CurrentJob:
    """Return a job; if it is `locked`, nobody else changes it until the transaction ends."""
    current = find_job(connection, name, locked=locked)
    if current is not None:
        return current
    near = get_close_matches(name, connection.execute(select(schema.jobs.c.name)).scalars(), n=1)
    hint = f"did you mean {near[0]}?" if near else "list the jobs with: wattune job list"
    raise StoreError(f"there is no job {name!r} in the store", hint=hint)


def find_job(connection: Connection, name: str, *, locked: bool = False) -> CurrentJob | None:
    """Return a job, or None if there is no such job."""
    query = select(schema.jobs).where(schema.jobs.c.name == storable(name))
    # SQLite has no row locks and needs none: it lets one writer in at a time.
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        return None
    table = schema.definitions.c
    rows = connection.execute(select(schema.definitions).where(table.job == row["name"])).mappings().all()
    today = next((each for each in rows if each["number"] == row["definition"]), None)
    if today is None:
        raise DamagedRecord(f"the job {row['name']!r:.40} has no definition {row['definition']!r:.40}")
    aims = ("target", "higher_is_better")
    alike = frozenset(each["number"] for each in rows if all(each[aim] == today[aim] for aim in aims))
    job = record_of(Job, today, name=today["job"], batch_sizes=tuple(today["batch_sizes"]["sizes"]))
    return record_of(CurrentJob, row, job=job, defined_at=today["defined_at"], comparable=alike)


def job_of_run(connection: Connection, run_id: str, *, locked: bool = False) -> CurrentJob:
    """Return the job that a run belongs to."""
    name = connection.execute(select(schema.job_runs.c.job).where(schema.job_runs.c.id == storable(run_id))).scalar()
    if name is None:
        raise _no_run(run_id)
    return current_job(connection, name, locked=locked)


def records_of(
    connection: Connection,
    current: CurrentJob,
    *,
    now: datetime,
    only: ColumnElement[bool] | None = None,
    limit: int | None = None,
) -> tuple[RecordedRun, ...]:
    """Return the runs of a job as of a time, newest first."""
    query = select(schema.job_runs).where(schema.job_runs.c.job == current.job.name)
    if only is not None:
        query = query.where(only)
    query = query.order_by(schema.job_runs.c.position.desc()).limit(limit)
    metrics = _metrics(connection, query.with_only_columns(schema.job_runs.c.id).subquery())
    records = (
        _recorded_run(row, metrics[row["id"]], comparable=row["definition"] in current.comparable)
        for row in connection.execute(query).mappings()
    )
    return tuple(record.as_of(now, submitted=current.submitted) for record in records)


def record_of_run(connection: Connection, current: CurrentJob, run_id: str, *, now: datetime) -> RecordedRun:
    """Return one run as of a time."""
    found = records_of(connection, current, now=now, only=schema.job_runs.c.id == storable(run_id))
    if not found:
        raise _no_run(run_id)
    return found[0]


def epochs_of_run(connection: Connection, run_id: str) -> dict[int, float | None]:
    """Return the metric of every epoch that was reported."""
    table = schema.epochs.c
    rows = connection.execute(select(table.epoch, table.metric).where(table.run_id == run_id))
    return {row.epoch: row.metric for row in rows}


def memory_of(connection: Connection, current: CurrentJob, *, now: datetime) -> JobMemory:
    """Return what searchers may know of a job."""
    records = records_of(connection, current, now=now, only=schema.job_runs.c.definition.in_(current.comparable))
    return JobMemory(tuple(record.run for record in reversed(records)), _newest_profiles(connection, current.job.name))


def summaries(connection: Connection, *, now: datetime, name: str | None = None) -> tuple[JobSummary, ...]:
    """Return the summaries of all jobs, or of one, by name."""
    names = select(schema.jobs.c.name).order_by(schema.jobs.c.name)
    if name is not None:
        names = names.where(schema.jobs.c.name == name)
    totals = _totals(connection, now)
    jobs = [current_job(connection, each) for each in connection.execute(names).scalars().all()]
    return tuple(_summary(current, totals) for current in jobs)


def _no_run(run_id: str) -> NoSuchRun:
    return NoSuchRun(
        f"there is no run {run_id!r} of any job in the store", hint="its job was forgotten, or it is in another store"
    )


def _metrics(connection: Connection, run_ids: Subquery) -> defaultdict[str, dict[int, float | None]]:
    table = schema.epochs.c
    query = select(table.run_id, table.epoch, table.metric).where(table.run_id.in_(select(run_ids.c.id)))
    found: defaultdict[str, dict[int, float | None]] = defaultdict(dict)
    for run_id, epoch, metric in connection.execute(query):
        found[run_id][epoch] = metric
    return found


def _newest_profiles(connection: Connection, job: str) -> tuple[Profile, ...]:
    table = schema.profiles.c
    query = select(schema.profiles).where(table.job == job).order_by(table.number)
    profiles = (_profile_of(row) for row in connection.execute(query).mappings())
    newest = {(profile.gpu.key, profile.batch_size): profile for profile in profiles}
    return tuple(newest[key] for key in sorted(newest))


def _totals(connection: Connection, now: datetime) -> dict[tuple[str, bool], RowMapping]:
    """Return, per job and kind of GPU, the counts of runs, the newest, and the sums of time and energy."""
    table = schema.job_runs.c
    running = and_(table.outcome == Outcome.RUNNING.value, table.lease_until >= now)
    columns: tuple[Any, ...] = (
        func.count().label("runs"),
        func.sum(case((running, 1), else_=0)).label("running"),
        func.max(table.submitted_at).label("last_run_at"),
        func.sum(table.time_s).label("time_s"),
        func.sum(table.energy_j).label("energy_j"),
    )
    query = select(table.job, table.simulated, *columns).group_by(table.job, table.simulated)
    return {(row["job"], row["simulated"]): row for row in connection.execute(query).mappings()}


def _summary(current: CurrentJob, totals: dict[tuple[str, bool], RowMapping]) -> JobSummary:
    real, simulated = totals.get((current.job.name, False)), totals.get((current.job.name, True))
    both = [row for row in (real, simulated) if row is not None]
    return record_of(
        JobSummary,
        {},
        job=current.job,
        definition=current.definition,
        defined_at=current.defined_at,
        recurrences=current.recurrences,
        runs=sum(row["runs"] for row in both),
        running=sum(int(row["running"]) for row in both),
        last_run_at=max((row["last_run_at"] for row in both), default=None),
        energy_j=None if real is None else real["energy_j"],
        time_s=None if real is None else real["time_s"],
        simulated_energy_j=None if simulated is None else simulated["energy_j"],
        simulated_time_s=None if simulated is None else simulated["time_s"],
        simulated=simulated is not None,
    )


def insert_epochs(
    connection: Connection,
    run_id: str,
    metrics: Mapping[int, float | None],
    *,
    at: datetime,
    cost: Measurement | None = None,
) -> None:
    """Insert the metrics of epochs, each with what the run had cost by its end."""
    spent = {
        "reported_at": at,
        "time_s": None if cost is None else float(cost.time_s),
        "energy_j": None if cost is None else float(cost.energy_j),
    }
    rows = [{"run_id": run_id, "epoch": epoch, "metric": metric} | spent for epoch, metric in metrics.items()]
    if rows:
        connection.execute(insert(schema.epochs), rows)


def rewrite_run(connection: Connection, record: RecordedRun) -> None:
    """Update the row of a run; its epochs have their own rows."""
    connection.execute(update(schema.job_runs).where(schema.job_runs.c.id == record.run.id).values(job_run_row(record)))


# records as rows


def definition_row(job: Job) -> Row:
    """Return the row of a job's definition, without its number and date."""
    return row_of(schema.definitions, job, job=job.name, batch_sizes={"sizes": list(job.batch_sizes)})


def job_run_row(record: RecordedRun) -> Row:
    """Return the row of a job's run, without its epochs."""
    run = record.run
    others = {
        "position": run.order,
        "outcome": run.outcome.value,
        "settled": run.setting is not None,
        "steps": None if run.steps is None else to_json(run.steps),
    }
    profiling = {f"profiling_{name}": value for name, value in _cost_columns(run.profiling).items()}
    row = row_of(schema.job_runs, record, run, run.setting or Setting(), **others)
    return row | _gpu_columns(run.gpu) | _cost_columns(run.cost) | profiling


def _recorded_run(row: RowMapping, metrics: Mapping[int, float | None], *, comparable: bool) -> RecordedRun:
    run = record_of(
        JobRun,
        row,
        order=row["position"],
        gpu=_gpu_of(row),
        outcome=Outcome(row["outcome"]),
        metrics=_in_order(metrics),
        cost=_cost_of(row, ""),
        profiling=_cost_of(row, "profiling_"),
        setting=record_of(Setting, row) if row["settled"] else None,
        steps=_steps_of(row["steps"]),
    )
    return record_of(RecordedRun, row, run=run, comparable=comparable)


def _steps_of(document: object) -> StepAccount | None:
    try:
        return None if document is None else JsonReader(unknown_fields="skip").read(StepAccount, document)
    except InputError as error:
        raise DamagedRecord(f"the steps of a run cannot be read: {error}") from None


def _in_order(metrics: Mapping[int, float | None]) -> tuple[float | None, ...]:
    """Return the metric of every epoch up to the last; None for one that was not reported, or was no number."""
    last = max(metrics, default=-1)
    if last > MOST_EPOCHS or not all(metric is None or is_finite(metric) for metric in metrics.values()):
        raise DamagedRecord(f"the metrics of a run cannot be read: {last + 1} epochs")
    return tuple(metrics.get(epoch) for epoch in range(last + 1))


def profile_row(profile: Profile) -> Row:
    """Return the row of a profile, without its job, number and date."""
    trials = [to_json(trial.choice) | to_json(trial.cost) for trial in profile.trials]
    return {"batch_size": profile.batch_size, "trials": {"trials": trials}} | _gpu_columns(profile.gpu)


def _profile_of(row: RowMapping) -> Profile:
    reader = JsonReader(unknown_fields="skip")  # the setting and the cost of a trial share one object
    try:
        trials = tuple(
            Trial(reader.read(Setting, trial), reader.read(Measurement, trial)) for trial in row["trials"]["trials"]
        )
    except InputError as error:
        raise DamagedRecord(f"a profile cannot be read: {error}") from None
    return record_of(Profile, row, gpu=_gpu_of(row), trials=trials)


def _gpu_columns(gpu: JobGpu) -> Row:
    return {"gpu": gpu.name, "simulated": gpu.simulated, "gpus": gpu.count, "max_power_w": gpu.max_power_w}


def _gpu_of(row: RowMapping) -> JobGpu:
    try:
        return storable_gpu(record_of(JobGpu, row, name=row["gpu"], count=row["gpus"]))
    except InputError as error:
        raise DamagedRecord(str(error)) from None


def _cost_columns(cost: Measurement | None) -> Row:
    return {field.name: getattr(cost, field.name, None) for field in fields(Measurement)}


def _cost_of(row: RowMapping, prefix: str) -> Measurement | None:
    numbers = {field.name: row[prefix + field.name] for field in fields(Measurement)}
    return None if numbers["time_s"] is None or numbers["energy_j"] is None else record_of(Measurement, numbers)
