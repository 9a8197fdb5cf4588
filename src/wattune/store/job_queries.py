"""What is read of recurring jobs, and the lock that makes one writer of many."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, func, select

from wattune.core.errors import StoreError
from wattune.core.job import Job, JobMemory, Outcome, Profile
from wattune.store import job_tables as tables
from wattune.store.job_records import JobSummary, RecordedRun
from wattune.store.job_rows import job_of, profile_of, record_of
from wattune.store.job_states import as_of, metrics_of
from wattune.store.protocol import NoSuchRun
from wattune.store.records import storable


@dataclass(frozen=True, slots=True)
class Head:
    """A job as it is defined now, and how far its numbers have come."""

    job: Job
    definition: int
    defined_at: datetime
    submitted: int
    recurrences: int
    comparable: frozenset[int]
    """The definitions of the same target and direction."""


def head_of(connection: Connection, name: str, *, locked: bool = False) -> Head:
    """The head of a job, which stays as it is until the transaction ends where it is `locked`."""
    head = find_head(connection, name, locked=locked)
    if head is None:
        raise no_job(connection, name)
    return head


def find_head(connection: Connection, name: str, *, locked: bool = False) -> Head | None:
    """The head of a job, or None where there is no such job."""
    query = select(tables.jobs).where(tables.jobs.c.name == storable(name))
    # SQLite knows no locks of rows, and needs none: its writers come one at a time.
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        return None
    table = tables.definitions.c
    rows = connection.execute(select(tables.definitions).where(table.job == row["name"])).mappings().all()
    today = next(each for each in rows if each["number"] == row["definition"])
    alike = {each["number"] for each in rows if _aim(each) == _aim(today)}
    counts = (row["submitted"], row["recurrences"])
    return Head(job_of(today), row["definition"], today["defined_at"], *counts, frozenset(alike))


def _aim(row: RowMapping) -> tuple[float, bool]:
    return (row["target"], row["higher_is_better"])


def head_of_run(connection: Connection, run_id: str, *, locked: bool = False) -> Head:
    """The head of the job that a run belongs to, locked or not."""
    name = connection.execute(select(tables.runs.c.job).where(tables.runs.c.id == storable(run_id))).scalar()
    if name is None:
        raise no_run(run_id)
    return head_of(connection, name, locked=locked)


def records_of(
    connection: Connection,
    head: Head,
    *,
    now: datetime,
    only: ColumnElement[bool] | None = None,
    limit: int | None = None,
) -> tuple[RecordedRun, ...]:
    """The runs of a job as of a moment, newest first."""
    query = select(tables.runs).where(tables.runs.c.job == head.job.name)
    if only is not None:
        query = query.where(only)
    query = query.order_by(tables.runs.c.position.desc()).limit(limit)
    rows = connection.execute(query).mappings().all()
    oldest = rows[-1]["position"] if rows else 0
    metrics = _metrics(connection, head.job.name, oldest=oldest, only=only)
    records = (
        record_of(row, metrics_of(metrics[row["id"]]), comparable=row["definition"] in head.comparable) for row in rows
    )
    return tuple(as_of(record, now, submitted=head.submitted) for record in records)


def record_of_run(connection: Connection, head: Head, run_id: str, *, now: datetime) -> RecordedRun:
    """One run as of a moment."""
    found = records_of(connection, head, now=now, only=tables.runs.c.id == storable(run_id))
    if not found:
        raise no_run(run_id)
    return found[0]


def epochs_of_run(connection: Connection, run_id: str) -> dict[int, float | None]:
    """The metric of every epoch that was reported."""
    table = tables.epochs.c
    rows = connection.execute(select(table.epoch, table.metric).where(table.run_id == run_id))
    return {row.epoch: row.metric for row in rows}


def memory_of(connection: Connection, head: Head, *, now: datetime) -> JobMemory:
    """What searchers may know of a job."""
    records = records_of(connection, head, now=now, only=tables.runs.c.definition.in_(head.comparable))
    return JobMemory(tuple(record.run for record in reversed(records)), _newest_profiles(connection, head.job.name))


def summaries(connection: Connection, *, now: datetime, name: str | None = None) -> tuple[JobSummary, ...]:
    """The jobs at a glance, by name."""
    names = select(tables.jobs.c.name).order_by(tables.jobs.c.name)
    if name is not None:
        names = names.where(tables.jobs.c.name == name)
    totals = _totals(connection, now)
    heads = [head_of(connection, each) for each in connection.execute(names).scalars().all()]
    return tuple(_summary(head, totals) for head in heads)


def no_job(connection: Connection, name: str) -> StoreError:
    """The error of whoever asks for a job that is not there, with the name that was meant perhaps."""
    names = list(connection.execute(select(tables.jobs.c.name)).scalars())
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "list the jobs with: wattune job list"
    return StoreError(f"there is no job {name!r} in the store", hint=hint)


def no_run(run_id: str) -> NoSuchRun:
    """The error of whoever names a run that is not there."""
    return NoSuchRun(
        f"there is no run {run_id!r} of any job in the store", hint="its job was forgotten, or it is of another store"
    )


def _metrics(
    connection: Connection, job: str, *, oldest: int, only: ColumnElement[bool] | None
) -> defaultdict[str, dict[int, float | None]]:
    epochs, runs = tables.epochs.c, tables.runs.c
    query = select(epochs.run_id, epochs.epoch, epochs.metric).join(tables.runs, runs.id == epochs.run_id)
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
    """Per job and kind of GPU: the runs, those that are running, the newest, and the sums of time and energy."""
    table = tables.runs.c
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


def _summary(head: Head, totals: dict[tuple[str, bool], RowMapping]) -> JobSummary:
    real, simulated = totals.get((head.job.name, False)), totals.get((head.job.name, True))
    both = [row for row in (real, simulated) if row is not None]
    return JobSummary(
        job=head.job,
        definition=head.definition,
        defined_at=head.defined_at,
        recurrences=head.recurrences,
        runs=sum(row["runs"] for row in both),
        running=sum(int(row["running"]) for row in both),
        last_run_at=max((row["last_run_at"] for row in both), default=None),
        energy_j=None if real is None else real["energy_j"],
        time_s=None if real is None else real["time_s"],
        simulated_energy_j=None if simulated is None else simulated["energy_j"],
        simulated_time_s=None if simulated is None else simulated["time_s"],
        simulated=simulated is not None,
    )
