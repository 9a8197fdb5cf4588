"""SQL statements for recurring jobs: what is read, what is written, and the lock that lets one writer in at a time."""

from __future__ import annotations

import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, func, insert, select, update

from wattune.core.errors import InputError, StoreError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.store import tables
from wattune.store.job_records import JobSummary, NoSuchRun, RecordedRun
from wattune.store.records import storable
from wattune.store.tables import definition_row, job_of, job_record_of, job_run_row, profile_of, profile_row


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
    if current is None:
        raise _no_job(connection, name)
    return current


def find_job(connection: Connection, name: str, *, locked: bool = False) -> CurrentJob | None:
    """Return a job, or None if there is no such job."""
    query = select(tables.jobs).where(tables.jobs.c.name == storable(name))
    # SQLite has no row locks and needs none: it lets one writer in at a time.
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        return None
    table = tables.definitions.c
    rows = connection.execute(select(tables.definitions).where(table.job == row["name"])).mappings().all()
    today = next(each for each in rows if each["number"] == row["definition"])
    alike = {each["number"] for each in rows if _aim(each) == _aim(today)}
    counts = (row["submitted"], row["recurrences"])
    return CurrentJob(job_of(today), row["definition"], today["defined_at"], *counts, frozenset(alike))


def _aim(row: RowMapping) -> tuple[float, bool]:
    return (row["target"], row["higher_is_better"])


def job_of_run(connection: Connection, run_id: str, *, locked: bool = False) -> CurrentJob:
    """Return the job that a run belongs to."""
    name = connection.execute(select(tables.job_runs.c.job).where(tables.job_runs.c.id == storable(run_id))).scalar()
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
    query = select(tables.job_runs).where(tables.job_runs.c.job == current.job.name)
    if only is not None:
        query = query.where(only)
    query = query.order_by(tables.job_runs.c.position.desc()).limit(limit)
    rows = connection.execute(query).mappings().all()
    oldest = rows[-1]["position"] if rows else 0
    metrics = _metrics(connection, current.job.name, oldest=oldest, only=only)
    records = (
        job_record_of(row, _in_order(metrics[row["id"]]), comparable=row["definition"] in current.comparable)
        for row in rows
    )
    return tuple(record.as_of(now, submitted=current.submitted) for record in records)


def _in_order(known: Mapping[int, float | None]) -> tuple[float | None, ...]:
    """Return the metric of each epoch, None for epochs that were not reported."""
    return tuple(known.get(epoch) for epoch in range(max(known, default=-1) + 1))


def record_of_run(connection: Connection, current: CurrentJob, run_id: str, *, now: datetime) -> RecordedRun:
    """Return one run as of a time."""
    found = records_of(connection, current, now=now, only=tables.job_runs.c.id == storable(run_id))
    if not found:
        raise _no_run(run_id)
    return found[0]


def epochs_of_run(connection: Connection, run_id: str) -> dict[int, float | None]:
    """Return the metric of every epoch that was reported."""
    table = tables.epochs.c
    rows = connection.execute(select(table.epoch, table.metric).where(table.run_id == run_id))
    return {row.epoch: row.metric for row in rows}


def memory_of(connection: Connection, current: CurrentJob, *, now: datetime) -> JobMemory:
    """Return what searchers may know of a job."""
    records = records_of(connection, current, now=now, only=tables.job_runs.c.definition.in_(current.comparable))
    return JobMemory(tuple(record.run for record in reversed(records)), _newest_profiles(connection, current.job.name))


def summaries(connection: Connection, *, now: datetime, name: str | None = None) -> tuple[JobSummary, ...]:
    """Return the summaries of all jobs, or of one, by name."""
    names = select(tables.jobs.c.name).order_by(tables.jobs.c.name)
    if name is not None:
        names = names.where(tables.jobs.c.name == name)
    totals = _totals(connection, now)
    jobs = [current_job(connection, each) for each in connection.execute(names).scalars().all()]
    return tuple(_summary(current, totals) for current in jobs)


def _no_job(connection: Connection, name: str) -> StoreError:
    names = list(connection.execute(select(tables.jobs.c.name)).scalars())
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "list the jobs with: wattune job list"
    return StoreError(f"there is no job {name!r} in the store", hint=hint)


def _no_run(run_id: str) -> NoSuchRun:
    return NoSuchRun(
        f"there is no run {run_id!r} of any job in the store", hint="its job was forgotten, or it is in another store"
    )


def _metrics(
    connection: Connection, job: str, *, oldest: int, only: ColumnElement[bool] | None
) -> defaultdict[str, dict[int, float | None]]:
    epochs, runs = tables.epochs.c, tables.job_runs.c
    query = select(epochs.run_id, epochs.epoch, epochs.metric).join(tables.job_runs, runs.id == epochs.run_id)
    query = query.where(runs.job == job, runs.position >= oldest)
    if only is not None:
        query = query.where(only)
    found: defaultdict[str, dict[int, float | None]] = defaultdict(dict)
    for run_id, epoch, metric in connection.execute(query):
        found[run_id][epoch] = metric
    return found


