"""The tables of the newest schema, for queries. `migrations.py` creates them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)


class UtcTime(TypeDecorator[datetime]):
    """A time: with its zone on PostgreSQL, as the text of its UTC time on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class JsonText(TypeDecorator[dict[str, Any]]):
    """A JSON document as ASCII text, which every database returns unchanged."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else json.dumps(value, allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:
        del dialect
        return None if value is None else json.loads(value)


metadata = MetaData()

runs = Table(
    "wattune_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("energy_j", Double),
    Column("energy_error_j", Double),
    Column("simulated", Boolean, nullable=False),
    Column("host", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("note", Text),
    Column("details", JsonText, nullable=False),
)


def _of_run() -> tuple[Column[Any], Column[Any]]:
    """Return the columns that link a row to its run and keep the order."""
    run_id: Column[Any] = Column("run_id", Text, ForeignKey("wattune_runs.id"), primary_key=True)
    return run_id, Column("position", Integer, primary_key=True)


run_gpus = Table(
    "wattune_run_gpus",
    metadata,
    *_of_run(),
    Column("uuid", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("energy_j", Double),
    Column("energy_error_j", Double),
)

trials = Table(
    "wattune_trials",
    metadata,
    *_of_run(),
    Column("workload", Text, nullable=False),
    Column("gpu", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("choice_kind", Text, nullable=False),
    Column("choice", JsonText, nullable=False),
    Column("sm_mhz", Integer),
    Column("mem_mhz", Integer),
    Column("power_limit_w", Double),
    Column("time_s", Double, nullable=False),
    Column("energy_j", Double, nullable=False),
    Column("time_error_s", Double),
    Column("energy_error_j", Double),
)

traces = Table(
    "wattune_traces",
    metadata,
    *_of_run(),
    Column("gpu", Text, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("duration_s", Double, nullable=False),
    Column("mean_power_w", Double),
    Column("min_power_w", Double),
    Column("max_power_w", Double),
    Column("p95_power_w", Double),
    Column("mean_sm_mhz", Double),
    Column("mean_mem_mhz", Double),
    Column("refresh_s", Double),
)


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

job_runs = Table(
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
