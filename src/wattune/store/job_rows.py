"""Jobs, their runs and profiles as rows of the tables: what every call to the job store reads and writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from itertools import groupby
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Subquery, insert, select, update

from wattune.core.bounds import is_finite
from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import InputError, StoreError
from wattune.core.frontier import Trial
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store import schema
from wattune.store.engine import DamagedRecord
from wattune.store.job_records import CurrentJob, JobSummary, NoSuchRun, RecordedRun, storable_gpu
from wattune.store.records import storable
from wattune.store.schema import Row, record_of, row_of

T = TypeVar("T")

MOST_EPOCHS = 10_000_000
"""Epochs of one run that are read: a damaged number would fill the memory."""


def current_jobs(connection: Connection, name: str | None = None) -> tuple[CurrentJob, ...]:
    """Return all jobs, or the one of this name, by one statement."""
    both = schema.jobs.outerjoin(schema.definitions, schema.definitions.c.job == schema.jobs.c.name)
    query = select(schema.jobs, schema.definitions).select_from(both).order_by(schema.jobs.c.name)
    if name is not None:
        query = query.where(schema.jobs.c.name == storable(name))
    rows = connection.execute(query).mappings()
    return tuple(_current_job(list(group)) for _, group in groupby(rows, key=lambda row: row["name"]))


def _current_job(rows: Sequence[RowMapping]) -> CurrentJob:
    """Make a job of its rows, one for each definition."""
    today = next((row for row in rows if row["number"] == row["definition"]), None)
    if today is None:
        name, number = rows[0]["name"], rows[0]["definition"]
        raise DamagedRecord(f"the job {name!r:.40} has no definition {number!r:.40}")
    aims = ("target", "higher_is_better")
    comparable = frozenset(row["number"] for row in rows if all(row[aim] == today[aim] for aim in aims))
    return record_of(CurrentJob, today, job=_job_of(today), comparable=comparable)


def _job_of(row: RowMapping) -> Job:
    return record_of(Job, row, name=row["job"], batch_sizes=tuple(row["batch_sizes"]["sizes"]))


def job_as_defined(connection: Connection, name: str, number: int) -> Job:
    """Return a job as one of its definitions has it."""
    table = schema.definitions.c
    query = select(schema.definitions).where(table.job == storable(name), table.number == number)
    return _job_of(connection.execute(query).mappings().one())


def current_job(connection: Connection, name: str, *, locked: bool = False) -> CurrentJob:
    """Return a job; StoreError with the nearest name if there is none. See `find_job`."""
    current = find_job(connection, name, locked=locked)
    if current is not None:
        return current
    near = get_close_matches(name, connection.execute(select(schema.jobs.c.name)).scalars(), n=1)
    hint = f"did you mean {near[0]}?" if near else "list the jobs with: wattune job list"
    raise StoreError(f"there is no job {name!r} in the store", hint=hint)


def find_job(connection: Connection, name: str, *, locked: bool = False) -> CurrentJob | None:
    """Return a job, None if there is none; if it is `locked`, nobody else changes it until the transaction ends."""
    # SQLite has no row locks and needs none: it lets one writer in at a time. The row is locked before the definitions
    # are read, so that one that another writer adds meanwhile is among them.
    if locked and connection.dialect.name == "postgresql":
        connection.execute(select(schema.jobs.c.name).where(schema.jobs.c.name == storable(name)).with_for_update())
    return next(iter(current_jobs(connection, name)), None)


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


def comparable_runs(connection: Connection, current: CurrentJob, *, now: datetime) -> tuple[RecordedRun, ...]:
    """Return the runs that were submitted for today's target and direction, oldest first."""
    return records_of(connection, current, now=now, only=schema.job_runs.c.definition.in_(current.comparable))[::-1]


def memory_of(connection: Connection, current: CurrentJob, *, now: datetime) -> JobMemory:
    """Return what searchers may know of a job."""
    runs = tuple(record.run for record in comparable_runs(connection, current, now=now))
    return JobMemory(runs, newest_profiles(connection, current.job.name))


def newest_profiles(connection: Connection, job: str) -> tuple[Profile, ...]:
    """Return the newest profile of each GPU and batch size."""
    table = schema.profiles.c
    query = select(schema.profiles).where(table.job == job).order_by(table.number)
    profiles = (_profile_of(row) for row in connection.execute(query).mappings())
    newest = {(profile.gpu.key, profile.batch_size): profile for profile in profiles}
    return tuple(newest[key] for key in sorted(newest))


