"""What is written of recurring jobs, each within a transaction that has the job locked."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, func, insert, select, update

from wattune.core.errors import InputError
from wattune.core.job import Job, JobGpu, JobRun, Outcome, Profile, Proposal
from wattune.core.measurement import Measurement
from wattune.store import job_tables as tables
from wattune.store.job_queries import Head, find_head, record_of_run
from wattune.store.job_records import RecordedRun
from wattune.store.job_rows import definition_row, profile_row, run_row
from wattune.store.job_states import given_up, replaceable
from wattune.store.records import storable


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
    table = tables.runs.c
    overdue = (table.job == head.job.name, table.outcome == Outcome.RUNNING.value, table.lease_until < at)
    lost = {"outcome": Outcome.LOST.value, "ended": head.submitted, "ended_at": table.lease_until}
    connection.execute(update(tables.runs).where(*overdue).values(lost))


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
    connection.execute(insert(tables.runs), run_row(record))
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
    connection.execute(update(tables.runs).where(tables.runs.c.id == record.run.id).values(run_row(record)))


def insert_profile(connection: Connection, head: Head, profile: Profile, at: datetime) -> None:
    """Nothing; the profile is the newest of its kind."""
    job = head.job.name
    number = connection.execute(select(func.count()).where(tables.profiles.c.job == job)).scalar_one()
    connection.execute(
        insert(tables.profiles), profile_row(profile) | {"job": job, "number": number, "measured_at": at}
    )
