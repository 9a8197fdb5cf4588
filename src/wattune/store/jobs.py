"""The history of recurring jobs over SQLAlchemy: the same statements for SQLite and PostgreSQL.

Whoever writes locks the job first, so that all writers to one job come one after the other: on PostgreSQL by its row,
on SQLite because BEGIN IMMEDIATE lets one writer in at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, delete

from wattune.core.job import Job, JobGpu, JobMemory, JobRun, Outcome, Profile, metric_value
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store import tables
from wattune.store.engine import explained, keep_others_out, place_of, reading, writing
from wattune.store.job_records import (
    JobSummary,
    JobTotals,
    RecordedRun,
    check_lease,
    moment,
    storable_gpu,
    storable_job,
    storable_profile,
)
from wattune.store.job_statements import (
    Head,
    checked,
    define,
    ended,
    epochs_of_run,
    give_up_overdue,
    head_of,
    head_of_run,
    insert_epochs,
    insert_profile,
    insert_run,
    memory_of,
    new_job_run,
    place_of_epoch,
    record_of_run,
    records_of,
    renewed,
    rewrite_run,
    summaries,
    take_place_of,
    with_totals,
)
from wattune.store.protocol import Decide


class SqlJobStore:
    """The history of recurring jobs in a database of the newest schema."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def define_job(self, job: Job, *, now: datetime | None = None) -> Job:
        """The job as it is kept from now on: new, as it was, or redefined with its history whole."""
        job = storable_job(job)
        with self._writing() as connection:
            keep_others_out(connection)  # a job that is not there yet has no row to lock
            define(connection, job, moment(now))
        return job

    def job(self, name: str) -> Job:
        """The job as it was defined last; StoreError with the nearest name where there is none."""
        with self._reading() as connection:
            return head_of(connection, name).job

    def jobs(self, *, now: datetime | None = None) -> tuple[JobSummary, ...]:
        """Every job at a glance, by name."""
        with self._reading() as connection:
            return summaries(connection, now=moment(now))

    def job_memory(self, name: str, *, now: datetime | None = None) -> JobMemory:
        """What searchers may know: comparable runs, oldest first, and the newest profile of each size and part."""
        with self._reading() as connection:
            return memory_of(connection, head_of(connection, name), now=moment(now))

    def job_runs(self, name: str, *, limit: int | None = None, now: datetime | None = None) -> tuple[RecordedRun, ...]:
        """The runs with all that is kept of them, newest first, those of other targets too."""
        with self._reading() as connection:
            return records_of(connection, head_of(connection, name), now=moment(now), limit=limit)

    def job_run(self, run_id: str, *, now: datetime | None = None) -> RecordedRun:
        """One run, by its whole id."""
        with self._reading() as connection:
            return record_of_run(connection, head_of_run(connection, run_id), run_id, now=moment(now))

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
        """The run that was decided on, which is running from now on."""
        at, gpu = moment(now), storable_gpu(gpu)
        lease_until = at + timedelta(seconds=check_lease(lease_s))
        with self._writing() as connection:
            head = head_of(connection, name, locked=True)
            give_up_overdue(connection, head, at)
            recurrence = head.recurrences
            if replaces is not None:
                recurrence = take_place_of(connection, head, replaces, at)
            proposal = checked(decide(head.job, memory_of(connection, head, now=at)), head.job)
            run = new_job_run(head, proposal, gpu=gpu, recurrence=recurrence, at=at)
            insert_run(connection, head, run, replaces=replaces, lease_until=lease_until)
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
        """The run after one more epoch, its lease renewed."""
        at, number, totals = moment(now), metric_value(metric), JobTotals.of(cost, profiling, setting)
        check_lease(lease_s)
        with self._one_run(run_id, at) as (connection, head, found):
            record = renewed(found, at, lease_s=lease_s)
            known = epochs_of_run(connection, run_id)
            place = place_of_epoch(known, epoch, metric=number, max_epochs=head.job.max_epochs)
            if place is not None:
                insert_epochs(connection, run_id, {place: number}, at=at, cost=totals.cost)
            if place is not None and place >= found.run.epochs:  # a late report knows less of the totals
                record = with_totals(record, totals)
            rewrite_run(connection, record)
            return record_of_run(connection, head, run_id, now=at).run

    def renew(self, run_id: str, lease_s: float, *, now: datetime | None = None) -> JobRun:
        """The run, its lease renewed; `RunOver` where it has ended or was replaced."""
        at = moment(now)
        check_lease(lease_s)
        with self._one_run(run_id, at) as (connection, _, found):
            record = renewed(found, at, lease_s=lease_s)
            rewrite_run(connection, record)
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
        """The run, ended. The first ending stands: the same again changes nothing, another raises `RunOver`."""
        at, totals = moment(now), JobTotals.of(cost, profiling, setting)
        told = {epoch: metric_value(metric) for epoch, metric in enumerate(metrics)}
        with self._one_run(run_id, at) as (connection, head, found):
            record = ended(found, outcome, now=at, submitted=head.submitted)
            if record is None:
                return found.run
            known = epochs_of_run(connection, run_id)
            insert_epochs(connection, run_id, {epoch: told[epoch] for epoch in told if epoch not in known}, at=at)
            rewrite_run(connection, with_totals(record, totals))
            return record_of_run(connection, head, run_id, now=at).run

    def keep_profile(self, name: str, profile: Profile, *, now: datetime | None = None) -> None:
        """Nothing; the profile is the newest of its batch size and part, and older ones stay on record."""
        profile = storable_profile(profile)
        with self._writing() as connection:
            insert_profile(connection, head_of(connection, name, locked=True), profile, moment(now))

    def forget_job(self, name: str, *, now: datetime | None = None) -> JobSummary:
        """What the job was at a glance; all of it is gone."""
        with self._writing() as connection:
            job = head_of(connection, name, locked=True).job.name
            summary = summaries(connection, now=moment(now), name=job)[0]
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
    def _one_run(self, run_id: str, at: datetime) -> Iterator[tuple[Connection, Head, RecordedRun]]:
        """A transaction that has the job of a run locked, and the run as of a moment."""
        with self._writing() as connection:
            head = head_of_run(connection, run_id, locked=True)
            yield connection, head, record_of_run(connection, head, run_id, now=at)
