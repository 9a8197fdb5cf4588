"""The tables of a store, how a store of an earlier version gets them, and rows as records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
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


def _columns(kind: Any, *names: str) -> list[sa.Column[Any]]:
    """Return columns of one type, which always have a value."""
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names]


def _part_of(table: sa.Table, name: str, *, key: bool = True) -> sa.Column[Any]:
    """Return a column with the key of another table, whose row takes this one with it when it is deleted."""
    owner = sa.ForeignKey(next(iter(table.primary_key.columns)), ondelete="CASCADE")
    return sa.Column(name, sa.Text, owner, primary_key=key, nullable=False)


def _place(name: str, kind: Any = sa.Integer) -> sa.Column[Any]:
    """Return the column that numbers the rows of one owner."""
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


COST = ("time_s", "energy_j", "time_error_s", "energy_error_j")
metadata = sa.MetaData()

versions = sa.Table(
    "wattune_schema",
    metadata,
    _place("version"),
    *_columns(sa.Text, "applied_at", "program"),
)
runs = sa.Table(
    "wattune_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *_columns(sa.Text, "kind", "name"),
    *_columns(UtcTime, "started_at"),
    *_columns(sa.Double, "time_s"),
    *_optional(sa.Double, "energy_j", "energy_error_j"),
    *_columns(sa.Boolean, "simulated"),
    *_columns(sa.Text, "host", "version"),
    *_optional(sa.Text, "note"),
    *_columns(JsonText, "details"),
    sa.Index("wattune_runs_started_at", "started_at"),
)
run_gpus = sa.Table(
    "wattune_run_gpus",
    metadata,
    _part_of(runs, "run_id"),
    _place("position"),
    *_columns(sa.Text, "uuid", "name"),
    *_columns(sa.Boolean, "simulated"),
    *_columns(sa.Double, "time_s"),
    *_optional(sa.Double, "energy_j", "energy_error_j"),
)
trials = sa.Table(
    "wattune_trials",
    metadata,
    _part_of(runs, "run_id"),
    _place("position"),
    *_columns(sa.Text, "workload", "gpu"),
    *_columns(sa.Boolean, "simulated"),
    *_columns(sa.Text, "choice_kind"),
    *_columns(JsonText, "choice"),
    *_optional(sa.Integer, "sm_mhz", "mem_mhz"),
    *_optional(sa.Double, "power_limit_w"),
    *_columns(sa.Double, "time_s", "energy_j"),
    *_optional(sa.Double, "time_error_s", "energy_error_j"),
    sa.Index("wattune_trials_workload_gpu", "workload", "gpu"),
)
traces = sa.Table(
    "wattune_traces",
    metadata,
    _part_of(runs, "run_id"),
    _place("position"),
    *_columns(sa.Text, "gpu"),
    *_columns(sa.Boolean, "simulated"),
    *_columns(sa.BigInteger, "samples"),
    *_columns(sa.Double, "duration_s"),
    *_optional(sa.Double, "mean_power_w", "min_power_w", "max_power_w", "p95_power_w"),
    *_optional(sa.Double, "mean_sm_mhz", "mean_mem_mhz", "refresh_s"),
)
jobs = sa.Table(
    "wattune_jobs",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    *_columns(sa.Integer, "definition", "submitted", "recurrences"),
)
definitions = sa.Table(
    "wattune_job_definitions",
    metadata,
    _part_of(jobs, "job"),
    _place("number"),
    *_columns(UtcTime, "defined_at"),
    *_columns(JsonText, "batch_sizes"),
    *_columns(sa.BigInteger, "default_batch_size"),
    *_columns(sa.Double, "target"),
    *_columns(sa.Boolean, "higher_is_better"),
    *_columns(sa.BigInteger, "max_epochs"),
    *_columns(sa.Text, "objective"),
    *_optional(sa.Text, "metric_file", "metric_pattern"),
    *_optional(sa.Integer, "metric_http"),
    *_optional(sa.Text, "step_pattern"),
)
job_runs = sa.Table(
    "wattune_job_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _part_of(jobs, "job", key=False),
    *_columns(sa.Integer, "position", "definition", "recurrence"),
    *_optional(sa.Text, "replaces"),
    *_columns(sa.Boolean, "replaced"),
    *_columns(sa.BigInteger, "batch_size"),
    *_columns(sa.Boolean, "exploring"),
    *_columns(sa.Text, "why", "gpu"),
    *_columns(sa.Boolean, "simulated"),
    *_columns(sa.Integer, "gpus"),
    *_columns(sa.Double, "max_power_w"),
    *_columns(sa.Text, "host"),
    *_columns(sa.Integer, "pid"),
    *_columns(UtcTime, "submitted_at", "lease_until"),
    *_columns(sa.Text, "outcome"),
    *_optional(UtcTime, "ended_at"),
    *_optional(sa.Integer, "ended"),
    *_optional(sa.Double, *COST, *(f"profiling_{name}" for name in COST)),
    *_columns(sa.Boolean, "settled"),
    *_optional(sa.Integer, "sm_mhz", "mem_mhz"),
    *_optional(sa.Double, "power_limit_w"),
    *_optional(JsonText, "steps"),
    *_optional(sa.BigInteger, "gpu_memory_bytes"),
    sa.UniqueConstraint("job", "position"),
)
epochs = sa.Table(
    "wattune_job_epochs",
    metadata,
    _part_of(job_runs, "run_id"),
    _place("epoch", sa.BigInteger),
    *_optional(sa.Double, "metric"),
    *_columns(UtcTime, "reported_at"),
    *_optional(sa.Double, "time_s", "energy_j"),
)
profiles = sa.Table(
    "wattune_job_profiles",
    metadata,
    _part_of(jobs, "job"),
    _place("number"),
    *_columns(UtcTime, "measured_at"),
    *_columns(sa.BigInteger, "batch_size"),
    *_columns(sa.Text, "gpu"),
    *_columns(sa.Boolean, "simulated"),
    *_columns(sa.Integer, "gpus"),
    *_columns(sa.Double, "max_power_w"),
    *_columns(JsonText, "trials"),
)

VERSION = 4
"""Version 1 has the tables of runs, and 2 those of jobs. A version is never changed once it is released."""

LATER_COLUMNS = (
    *(definitions.c[name] for name in ("metric_file", "metric_pattern", "metric_http", "step_pattern")),  # 3
    job_runs.c.steps,  # 3
    job_runs.c.gpu_memory_bytes,  # 4
)
"""Columns that a table of an earlier version may lack, with the version that added them; all may be NULL."""


def migrate(engine: sa.Engine) -> None:
    """Bring a store to the newest version.

    All that is missing is added in one transaction under a lock: of several processes that open a new store at once,
    one does the work and the others wait for it.
    """
    with reading(engine) as connection:
        if _version(connection) == VERSION:
            return
    with writing(engine) as connection:
        lock_store(connection)
        found = _version(connection)
        if found > VERSION:
            raise StoreError(
                f"the store {place_of(engine.url)} is of version {found}, and this wattune ({__version__}) knows "
                f"versions up to {VERSION}",
                hint="upgrade wattune (pip install --upgrade wattune), or name another store with WATTUNE_STORE",
            )
        metadata.create_all(connection)
        if found:
            _add_later_columns(connection)
        applied = {"applied_at": datetime.now(UTC).isoformat(timespec="seconds"), "program": f"wattune {__version__}"}
        for version in range(found + 1, VERSION + 1):
            connection.execute(sa.insert(versions), {"version": version} | applied)


def _add_later_columns(connection: sa.Connection) -> None:
    found = sa.inspect(connection)
    for column in LATER_COLUMNS:
        if column.name not in {known["name"] for known in found.get_columns(column.table.name)}:
            definition = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {definition}"))


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(versions.name):
        return 0
    return connection.execute(sa.select(sa.func.max(versions.c.version))).scalar() or 0


# rows as records

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
