"""The history of recurring jobs over SQLAlchemy: the same statements for SQLite and PostgreSQL.

A writer locks the job first, so that all writers to one job take turns: on PostgreSQL by the lock of its row, on SQLite
because BEGIN IMMEDIATE lets one writer in at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, delete

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, metric_value
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store import job_statements as statements
from wattune.store import tables
from wattune.store.engine import explained, lock_store, place_of, reading, writing
from wattune.store.job_records import (
    JobSummary,
    JobTotals,
    RecordedRun,
    check_lease,
    place_of_epoch,
    storable_gpu,
    storable_job,
    storable_profile,
    utc_time,
)
from wattune.store.protocol import Decide


class SqlJobStore:
    """The history of recurring jobs in a database of the newest schema."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def define_job(self, job: Job, *, now: datetime | None = None) -> Job:
        job = storable_job(job)
        with self._writing() as connection:
            lock_store(connection)  # a job that does not exist yet has no row to lock
            statements.define(connection, job, utc_time(now))
        return job

    def job(self, name: str) -> Job:
        with self._reading() as connection:
            return statements.current_job(connection, name).job

    def jobs(self, *, now: datetime | None = None) -> tuple[JobSummary, ...]:
        with self._reading() as connection:
            return statements.summaries(connection, now=utc_time(now))

    def job_memory(self, name: str, *, now: datetime | None = None) -> JobMemory:
        with self._reading() as connection:
            return statements.memory_of(connection, statements.current_job(connection, name), now=utc_time(now))

    def job_runs(self, name: str, *, limit: int | None = None, now: datetime | None = None) -> tuple[RecordedRun, ...]:
        with self._reading() as connection:
            return statements.records_of(
                connection, statements.current_job(connection, name), now=utc_time(now), limit=limit
            )

    def job_run(self, run_id: str, *, now: datetime | None = None) -> RecordedRun:
        with self._reading() as connection:
            return statements.record_of_run(
                connection, statements.job_of_run(connection, run_id), run_id, now=utc_time(now)
            )

    def submit(
        self,
        name: str,
        gpu: JobGpu,
        decide: Decide,
        *,
        lease_s: float,
        now: datetime | None = None,
        replaces: str | None = None,
    ) -> JobRun:
        at, gpu = utc_time(now), storable_gpu(gpu)
        lease_until = at + timedelta(seconds=check_lease(lease_s))
        with self._writing() as connection:
            current = statements.current_job(connection, name, locked=True)
            statements.give_up_overdue(connection, current, at)
            recurrence = current.recurrences
            if replaces is not None:
                recurrence = statements.replace_run(connection, current, replaces, at)
            proposal = statements.checked(
                decide(current.job, statements.memory_of(connection, current, now=at)), current.job
            )
            run = statements.new_job_run(current, proposal, gpu=gpu, recurrence=recurrence, at=at)
            statements.insert_run(connection, current, run, replaces=replaces, lease_until=lease_until)
        return run

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
        at, number, totals = utc_time(now), metric_value(metric), JobTotals(cost, profiling, setting)
        check_lease(lease_s)
        with self._one_run(run_id, at) as (connection, current, found):
            record = found.renewed(at, lease_s=lease_s)
            known = statements.epochs_of_run(connection, run_id)
            place = place_of_epoch(known, epoch, metric=number, max_epochs=current.job.max_epochs)
            if place is not None:
                statements.insert_epochs(connection, run_id, {place: number}, at=at, cost=totals.cost)
            if place is not None and place >= found.run.epochs:  # a late report knows less of the totals
                record = record.with_totals(totals)
            statements.rewrite_run(connection, record)
            return statements.record_of_run(connection, current, run_id, now=at).run

    def renew(self, run_id: str, lease_s: float, *, now: datetime | None = None) -> JobRun:
        at = utc_time(now)
        check_lease(lease_s)
        with self._one_run(run_id, at) as (connection, _, found):
            record = found.renewed(at, lease_s=lease_s)
            statements.rewrite_run(connection, record)
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
        at, totals = utc_time(now), JobTotals(cost, profiling, setting)
        reported = {epoch: metric_value(metric) for epoch, metric in enumerate(metrics)}
        with self._one_run(run_id, at) as (connection, current, found):
            record = found.ended(outcome, now=at, submitted=current.submitted)
            if record is found:
                return found.run
            known = statements.epochs_of_run(connection, run_id)
            statements.insert_epochs(
                connection, run_id, {epoch: reported[epoch] for epoch in reported if epoch not in known}, at=at
            )
            statements.rewrite_run(connection, record.with_totals(totals))
            return statements.record_of_run(connection, current, run_id, now=at).run

    def keep_profile(self, name: str, profile: Profile, *, now: datetime | None = None) -> None:
        profile = storable_profile(profile)
        with self._writing() as connection:
            statements.insert_profile(
                connection, statements.current_job(connection, name, locked=True), profile, utc_time(now)
            )

    def forget_job(self, name: str, *, now: datetime | None = None) -> JobSummary:
        with self._writing() as connection:
            job = statements.current_job(connection, name, locked=True).job.name
            summary = statements.summaries(connection, now=utc_time(now), name=job)[0]
            connection.execute(delete(tables.jobs).where(tables.jobs.c.name == job))
            return summary

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(place_of(self._engine.url)), reading(self._engine) as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with explained(place_of(self._engine.url)), writing(self._engine) as connection:
            yield connection

    @contextmanager
    def _one_run(self, run_id: str, at: datetime) -> Iterator[tuple[Connection, statements.CurrentJob, RecordedRun]]:
        """Open a transaction that has the job of a run locked; yield it, the job, and the run as of a time."""
        with self._writing() as connection:
            current = statements.job_of_run(connection, run_id, locked=True)
            yield connection, current, statements.record_of_run(connection, current, run_id, now=at)
