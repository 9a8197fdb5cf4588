"""The history of recurring jobs over SQLAlchemy: the same statements for SQLite and PostgreSQL.

A writer locks the job first, so that all writers to one job take turns: on PostgreSQL by the lock of its row, on SQLite
because BEGIN IMMEDIATE lets one writer in at a time. No lock is held while a policy decides.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from wattune.core.errors import InputError, StoreError
from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, Proposal, metric_value
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store import job_rows, schema
from wattune.store.engine import lock_store, reading, writing
from wattune.store.job_records import (
    CurrentJob,
    EndedRun,
    JobSummary,
    NoSuchRun,
    RecordedRun,
    check_lease,
    place_of_epoch,
    storable_gpu,
    storable_job,
    storable_profile,
    utc_time,
)

Decide = Callable[[Job, JobMemory], Proposal]
"""Chooses the batch size of a run from what is known; called again if that has changed meanwhile."""


class JobStore:
    """The history of recurring jobs in a database of the newest schema."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def define_job(self, job: Job, *, now: datetime | None = None) -> Job:
        """Store a job, new or redefined, and return it; its history is kept.

        After a change of target or direction, older runs leave the memory; `job_runs` still returns them.
        """
        job = storable_job(job)
        with writing(self._engine) as connection:
            lock_store(connection)  # a job that does not exist yet has no row to lock
            define(connection, job, utc_time(now))
        return job

    def find_job(self, name: str) -> Job | None:
        """Return the newest definition of a job, None if there is no such job."""
        with reading(self._engine) as connection:
            current = job_rows.find_job(connection, name)
            return None if current is None else current.job

    def job(self, name: str) -> Job:
        """Return the newest definition of a job; StoreError with the nearest name if there is none."""
        with reading(self._engine) as connection:
            return job_rows.current_job(connection, name).job

    def jobs(self, *, now: datetime | None = None) -> tuple[JobSummary, ...]:
        """Return the summary of every job, by name."""
        with reading(self._engine) as connection:
            return job_rows.summaries(connection, now=utc_time(now))

    def job_memory(self, name: str, *, now: datetime | None = None) -> JobMemory:
        """Return what searchers may know: comparable runs, oldest first, and the newest profile of each size and GPU.

        A run whose lease is over counts as lost, even before that is written to the store.
        """
        with reading(self._engine) as connection:
            return job_rows.memory_of(connection, job_rows.current_job(connection, name), now=utc_time(now))

    def job_runs(self, name: str, *, limit: int | None = None, now: datetime | None = None) -> tuple[RecordedRun, ...]:
        """Return the full records of the runs, newest first, those of other targets included."""
        with reading(self._engine) as connection:
            current = job_rows.current_job(connection, name)
            return job_rows.records_of(connection, current, now=utc_time(now), limit=limit)

    def job_run(self, run_id: str, *, now: datetime | None = None) -> RecordedRun:
        """Return one run, by its whole id."""
        with reading(self._engine) as connection:
            current = job_rows.job_of_run(connection, run_id)
            return job_rows.record_of_run(connection, current, run_id, now=utc_time(now))

    def submit(
        self,
        name: str,
        gpu: JobGpu,
        decide: Decide,
        *,
        lease_s: float,
        now: datetime | None = None,
        replaces: str | None = None,
        run_id: str | None = None,
    ) -> JobRun:
        """Store and return a run of this process with the batch size that `decide` returns.

        It belongs to a new recurrence or, if it replaces a run that did not reach the target, to the same as that one.
        A replaced run that was still running is lost. If `decide` fails, no run is stored. It is called while others
        may write; if another run was submitted or has ended by its return, it is called again with that one.
        """
        at = utc_time(now)
        lease_until = at + timedelta(seconds=check_lease(lease_s))
        begun = JobRun(
            id=run_id or str(uuid.uuid4()),
            order=0,
            recurrence=0,
            batch_size=0,
            gpu=storable_gpu(gpu),
            submitted_at=at,
        )
        while True:
            with reading(self._engine) as connection:
                current = job_rows.current_job(connection, name)
                memory, seen = _memory_without(connection, current, replaces, at), _state(connection, current)
            choice = decide(current.job, memory)
            _check_size(choice.batch_size, current.job)
            run = replace(begun, batch_size=choice.batch_size, exploring=choice.exploring, why=choice.why)
            with writing(self._engine) as connection:
                current = job_rows.current_job(connection, name, locked=True)
                if _state(connection, current) == seen:
                    _give_up_overdue(connection, current, at)
                    record = RecordedRun.begun(
                        current,
                        run,
                        replaces=replaces,
                        lease_until=lease_until,
                        host=socket.gethostname(),
                        pid=os.getpid(),
                    )
                    if replaces is not None:
                        recurrence = _replace_run(connection, current, replaces, at)
                        record = replace(record, run=replace(record.run, recurrence=recurrence))
                    job_rows.insert_run(connection, current, record)
                    return record.run

    def report(
        self,
        run_id: str,
        *,
        metric: float | None,
        lease_s: float,
        cost: Measurement | None = None,
        profiling: Measurement | None = None,
        setting: Setting | None = None,
        epoch: int | None = None,
        now: datetime | None = None,
    ) -> JobRun:
        """Store the metric of an epoch, renew the lease and return the run.

        `cost` and `profiling` are totals so far; None leaves them as they were. `epoch` counts from 0; by default it is
        the next one. A repeated report changes nothing, another metric for the same epoch raises `EpochReported`, and
        skipped epochs are None and may be reported late. A lost run is running again, unless it was replaced. A run
        that is over raises `RunOver`.
        """
        at, number = utc_time(now), metric_value(metric)
        check_lease(lease_s)
        with self._one_run(run_id, at) as (connection, current, found):
            record = found.renewed(at, lease_s=lease_s)
            known = job_rows.epochs_of_run(connection, run_id)
            place = place_of_epoch(known, epoch, metric=number, max_epochs=current.job.max_epochs)
            if place is not None:
                job_rows.insert_epochs(connection, run_id, {place: number}, at=at, cost=cost)
            if place is not None and place >= found.run.epochs:  # a late report knows less of the totals
                record = record.with_totals(replace(record.run, cost=cost, profiling=profiling, setting=setting))
            job_rows.rewrite_run(connection, record)
            return job_rows.record_of_run(connection, current, run_id, now=at).run

    def renew(self, run_id: str, lease_s: float, *, now: datetime | None = None) -> JobRun:
        """Renew the lease of a run and return the run; `RunOver` if it has ended or was replaced."""
        at = utc_time(now)
        check_lease(lease_s)
        with self._one_run(run_id, at) as (connection, _, found):
            record = found.renewed(at, lease_s=lease_s)
            job_rows.rewrite_run(connection, record)
            return record.run

    def end_run(
        self,
        run_id: str,
        outcome: Outcome,
        *,
        cost: Measurement | None = None,
        profiling: Measurement | None = None,
        setting: Setting | None = None,
        metrics: Sequence[float | None] = (),
        now: datetime | None = None,
    ) -> JobRun:
        """End a run and return it. The same end again changes nothing; another outcome raises `RunOver`.

        `metrics` may hold all that the run reported; epochs that are not in the store yet are taken from there.
        """
        at = utc_time(now)
        with self._one_run(run_id, at) as (connection, current, found):
            run = replace(found.run, outcome=outcome, cost=cost, profiling=profiling, setting=setting)
            end(connection, current, found, replace(run, metrics=tuple(metrics)), at)
            return job_rows.record_of_run(connection, current, run_id, now=at).run

    def add_ended_run(self, ended: EndedRun) -> bool:
        """Store a run that ended without the store, or its end only; return whether the store did not have that.

        The job keeps its definition of today, if it has one. `NoSuchRun` if the run was submitted, and not to this
        store or to a job that was forgotten.
        """
        at = ended.ended_at
        with writing(self._engine) as connection:
            if not ended.submitted:  # its job may not exist yet, and then has no row to lock
                lock_store(connection)
            try:
                current = job_rows.job_of_run(connection, ended.run.id, locked=True)
            except NoSuchRun:
                if ended.submitted or ended.job is None:
                    raise
                current, found = _late_run(connection, storable_job(ended.job), ended)
            else:
                found = job_rows.record_of_run(connection, current, ended.run.id, now=at)
                if not ended.submitted:  # a submission that was given up came through later, with another choice
                    found = replace(found, run=replace(found.run, batch_size=int(ended.run.batch_size)))
            return end(connection, current, found, ended.run, at)

    def keep_profile(self, name: str, profile: Profile, *, now: datetime | None = None) -> None:
        """Store a profile as the newest of its batch size and GPU; older ones stay on record."""
        profile = storable_profile(profile)
        with writing(self._engine) as connection:
            job = job_rows.current_job(connection, name, locked=True).job.name
            number = connection.execute(select(func.count()).where(schema.profiles.c.job == job)).scalar_one()
            row = job_rows.profile_row(profile) | {"job": job, "number": number, "measured_at": utc_time(now)}
            connection.execute(insert(schema.profiles), row)

    def forget_job(self, name: str, *, now: datetime | None = None) -> JobSummary:
        """Delete a job with all its runs and profiles, and return its summary."""
        with writing(self._engine) as connection:
            job = job_rows.current_job(connection, name, locked=True).job.name
            summary = job_rows.summaries(connection, now=utc_time(now), name=job)[0]
            connection.execute(delete(schema.jobs).where(schema.jobs.c.name == job))
            return summary

    @contextmanager
    def _one_run(self, run_id: str, at: datetime) -> Iterator[tuple[Connection, CurrentJob, RecordedRun]]:
        """Open a transaction that has the job of a run locked; yield it, the job, and the run as of a time."""
        with writing(self._engine) as connection:
            current = job_rows.job_of_run(connection, run_id, locked=True)
            yield connection, current, job_rows.record_of_run(connection, current, run_id, now=at)


