"""The schema: its tables, for queries, and the migrations that create them.

A released migration is never edited: a change of schema is a new one, in plain SQL that SQLite and PostgreSQL share.
The columns of a table are written once, as long as no later migration changes them; such a migration leaves the text
that earlier ones use as it was, and gives the `Table` a text of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from types import UnionType
from typing import Any, TypeVar, get_origin, get_type_hints

import sqlalchemy as sa

from wattune._version import __version__
from wattune.core.errors import StoreError
from wattune.store.engine import DamagedRecord, lock_store, place_of, reading, writing

R = TypeVar("R")


class UtcTime(sa.TypeDecorator[datetime]):
    """A time: with its zone on PostgreSQL, as the text of its UTC time on SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class JsonText(sa.TypeDecorator[dict[str, Any]]):
    """A JSON document as ASCII text, which every database returns unchanged."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: sa.Dialect) -> str | None:
        del dialect
        return None if value is None else json.dumps(value, allow_nan=False)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> dict[str, Any] | None:
        del dialect
        return None if value is None else json.loads(value)


metadata = sa.MetaData()

_TYPES: dict[str, tuple[Any, str]] = {
    "text": (sa.Text, "TEXT"),
    "integer": (sa.Integer, "INTEGER"),
    "bigint": (sa.BigInteger, "BIGINT"),
    "double": (sa.Double, "DOUBLE PRECISION"),
    "boolean": (sa.Boolean, "BOOLEAN"),
    "time": (UtcTime, "TIMESTAMP WITH TIME ZONE"),
    "json": (JsonText, "TEXT"),
}

COLUMNS = {
    "wattune_runs": "id text!, kind text, name text, started_at time, time_s double, energy_j double?, "
    "energy_error_j double?, simulated boolean, host text, version text, note text?, details json",
    "wattune_run_gpus": "run_id text! wattune_runs.id, position integer!, uuid text, name text, simulated boolean, "
    "time_s double, energy_j double?, energy_error_j double?",
    "wattune_trials": "run_id text! wattune_runs.id, position integer!, workload text, gpu text, simulated boolean, "
    "choice_kind text, choice json, sm_mhz integer?, mem_mhz integer?, power_limit_w double?, time_s double, "
    "energy_j double, time_error_s double?, energy_error_j double?",
    "wattune_traces": "run_id text! wattune_runs.id, position integer!, gpu text, simulated boolean, samples bigint, "
    "duration_s double, mean_power_w double?, min_power_w double?, max_power_w double?, p95_power_w double?, "
    "mean_sm_mhz double?, mean_mem_mhz double?, refresh_s double?",
    "wattune_jobs": "name text!, definition integer, submitted integer, recurrences integer",
    "wattune_job_definitions": "job text! wattune_jobs.name, number integer!, defined_at time, batch_sizes json, "
    "default_batch_size bigint, target double, higher_is_better boolean, max_epochs bigint, objective text",
    "wattune_job_runs": "id text!, job text wattune_jobs.name, position integer, definition integer, "
    "recurrence integer, replaces text?, replaced boolean, batch_size bigint, exploring boolean, why text, gpu text, "
    "simulated boolean, gpus integer, max_power_w double, host text, pid integer, submitted_at time, "
    "lease_until time, outcome text, ended_at time?, ended integer?, time_s double?, energy_j double?, "
    "time_error_s double?, energy_error_j double?, profiling_time_s double?, profiling_energy_j double?, "
    "profiling_time_error_s double?, profiling_energy_error_j double?, settled boolean, sm_mhz integer?, "
    "mem_mhz integer?, power_limit_w double?",
    "wattune_job_epochs": "run_id text! wattune_job_runs.id, epoch bigint!, metric double?, reported_at time, "
    "time_s double?, energy_j double?",
    "wattune_job_profiles": "job text! wattune_jobs.name, number integer!, measured_at time, batch_size bigint, "
    "gpu text, simulated boolean, gpus integer, max_power_w double, trials json",
}
"""`NAME TYPE [TABLE.COLUMN]` per column: `TYPE?` may be NULL, `TYPE!` is of the primary key; then its reference."""

ADDED = {
    "wattune_job_definitions": "metric_file text?, metric_pattern text?, metric_http integer?, step_pattern text?",
    "wattune_job_runs": "steps json?",
}
"""Columns of the third version, all of which may be NULL."""


def _table(name: str) -> sa.Table:
    columns = ",".join(filter(None, (COLUMNS[name], ADDED.get(name))))
    return sa.Table(name, metadata, *(_column(*words.split()) for words in columns.split(",")))


def _column(name: str, kind: str, reference: str = "") -> sa.Column[Any]:
    del reference
    return sa.Column(name, _TYPES[kind.rstrip("!?")][0], primary_key=kind.endswith("!"), nullable=kind.endswith("?"))


runs = _table("wattune_runs")
run_gpus = _table("wattune_run_gpus")
trials = _table("wattune_trials")
traces = _table("wattune_traces")
jobs = _table("wattune_jobs")
definitions = _table("wattune_job_definitions")
job_runs = _table("wattune_job_runs")
epochs = _table("wattune_job_epochs")
profiles = _table("wattune_job_profiles")

Row = dict[str, Any]


def row_of(table: sa.Table, *records: Any, **others: Any) -> Row:
    """Return a row: the fields of the records that have the name of a column, and `others`."""
    found = {field.name: getattr(record, field.name) for record in records for field in fields(record)}
    return {name: value for name, value in found.items() if name in table.columns} | others


def record_of(kind: Callable[..., R], row: Mapping[Any, Any], **others: Any) -> R:
    """Make a record from the columns that have the name of one of its fields, and `others`.

    `DamagedRecord` if that is impossible: SQLite takes any value in any column, so that the types are checked here.
    """
    types = _types_of(kind)
    known = {name: row[name] for name in types if name in row} | others
    try:
        for name, value in known.items():
            _check_type(value, types[name])
        return kind(**known)
    except Exception as error:
        raise DamagedRecord(f"a record ({_words_of(kind)}) cannot be read: {error}") from error


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the type of every field of a record."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _check_type(value: object, wanted: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is in the place of a number")
    if get_origin(wanted) not in (None, UnionType):
        wanted = get_origin(wanted)
    if not isinstance(value, wanted | int if isinstance(0.0, wanted) else wanted):
        raise ValueError(f"{value!r:.40} is in the place of {getattr(wanted, '__name__', wanted)}")


def _words_of(kind: Any) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()


def _create(name: str, *constraints: str) -> str:
    columns = [words.split() for words in COLUMNS[name].split(",")]
    keys = [column for column, kind, *_ in columns if kind.endswith("!")]
    lines = [_definition(*column, only_key=len(keys) == 1) for column in columns]
    if len(keys) > 1:
        lines.append(f"PRIMARY KEY ({', '.join(keys)})")
    return f"CREATE TABLE {name} ( {', '.join((*lines, *constraints))} )"


def _add(name: str) -> tuple[str, ...]:
    columns = (words.split() for words in ADDED[name].split(","))
    return tuple(f"ALTER TABLE {name} ADD COLUMN {column} {_TYPES[kind.rstrip('?')][1]}" for column, kind in columns)


def _definition(name: str, kind: str, reference: str = "", *, only_key: bool) -> str:
    definition = f"{name} {_TYPES[kind.rstrip('!?')][1]}"
    if not kind.endswith("?"):
        definition += " NOT NULL"
    if only_key and kind.endswith("!"):
        definition += " PRIMARY KEY"
    if reference:
        table, column = reference.split(".")
        definition += f" REFERENCES {table} ({column}) ON DELETE CASCADE"
    return definition


Migration = tuple[str, ...]
"""The statements that bring a store from the version before to the next."""

MIGRATIONS: tuple[Migration, ...] = (
    (
        _create("wattune_runs"),
        "CREATE INDEX wattune_runs_started_at ON wattune_runs (started_at)",
        _create("wattune_run_gpus"),
        _create("wattune_trials"),
        "CREATE INDEX wattune_trials_workload_gpu ON wattune_trials (workload, gpu)",
        _create("wattune_traces"),
    ),
    (
        _create("wattune_jobs"),
        _create("wattune_job_definitions"),
        _create("wattune_job_runs", "UNIQUE (job, position)"),
        _create("wattune_job_epochs"),
        _create("wattune_job_profiles"),
    ),
    (*_add("wattune_job_definitions"), *_add("wattune_job_runs")),
)
"""The first makes version 1, and each next one the version after."""

_SCHEMA_TABLE = """
    CREATE TABLE IF NOT EXISTS wattune_schema (
        version INTEGER NOT NULL PRIMARY KEY,
        applied_at TEXT NOT NULL,
        program TEXT NOT NULL
    )