def _newest_profiles(connection: Connection, job: str) -> tuple[Profile, ...]:
    table = tables.profiles.c
    query = select(tables.profiles).where(table.job == job).order_by(table.number)
    profiles = (profile_of(row) for row in connection.execute(query).mappings())
    newest = {(profile.gpu.key, profile.batch_size): profile for profile in profiles}
    return tuple(newest[key] for key in sorted(newest))


def _totals(connection: Connection, now: datetime) -> dict[tuple[str, bool], RowMapping]:
    """Return, per job and kind of GPU, the counts of runs, the newest, and the sums of time and energy."""
    table = tables.job_runs.c
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
    return JobSummary(
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


def define(connection: Connection, job: Job, at: datetime) -> None:
    """Store the definition of a job, under a new number if it changed."""
    current = find_job(connection, job.name, locked=True)
    if current is not None and current.job == job:
        return
    number = 1 if current is None else current.definition + 1
    if current is None:
        fresh = {"name": job.name, "definition": number, "submitted": 0, "recurrences": 0}
        connection.execute(insert(tables.jobs), fresh)
    else:
        connection.execute(update(tables.jobs).where(tables.jobs.c.name == job.name).values(definition=number))
    connection.execute(insert(tables.definitions), definition_row(job) | {"number": number, "defined_at": at})


def give_up_overdue(connection: Connection, current: CurrentJob, at: datetime) -> None:
    """Mark every run whose lease is over as lost."""
    table = tables.job_runs.c
    overdue = (table.job == current.job.name, table.outcome == Outcome.RUNNING.value, table.lease_until < at)
    lost = {"outcome": Outcome.LOST.value, "ended": current.submitted, "ended_at": table.lease_until}
    connection.execute(update(tables.job_runs).where(*overdue).values(lost))


def replace_run(connection: Connection, current: CurrentJob, run_id: str, at: datetime) -> int:
    """Mark a run as replaced, lost if it was running, and return its recurrence."""
    record = record_of_run(connection, current, run_id, now=at)
    record.check_replaceable()
    if record.run.outcome is Outcome.RUNNING:
        record = record.with_outcome(Outcome.LOST, at=at, submitted=current.submitted)
    rewrite_run(connection, replace(record, replaced=True))
    return record.run.recurrence


def checked(proposal: Proposal, job: Job) -> Proposal:
    """Return the proposal; InputError if the job has no such batch size."""
    if proposal.batch_size in job.batch_sizes:
        return proposal
    raise InputError(
        f"{job.name}: batch size {proposal.batch_size} was proposed, which the job does not have",
        hint=f"propose one of {', '.join(map(str, job.batch_sizes))}",
    )


def new_job_run(current: CurrentJob, proposal: Proposal, *, gpu: JobGpu, recurrence: int, at: datetime) -> JobRun:
    """Make the next run of a job."""
    return JobRun(
        id=str(uuid.uuid4()),
        order=current.submitted,
        recurrence=recurrence,
        batch_size=int(proposal.batch_size),
        gpu=gpu,
        exploring=bool(proposal.exploring),
        why=storable(proposal.why),
        submitted_at=at,
    )


def insert_run(
    connection: Connection, current: CurrentJob, run: JobRun, *, replaces: str | None, lease_until: datetime
) -> None:
    """Insert a run that this process does, and count it."""
    record = RecordedRun(
        job=current.job.name,
        definition=current.definition,
        comparable=True,
        run=run,
        replaces=replaces,
        lease_until=lease_until,
        host=storable(socket.gethostname()),
        pid=os.getpid(),
    )
    connection.execute(insert(tables.job_runs), job_run_row(record))
    counts = {"submitted": current.submitted + 1, "recurrences": max(current.recurrences, run.recurrence + 1)}
    connection.execute(update(tables.jobs).where(tables.jobs.c.name == current.job.name).values(counts))


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
        "time_s": None if cost is None else cost.time_s,
        "energy_j": None if cost is None else cost.energy_j,
    }
    rows = [{"run_id": run_id, "epoch": epoch, "metric": metric} | spent for epoch, metric in metrics.items()]
    if rows:
        connection.execute(insert(tables.epochs), rows)


def rewrite_run(connection: Connection, record: RecordedRun) -> None:
    """Update the row of a run; its epochs have their own rows."""
    connection.execute(update(tables.job_runs).where(tables.job_runs.c.id == record.run.id).values(job_run_row(record)))


def insert_profile(connection: Connection, current: CurrentJob, profile: Profile, at: datetime) -> None:
    """Insert a profile as the newest of the job."""
    job = current.job.name
    number = connection.execute(select(func.count()).where(tables.profiles.c.job == job)).scalar_one()
    connection.execute(
        insert(tables.profiles), profile_row(profile) | {"job": job, "number": number, "measured_at": at}
    )