def _state(connection: Connection, current: CurrentJob) -> tuple[int, int, int]:
    """Return what changes whenever a job is redefined, or one of its runs is submitted, is lost or ends."""
    table = schema.job_runs.c
    over = (table.job == current.job.name, table.outcome != Outcome.RUNNING.value)
    return current.definition, current.submitted, connection.execute(select(func.count()).where(*over)).scalar_one()


def _memory_without(connection: Connection, current: CurrentJob, replaced: str | None, at: datetime) -> JobMemory:
    """Return what is known of a job, once a run is replaced: that one is lost if it was running."""
    if replaced is not None:
        job_rows.record_of_run(connection, current, replaced, now=at).check_replaceable()
    records = job_rows.comparable_runs(connection, current, now=at)
    runs = tuple((_replaced(each, current, at) if each.run.id == replaced else each).run for each in records)
    return JobMemory(runs, job_rows.newest_profiles(connection, current.job.name))


def _replaced(record: RecordedRun, current: CurrentJob, at: datetime) -> RecordedRun:
    if record.run.outcome is Outcome.RUNNING:
        record = record.with_outcome(Outcome.LOST, at=at, submitted=current.submitted)
    return replace(record, replaced=True)


def define(connection: Connection, job: Job, at: datetime) -> CurrentJob:
    """Make this the definition of its job, where it is not, and return the job."""
    current = job_rows.find_job(connection, job.name, locked=True)
    if current is not None and current.job == job:
        return current
    number = 1 if current is None else current.definition + 1
    if current is None:
        fresh = {"name": job.name, "definition": number, "submitted": 0, "recurrences": 0}
        connection.execute(insert(schema.jobs), fresh)
    else:
        connection.execute(update(schema.jobs).where(schema.jobs.c.name == job.name).values(definition=number))
    row = job_rows.definition_row(job) | {"number": number, "defined_at": at}
    connection.execute(insert(schema.definitions), row)
    return job_rows.current_job(connection, job.name, locked=True)


