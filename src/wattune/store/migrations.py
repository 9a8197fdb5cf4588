"""The schema, as numbered migrations.

A released migration is never edited: a change of schema is a new one. Migrations are plain SQL that SQLite and
PostgreSQL share, and do not use `tables.py`, which describes the newest version only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, inspect, text

from wattune._version import __version__
from wattune.core.errors import StoreError
from wattune.store.engine import lock_store, place_of, reading, writing


@dataclass(frozen=True, slots=True)
class Migration:
    """The statements that bring a store from the previous version to this one."""

    version: int
    statements: tuple[str, ...]


MIGRATIONS = (
    Migration(
        1,
        (
            """
            CREATE TABLE wattune_runs (
                id TEXT NOT NULL PRIMARY KEY,
                kind TEXT NOT NULL,
                name TEXT NOT NULL,
                started_at TIMESTAMP WITH TIME ZONE NOT NULL,
                time_s DOUBLE PRECISION NOT NULL,
                energy_j DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                simulated BOOLEAN NOT NULL,
                host TEXT NOT NULL,
                version TEXT NOT NULL,
                note TEXT,
                details TEXT NOT NULL
            )
            """,
            "CREATE INDEX wattune_runs_started_at ON wattune_runs (started_at)",
            """
            CREATE TABLE wattune_run_gpus (
                run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                uuid TEXT NOT NULL,
                name TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                time_s DOUBLE PRECISION NOT NULL,
                energy_j DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                PRIMARY KEY (run_id, position)
            )
            """,
            """
            CREATE TABLE wattune_trials (
                run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                workload TEXT NOT NULL,
                gpu TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                choice_kind TEXT NOT NULL,
                choice TEXT NOT NULL,
                sm_mhz INTEGER,
                mem_mhz INTEGER,
                power_limit_w DOUBLE PRECISION,
                time_s DOUBLE PRECISION NOT NULL,
                energy_j DOUBLE PRECISION NOT NULL,
                time_error_s DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                PRIMARY KEY (run_id, position)
            )
            """,
            "CREATE INDEX wattune_trials_workload_gpu ON wattune_trials (workload, gpu)",
            """
            CREATE TABLE wattune_traces (
                run_id TEXT NOT NULL REFERENCES wattune_runs (id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                gpu TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                samples BIGINT NOT NULL,
                duration_s DOUBLE PRECISION NOT NULL,
                mean_power_w DOUBLE PRECISION,
                min_power_w DOUBLE PRECISION,
                max_power_w DOUBLE PRECISION,
                p95_power_w DOUBLE PRECISION,
                mean_sm_mhz DOUBLE PRECISION,
                mean_mem_mhz DOUBLE PRECISION,
                refresh_s DOUBLE PRECISION,
                PRIMARY KEY (run_id, position)
            )
            """,
        ),
    ),
    Migration(
        2,
        (
            """
            CREATE TABLE wattune_jobs (
                name TEXT NOT NULL PRIMARY KEY,
                definition INTEGER NOT NULL,
                submitted INTEGER NOT NULL,
                recurrences INTEGER NOT NULL
            )
            """,
            """
            CREATE TABLE wattune_job_definitions (
                job TEXT NOT NULL REFERENCES wattune_jobs (name) ON DELETE CASCADE,
                number INTEGER NOT NULL,
                defined_at TIMESTAMP WITH TIME ZONE NOT NULL,
                batch_sizes TEXT NOT NULL,
                default_batch_size BIGINT NOT NULL,
                target DOUBLE PRECISION NOT NULL,
                higher_is_better BOOLEAN NOT NULL,
                max_epochs BIGINT NOT NULL,
                objective TEXT NOT NULL,
                PRIMARY KEY (job, number)
            )
            """,
            """
            CREATE TABLE wattune_job_runs (
                id TEXT NOT NULL PRIMARY KEY,
                job TEXT NOT NULL REFERENCES wattune_jobs (name) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                definition INTEGER NOT NULL,
                recurrence INTEGER NOT NULL,
                replaces TEXT,
                replaced BOOLEAN NOT NULL,
                batch_size BIGINT NOT NULL,
                exploring BOOLEAN NOT NULL,
                why TEXT NOT NULL,
                gpu TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                gpus INTEGER NOT NULL,
                max_power_w DOUBLE PRECISION NOT NULL,
                host TEXT NOT NULL,
                pid INTEGER NOT NULL,
                submitted_at TIMESTAMP WITH TIME ZONE NOT NULL,
                lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
                outcome TEXT NOT NULL,
                ended_at TIMESTAMP WITH TIME ZONE,
                ended INTEGER,
                time_s DOUBLE PRECISION,
                energy_j DOUBLE PRECISION,
                time_error_s DOUBLE PRECISION,
                energy_error_j DOUBLE PRECISION,
                profiling_time_s DOUBLE PRECISION,
                profiling_energy_j DOUBLE PRECISION,
                profiling_time_error_s DOUBLE PRECISION,
                profiling_energy_error_j DOUBLE PRECISION,
                settled BOOLEAN NOT NULL,
                sm_mhz INTEGER,
                mem_mhz INTEGER,
                power_limit_w DOUBLE PRECISION,
                UNIQUE (job, position)
            )
            """,
            """
            CREATE TABLE wattune_job_epochs (
                run_id TEXT NOT NULL REFERENCES wattune_job_runs (id) ON DELETE CASCADE,
                epoch BIGINT NOT NULL,
                metric DOUBLE PRECISION,
                reported_at TIMESTAMP WITH TIME ZONE NOT NULL,
                time_s DOUBLE PRECISION,
                energy_j DOUBLE PRECISION,
                PRIMARY KEY (run_id, epoch)
            )
            """,
            """
            CREATE TABLE wattune_job_profiles (
                job TEXT NOT NULL REFERENCES wattune_jobs (name) ON DELETE CASCADE,
                number INTEGER NOT NULL,
                measured_at TIMESTAMP WITH TIME ZONE NOT NULL,
                batch_size BIGINT NOT NULL,
                gpu TEXT NOT NULL,
                simulated BOOLEAN NOT NULL,
                gpus INTEGER NOT NULL,
                max_power_w DOUBLE PRECISION NOT NULL,
                trials TEXT NOT NULL,
                PRIMARY KEY (job, number)
            )
            """,
        ),
    ),
)

_SCHEMA_TABLE = """
    CREATE TABLE IF NOT EXISTS wattune_schema (
        version INTEGER NOT NULL PRIMARY KEY,
        applied_at TEXT NOT NULL,
        program TEXT NOT NULL
    )
"""


def migrate(engine: Engine, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring a store to the newest version and return that.

    All missing migrations run in one transaction under a lock: of several processes that open a new store at once, one
    does the work and the others wait for it.
    """
    newest = migrations[-1].version
    with reading(engine) as connection:
        if _version(connection) == newest:
            return newest
    with writing(engine) as connection:
        lock_store(connection)
        found = _version(connection)
        if found > newest:
            raise _too_new(place_of(engine.url), found, newest)
        connection.execute(text(_SCHEMA_TABLE))
        for migration in migrations:
            if migration.version > found:
                _apply(connection, migration)
    return newest


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table("wattune_schema"):
        return 0
    return connection.execute(text("SELECT MAX(version) FROM wattune_schema")).scalar() or 0


def _apply(connection: Connection, migration: Migration) -> None:
    for statement in migration.statements:
        connection.execute(text(statement))
    connection.execute(
        text("INSERT INTO wattune_schema (version, applied_at, program) VALUES (:version, :applied_at, :program)"),
        {
            "version": migration.version,
            "applied_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "program": f"wattune {__version__}",
        },
    )


def _too_new(place: str, found: int, newest: int) -> StoreError:
    return StoreError(
        f"the store {place} is of version {found}, and this wattune ({__version__}) knows versions up to {newest}",
        hint="upgrade wattune (pip install --upgrade wattune), or name another store with WATTUNE_STORE",
    )