def summaries(connection: Connection, *, now: datetime, name: str | None = None) -> tuple[JobSummary, ...]:
    """Return the summaries of all jobs, or of one, by name."""
    table = schema.job_runs.c
    query = select(
        *(table.job, table.definition, table.simulated, table.submitted_at),
        *(table.outcome, table.lease_until, table.time_s, table.energy_j),
    ).order_by(table.position)
    if name is not None:
        query = query.where(table.job == name)
    runs: defaultdict[str, list[RowMapping]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        runs[row["job"]].append(row)
    return tuple(_summary(current, runs[current.job.name], now) for current in current_jobs(connection, name))


def _summary(current: CurrentJob, runs: Sequence[RowMapping], now: datetime) -> JobSummary:
    running = (row for row in runs if row["outcome"] == Outcome.RUNNING and row["lease_until"] >= now)
    costs = ((row, _cost_of(row, "")) for row in runs if row["definition"] in current.comparable)
    return record_of(
        JobSummary,
        {},
        job=current.job,
        definition=current.definition,
        defined_at=current.defined_at,
        recurrences=current.recurrences,
        runs=len(runs),
        running=sum(1 for _ in running),
        last_run_at=max((row["submitted_at"] for row in runs), default=None),
        energy_j=_total(runs, "energy_j", simulated=False),
        time_s=_total(runs, "time_s", simulated=False),
        simulated_energy_j=_total(runs, "energy_j", simulated=True),
        simulated_time_s=_total(runs, "time_s", simulated=True),
        simulated=any(row["simulated"] for row in runs),
        spent=tuple((row["submitted_at"], cost) for row, cost in costs if cost is not None),
    )


def _total(runs: Sequence[RowMapping], quantity: str, *, simulated: bool) -> float | None:
    known = [row[quantity] for row in runs if row["simulated"] is simulated and row[quantity] is not None]
    return sum(known) if known else None


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


def insert_run(connection: Connection, current: CurrentJob, record: RecordedRun) -> None:
    """Insert a run and count it."""
    connection.execute(insert(schema.job_runs), _job_run_row(record))
    recurrences = max(current.recurrences, record.run.recurrence + 1)
    counts = {"submitted": current.submitted + 1, "recurrences": recurrences}
    connection.execute(update(schema.jobs).where(schema.jobs.c.name == current.job.name).values(counts))


def rewrite_run(connection: Connection, record: RecordedRun) -> None:
    """Update the row of a run; its epochs have their own rows."""
    row = _job_run_row(record)
    connection.execute(update(schema.job_runs).where(schema.job_runs.c.id == record.run.id).values(row))


def definition_row(job: Job) -> Row:
    """Return the row of a job's definition, without its number and date."""
    return row_of(schema.definitions, job, job=job.name, batch_sizes={"sizes": list(job.batch_sizes)})


def profile_row(profile: Profile) -> Row:
    """Return the row of a profile, without its job, number and date."""
    trials = [to_json(trial.choice) | to_json(trial.cost) for trial in profile.trials]
    return {"batch_size": profile.batch_size, "trials": {"trials": trials}} | _gpu_columns(profile.gpu)


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


def _job_run_row(record: RecordedRun) -> Row:
    run = record.run
    others = {
        "position": run.order,
        "outcome": run.outcome.value,
        "settled": run.setting is not None,
        "steps": None if run.steps is None else to_json(run.steps),
        "gpu_memory_bytes": run.gpu.memory_bytes,
    }
    profiling = {f"profiling_{name}": value for name, value in _cost_columns(run.profiling).items()}
    row = row_of(schema.job_runs, record, run, run.setting or Setting(), **others)
    return row | _gpu_columns(run.gpu) | _cost_columns(run.cost) | profiling


def _recorded_run(row: RowMapping, metrics: Mapping[int, float | None], *, comparable: bool) -> RecordedRun:
    run = record_of(
        JobRun,
        row,
        order=row["position"],
        gpu=_gpu_of(row, memory_bytes=row["gpu_memory_bytes"]),
        outcome=Outcome(row["outcome"]),
        metrics=_in_order(metrics),
        cost=_cost_of(row, ""),
        profiling=_cost_of(row, "profiling_"),
        setting=record_of(Setting, row) if row["settled"] else None,
        steps=None if row["steps"] is None else _read(StepAccount, row["steps"]),
    )
    return record_of(RecordedRun, row, run=run, comparable=comparable)


def _in_order(metrics: Mapping[int, float | None]) -> tuple[float | None, ...]:
    """Return the metric of every epoch up to the last; None for one that was not reported, or was no number."""
    last = max(metrics, default=-1)
    if last > MOST_EPOCHS or not all(metric is None or is_finite(metric) for metric in metrics.values()):
        raise DamagedRecord(f"the metrics of a run cannot be read: {last + 1} epochs")
    return tuple(metrics.get(epoch) for epoch in range(last + 1))


def _profile_of(row: RowMapping) -> Profile:
    # The setting and the cost of a trial share one object.
    trials = tuple(Trial(_read(Setting, trial), _read(Measurement, trial)) for trial in row["trials"]["trials"])
    return record_of(Profile, row, gpu=_gpu_of(row), trials=trials)


def _read(kind: type[T], document: object) -> T:
    try:
        return JsonReader(unknown_fields="skip").read(kind, document)
    except InputError as error:
        raise DamagedRecord(f"a record cannot be read: {error}") from None


def _gpu_columns(gpu: JobGpu) -> Row:
    return {"gpu": gpu.name, "simulated": gpu.simulated, "gpus": gpu.count, "max_power_w": gpu.max_power_w}


def _gpu_of(row: RowMapping, *, memory_bytes: int | None = None) -> JobGpu:
    try:
        return storable_gpu(record_of(JobGpu, row, name=row["gpu"], count=row["gpus"], memory_bytes=memory_bytes))
    except InputError as error:
        raise DamagedRecord(str(error)) from None


def _cost_columns(cost: Measurement | None) -> Row:
    return {name: getattr(cost, name, None) for name in schema.COST}


def _cost_of(row: RowMapping, prefix: str) -> Measurement | None:
    numbers = {name: row[prefix + name] for name in schema.COST if prefix + name in row}
    return None if numbers["time_s"] is None or numbers["energy_j"] is None else record_of(Measurement, numbers)