def _give_up_overdue(connection: Connection, current: CurrentJob, at: datetime) -> None:
    """Mark every run whose lease is over as lost."""
    table = schema.job_runs.c
    overdue = (table.job == current.job.name, table.outcome == Outcome.RUNNING.value, table.lease_until < at)
    lost = {"outcome": Outcome.LOST.value, "ended": current.submitted, "ended_at": table.lease_until}
    connection.execute(update(schema.job_runs).where(*overdue).values(lost))


def _replace_run(connection: Connection, current: CurrentJob, run_id: str, at: datetime) -> int:
    """Mark a run as replaced, lost if it was running, and return its recurrence."""
    record = job_rows.record_of_run(connection, current, run_id, now=at)
    record.check_replaceable()
    job_rows.rewrite_run(connection, _replaced(record, current, at))
    return record.run.recurrence


def _late_run(connection: Connection, job: Job, ended: EndedRun) -> tuple[CurrentJob, RecordedRun]:
    """Insert a run that was done without the store, under the definition that it was started with."""
    at = ended.ended_at
    before = job_rows.find_job(connection, job.name, locked=True)
    current = define(connection, job, at)
    record = replace(ended.record(current), replaces=None)
    with suppress(StoreError):  # the run that it replaces is not in the store, or was no failure
        recurrence = _replace_run(connection, current, ended.replaces or "", utc_time(ended.run.submitted_at))
        record = replace(record, replaces=ended.replaces, run=replace(record.run, recurrence=recurrence))
    job_rows.insert_run(connection, current, record)
    return define(connection, job if before is None else before.job, at), record


def end(connection: Connection, current: CurrentJob, found: RecordedRun, run: JobRun, at: datetime) -> bool:
    """Write the end of a run, with the epochs that the store does not have; return whether it had not ended so."""
    record = found.ended(run.outcome, now=at, submitted=current.submitted)
    if record is found:
        return False
    known = job_rows.epochs_of_run(connection, run.id)
    missing = {epoch: metric_value(metric) for epoch, metric in enumerate(run.metrics) if epoch not in known}
    job_rows.insert_epochs(connection, run.id, missing, at=at)
    job_rows.rewrite_run(connection, record.with_totals(run))
    return True


def _check_size(batch_size: int, job: Job) -> None:
    if batch_size not in job.batch_sizes:
        raise InputError(
            f"{job.name}: batch size {batch_size} was proposed, which the job does not have",
            hint=f"propose one of {', '.join(map(str, job.batch_sizes))}",
        )
