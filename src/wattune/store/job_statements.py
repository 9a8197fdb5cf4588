"""What is read of recurring jobs, and the lock that makes one writer of many."""

from __future__ import annotations

import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, func, insert, select, update

from wattune.core.errors import InputError, StoreError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.store import tables
from wattune.store.job_records import JobSummary, JobTotals, RecordedRun
from wattune.store.job_rows import definition_row, job_of, profile_of, profile_row, record_of, run_row
from wattune.store.protocol import EpochReported, NoSuchRun, RunOver
from wattune.store.records import storable


def as_of(record: RecordedRun, now: datetime, *, submitted: int) -> RecordedRun:
    """The record at a moment: a run whose lease is over by then is lost."""
    if record.run.outcome is not Outcome.RUNNING or now <= record.lease_until:
        return record
    return given_up(record, at=record.lease_until, submitted=submitted)


def given_up(record: RecordedRun, *, at: datetime, submitted: int) -> RecordedRun:
    """The record of a run that was running and is lost."""
    return replace(record, run=replace(record.run, outcome=Outcome.LOST, ended=submitted), ended_at=at)


def renewed(record: RecordedRun, now: datetime, *, lease_s: float) -> RecordedRun:
    """The record with a new lease, running again if it was lost; `RunOver` where the run is over for good."""
    if record.replaced or record.run.outcome not in (Outcome.RUNNING, Outcome.LOST):
        raise run_over(record)
    run = replace(record.run, outcome=Outcome.RUNNING, ended=None)
    return replace(record, run=run, ended_at=None, lease_until=now + timedelta(seconds=lease_s))


def with_totals(record: RecordedRun, totals: JobTotals) -> RecordedRun:
    """The record with what was spent so far and the setting that holds; None leaves each as it was."""
    run = record.run
    cost = run.cost if totals.cost is None else totals.cost
    profiling = run.profiling if totals.profiling is None else totals.profiling
    setting = run.setting if totals.setting is None else totals.setting
    return replace(record, run=replace(run, cost=cost, profiling=profiling, setting=setting))


def ended(record: RecordedRun, outcome: Outcome, *, now: datetime, submitted: int) -> RecordedRun | None:
    """The record with its ending, or None where it ended like this before; `RunOver` where it ended otherwise."""
    if outcome is Outcome.RUNNING:
        raise InputError("running is no ending", hint="end a run with how it went: reached, missed, stopped, ...")
    if record.run.outcome is outcome:
        return None
    if record.replaced or record.run.outcome not in (Outcome.RUNNING, Outcome.LOST):
        raise run_over(record)
    return replace(record, run=replace(record.run, outcome=outcome, ended=submitted), ended_at=now)


def replaceable(record: RecordedRun) -> None:
    """Nothing; StoreError where another run has no place to take."""
    if record.run.outcome is Outcome.REACHED:
        raise StoreError(
            f"run {record.run.id} reached its target, so nothing is to take its place",
            hint="submit a recurrence of its own",
        )


def place_of_epoch(
    known: Mapping[int, float | None], epoch: int | None, *, metric: float | None, max_epochs: int
) -> int | None:
    """Which epoch a report is for, from 0; None where the same was reported before.

    Epochs may be skipped, though not beyond the last that the job allows: a mistyped number would make a long void.
    """
    following = max(known, default=-1) + 1
    if epoch is None or epoch == following:
        return following
    if epoch in known:
        if known[epoch] == metric:
            return None
        raise EpochReported(
            f"epoch {epoch} was reported before, as {_shown(known[epoch])}; {_shown(metric)} is not taken",
            hint="report each epoch once",
        )
    if not 0 <= epoch < max(following, max_epochs):
        raise InputError(
            f"there is no epoch {epoch}: {following} were reported, and the job has at most {max_epochs}",
            hint="epochs count from 0",
        )
    return epoch


def metrics_of(known: Mapping[int, float | None]) -> tuple[float | None, ...]:
    """What was reported after each epoch, None where nothing was."""
    return tuple(known.get(epoch) for epoch in range(max(known, default=-1) + 1))


def run_over(record: RecordedRun) -> RunOver:
    """The error of whoever goes on with a run that is over."""
    run = record.run
    words = "another run took its place" if record.replaced else f"it ended as {run.outcome.value.replace('_', ' ')}"
    return RunOver(f"run {run.id} of {record.job} is over: {words}", hint="submit a new run")


def _shown(metric: float | None) -> str:
    return "no number" if metric is None else f"{metric:g}"


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
    name = connection.execute(select(tables.job_runs.c.job).where(tables.job_runs.c.id == storable(run_id))).scalar()
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
    query = select(tables.job_runs).where(tables.job_runs.c.job == head.job.name)
    if only is not None:
        query = query.where(only)
    query = query.order_by(tables.job_runs.c.position.desc()).limit(limit)
    rows = connection.execute(query).mappings().all()
    oldest = rows[-1]["position"] if rows else 0
    metrics = _metrics(connection, head.job.name, oldest=oldest, only=only)
    records = (
        record_of(row, metrics_of(metrics[row["id"]]), comparable=row["definition"] in head.comparable) for row in rows
    )
    return tuple(as_of(record, now, submitted=head.submitted) for record in records)