"""


def migrate(engine: sa.Engine, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring a store to the newest version and return that.

    All missing migrations run in one transaction under a lock: of several processes that open a new store at once, one
    does the work and the others wait for it.
    """
    newest = len(migrations)
    with reading(engine) as connection:
        if _version(connection) == newest:
            return newest
    with writing(engine) as connection:
        lock_store(connection)
        found = _version(connection)
        if found > newest:
            raise StoreError(
                f"the store {place_of(engine.url)} is of version {found}, and this wattune ({__version__}) knows "
                f"versions up to {newest}",
                hint="upgrade wattune (pip install --upgrade wattune), or name another store with WATTUNE_STORE",
            )
        connection.execute(sa.text(_SCHEMA_TABLE))
        for version, statements in enumerate(migrations[found:], start=found + 1):
            _apply(connection, version, statements)
    return newest


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table("wattune_schema"):
        return 0
    return connection.execute(sa.text("SELECT MAX(version) FROM wattune_schema")).scalar() or 0


def _apply(connection: sa.Connection, version: int, statements: Migration) -> None:
    for statement in statements:
        connection.execute(sa.text(statement))
    connection.execute(
        sa.text("INSERT INTO wattune_schema (version, applied_at, program) VALUES (:version, :applied_at, :program)"),
        {
            "version": version,
            "applied_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "program": f"wattune {__version__}",
        },
    )
