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

_TYPES: dict[str, Any] = {
    "text": Text,
    "integer": Integer,
    "bigint": BigInteger,
    "double": Double,
    "boolean": Boolean,
    "time": UtcTime,
    "json": JsonText,
}


def _table(name: str, columns: str) -> Table:
    """Make a table from `NAME TYPE` pairs; `TYPE?` may be NULL, `TYPE!` belongs to the primary key."""
    return Table(name, metadata, *(_column(*pair.split()) for pair in columns.split(",")))


def _column(name: str, kind: str, reference: str | None = None) -> Column[Any]:
    key, nullable = kind.endswith("!"), kind.endswith("?")
    foreign = () if reference is None else (ForeignKey(reference),)
    return Column(name, _TYPES[kind.rstrip("!?")], *foreign, primary_key=key, nullable=nullable)


runs = _table(
    "wattune_runs",
    "id text!, kind text, name text, started_at time, time_s double, energy_j double?, energy_error_j double?, "
    "simulated boolean, host text, version text, note text?, details json",
)
run_gpus = _table(
    "wattune_run_gpus",
    "run_id text! wattune_runs.id, position integer!, uuid text, name text, simulated boolean, time_s double, "
    "energy_j double?, energy_error_j double?",
)
trials = _table(
    "wattune_trials",
    "run_id text! wattune_runs.id, position integer!, workload text, gpu text, simulated boolean, "
    "choice_kind text, choice json, sm_mhz integer?, mem_mhz integer?, power_limit_w double?, time_s double, "
    "energy_j double, time_error_s double?, energy_error_j double?",
)
traces = _table(
    "wattune_traces",
    "run_id text! wattune_runs.id, position integer!, gpu text, simulated boolean, samples bigint, "
    "duration_s double, mean_power_w double?, min_power_w double?, max_power_w double?, p95_power_w double?, "
    "mean_sm_mhz double?, mean_mem_mhz double?, refresh_s double?",
)
jobs = _table(
    "wattune_jobs",
    "name text!, definition integer, submitted integer, recurrences integer",
)
definitions = _table(
    "wattune_job_definitions",
    "job text! wattune_jobs.name, number integer!, defined_at time, batch_sizes json, default_batch_size bigint, "
    "target double, higher_is_better boolean, max_epochs bigint, objective text",
)
job_runs = _table(
    "wattune_job_runs",
    "id text!, job text wattune_jobs.name, position integer, definition integer, recurrence integer, "
    "replaces text?, replaced boolean, batch_size bigint, exploring boolean, why text, gpu text, "
    "simulated boolean, gpus integer, max_power_w double, host text, pid integer, submitted_at time, "
    "lease_until time, outcome text, ended_at time?, ended integer?, time_s double?, energy_j double?, "
    "time_error_s double?, energy_error_j double?, profiling_time_s double?, profiling_energy_j double?, "
    "profiling_time_error_s double?, profiling_energy_error_j double?, settled boolean, sm_mhz integer?, "
    "mem_mhz integer?, power_limit_w double?",
)
epochs = _table(
    "wattune_job_epochs",
    "run_id text! wattune_job_runs.id, epoch bigint!, metric double?, reported_at time, time_s double?, "
    "energy_j double?",
)
profiles = _table(
    "wattune_job_profiles",
    "job text! wattune_jobs.name, number integer!, measured_at time, batch_size bigint, gpu text, "
    "simulated boolean, gpus integer, max_power_w double, trials json",
)