def record_of_run(connection: Connection, head: Head, run_id: str, *, now: datetime) -> RecordedRun:
    """One run as of a moment."""
    found = records_of(connection, head, now=now, only=tables.job_runs.c.id == storable(run_id))
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
    records = records_of(connection, head, now=now, only=tables.job_runs.c.definition.in_(head.comparable))
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
    """Per job and kind of GPU: the runs, those that are running, the newest, and the sums of time and energy."""
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


def define(connection: Connection, job: Job, at: datetime) -> None:
    """Nothing; the job is kept as it is defined here, under a new number unless that is how it was."""
    head = find_head(connection, job.name, locked=True)
    if head is not None and head.job == job:
        return
    number = 1 if head is None else head.definition + 1
    if head is None:
        fresh = {"name": job.name, "definition": number, "submitted": 0, "recurrences": 0}
        connection.execute(insert(tables.jobs), fresh)
    else:
        connection.execute(update(tables.jobs).where(tables.jobs.c.name == job.name).values(definition=number))
    connection.execute(insert(tables.definitions), definition_row(job) | {"number": number, "defined_at": at})


def give_up_overdue(connection: Connection, head: Head, at: datetime) -> None:
    """Nothing; every run whose lease is over is lost."""
    table = tables.job_runs.c
    overdue = (table.job == head.job.name, table.outcome == Outcome.RUNNING.value, table.lease_until < at)
    lost = {"outcome": Outcome.LOST.value, "ended": head.submitted, "ended_at": table.lease_until}
    connection.execute(update(tables.job_runs).where(*overdue).values(lost))


def take_place_of(connection: Connection, head: Head, run_id: str, at: datetime) -> int:
    """The recurrence of the run whose place is taken, which is over from now on at the latest."""
    record = record_of_run(connection, head, run_id, now=at)
    replaceable(record)
    if record.run.outcome is Outcome.RUNNING:
        record = given_up(record, at=at, submitted=head.submitted)
    rewrite_run(connection, replace(record, replaced=True))
    return record.run.recurrence


def checked(proposal: Proposal, job: Job) -> Proposal:
    """The proposal; InputError where the job has no such batch size."""
    if proposal.batch_size in job.batch_sizes:
        return proposal
    raise InputError(
        f"{job.name}: batch size {proposal.batch_size} was proposed, which the job does not have",
        hint=f"propose one of {', '.join(map(str, job.batch_sizes))}",
    )


def new_job_run(head: Head, proposal: Proposal, *, gpu: JobGpu, recurrence: int, at: datetime) -> JobRun:
    """The next run of a job."""
    return JobRun(
        id=str(uuid.uuid4()),
        order=head.submitted,
        recurrence=recurrence,
        batch_size=int(proposal.batch_size),
        gpu=gpu,
        exploring=bool(proposal.exploring),
        why=storable(proposal.why),
        submitted_at=at,
    )


def insert_run(connection: Connection, head: Head, run: JobRun, *, replaces: str | None, lease_until: datetime) -> None:
    """Nothing; the run is kept as one of this process, and counted."""
    record = RecordedRun(
        job=head.job.name,
        definition=head.definition,
        comparable=True,
        run=run,
        replaces=replaces,
        lease_until=lease_until,
        host=storable(socket.gethostname()),
        pid=os.getpid(),
    )
    connection.execute(insert(tables.job_runs), run_row(record))
    counts = {"submitted": head.submitted + 1, "recurrences": max(head.recurrences, run.recurrence + 1)}
    connection.execute(update(tables.jobs).where(tables.jobs.c.name == head.job.name).values(counts))


def insert_epochs(
    connection: Connection,
    run_id: str,
    metrics: Mapping[int, float | None],
    *,
    at: datetime,
    cost: Measurement | None = None,
) -> None:
    """Nothing; the epochs are kept, each with what the run had cost by its end."""
    spent = {
        "reported_at": at,
        "time_s": None if cost is None else cost.time_s,
        "energy_j": None if cost is None else cost.energy_j,
    }
    rows = [{"run_id": run_id, "epoch": epoch, "metric": metric} | spent for epoch, metric in metrics.items()]
    if rows:
        connection.execute(insert(tables.epochs), rows)


def rewrite_run(connection: Connection, record: RecordedRun) -> None:
    """Nothing; the run is kept as this record has it, its epochs apart."""
    connection.execute(update(tables.job_runs).where(tables.job_runs.c.id == record.run.id).values(run_row(record)))


def insert_profile(connection: Connection, head: Head, profile: Profile, at: datetime) -> None:
    """Nothing; the profile is the newest of its kind."""
    job = head.job.name
    number = connection.execute(select(func.count()).where(tables.profiles.c.job == job)).scalar_one()
    connection.execute(
        insert(tables.profiles), profile_row(profile) | {"job": job, "number": number, "measured_at": at}
    )
