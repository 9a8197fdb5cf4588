"""The tables of recurring jobs in the newest schema, for making queries."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Integer, Table, Text

from wattune.store.tables import JsonText, UtcTime, metadata

jobs = Table(
    "wattune_jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("definition", Integer, nullable=False),
    Column("submitted", Integer, nullable=False),
    Column("recurrences", Integer, nullable=False),
)


def _numbered_of_job() -> tuple[Column[Any], Column[Any]]:
    job: Column[Any] = Column("job", Text, ForeignKey("wattune_jobs.name"), primary_key=True)
    return job, Column("number", Integer, primary_key=True)


definitions = Table(
    "wattune_job_definitions",
    metadata,
    *_numbered_of_job(),
    Column("defined_at", UtcTime, nullable=False),
    Column("batch_sizes", JsonText, nullable=False),
    Column("default_batch_size", BigInteger, nullable=False),
    Column("target", Double, nullable=False),
    Column("higher_is_better", Boolean, nullable=False),
    Column("max_epochs", BigInteger, nullable=False),
    Column("objective", Text, nullable=False),
)

runs = Table(
    "wattune_job_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job", Text, ForeignKey("wattune_jobs.name"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("definition", Integer, nullable=False),
    Column("recurrence", Integer, nullable=False),
    Column("replaces", Text),
    Column("replaced", Boolean, nullable=False),
    Column("batch_size", BigInteger, nullable=False),
    Column("exploring", Boolean, nullable=False),
    Column("why", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("max_power_w", Double, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("submitted_at", UtcTime, nullable=False),
    Column("lease_until", UtcTime, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("ended_at", UtcTime),
    Column("ended", Integer),
    Column("time_s", Double),
    Column("energy_j", Double),
    Column("time_error_s", Double),
    Column("energy_error_j", Double),
    Column("profiling_time_s", Double),
    Column("profiling_energy_j", Double),
    Column("profiling_time_error_s", Double),
    Column("profiling_energy_error_j", Double),
    Column("settled", Boolean, nullable=False),
    Column("sm_mhz", Integer),
    Column("mem_mhz", Integer),
    Column("power_limit_w", Double),
)

epochs = Table(
    "wattune_job_epochs",
    metadata,
    Column("run_id", Text, ForeignKey("wattune_job_runs.id"), primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("metric", Double),
    Column("reported_at", UtcTime, nullable=False),
    Column("time_s", Double),
    Column("energy_j", Double),
)

profiles = Table(
    "wattune_job_profiles",
    metadata,
    *_numbered_of_job(),
    Column("measured_at", UtcTime, nullable=False),
    Column("batch_size", BigInteger, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("max_power_w", Double, nullable=False),
    Column("trials", JsonText, nullable=False),
)
