"""Stores of earlier versions are migrated with every row unchanged.

Each file of `stores` is an SQLite store of one schema version, as `sqlite3 history.db .dump` writes it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from job_store_contract import A_GPU, A_JOB, size
from store_contract import a_run
from wattune.core.job import Outcome
from wattune.core.measurement import Measurement
from wattune.store.engine import engine_of
from wattune.store.schema import migrate
from wattune.store.sql_store import Store, open_store

FOLDER = Path(__file__).parent / "stores"
FILES = sorted(FOLDER.glob("version-*.sql"))


def left_behind(dump: Path, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text(encoding="utf-8"))
    connection.close()


def columns(path: Path) -> dict[str, dict[str, tuple[object, ...]]]:
    """Of every table: by column, whether it may be NULL, its place in the key, and what it refers to."""
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found: dict[str, dict[str, tuple[object, ...]]] = {}
    for table in tables:
        owners = {row[3]: (row[2], row[6]) for row in connection.execute(f"PRAGMA foreign_key_list({table})")}
        rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
        found[table] = {name: (bool(null), key, owners.get(name)) for _, name, _, null, _, key in rows}
    connection.close()
    return found


def indexes(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    connection.close()
    return names


@pytest.mark.parametrize("dump", FILES, ids=lambda file: file.stem)
def test_an_old_store_is_migrated_with_its_rows(dump: Path, tmp_path: Path) -> None:
    left_behind(dump, tmp_path / "history.db")
    store = open_store(str(tmp_path / "history.db"))
    assert store.runs() == (a_run("7a10", minutes=3, simulated=False).run, a_run("5f0c").run)
    assert store.run("5f0c") == a_run("5f0c")
    assert store.run("7a10") == a_run("7a10", minutes=3, simulated=False)
    store.jobs.define_job(A_JOB)
    run = store.jobs.submit(A_JOB.name, A_GPU, size(32), lease_s=60)
    assert open_store(str(tmp_path / "history.db")).jobs.job_memory(A_JOB.name).runs[-1] == run


@pytest.mark.parametrize("dump", FILES, ids=lambda file: file.stem)
def test_a_migrated_store_has_the_tables_of_a_new_one(dump: Path, tmp_path: Path) -> None:
    left_behind(dump, tmp_path / "old.db")
    for name in ("old.db", "new.db"):
        migrate(engine_of(str(tmp_path / name)))
    assert columns(tmp_path / "old.db") == columns(tmp_path / "new.db")
    assert indexes(tmp_path / "old.db") == indexes(tmp_path / "new.db")


def test_the_runs_of_a_job_are_kept(tmp_path: Path) -> None:
    left_behind(FOLDER / "version-3.sql", tmp_path / "history.db")
    jobs = open_store(str(tmp_path / "history.db")).jobs
    (run,) = jobs.job_memory(A_JOB.name).runs
    assert (run.id, run.outcome, run.cost, run.metrics) == (
        "91c2",
        Outcome.OUT_OF_MEMORY,
        Measurement(9.0, 90.0),
        (0.5, 0.6),
    )
    assert run.gpu == A_GPU
    assert run.gpu.memory_bytes is None


@pytest.mark.postgres
def test_an_old_store_on_a_server_is_migrated(postgres_url: str) -> None:
    """Its tables are what `CREATE TABLE` of the first version makes of them on a server."""
    engine = engine_of(postgres_url)
    dump = (FOLDER / "version-1.sql").read_text(encoding="utf-8")
    with engine.begin() as connection:
        statements = [part.strip() for part in dump.split(";\n") if part.strip().startswith("CREATE")]
        for statement in sorted(statements, key=lambda each: "REFERENCES" in each or "INDEX" in each):
            connection.execute(text(statement))
        connection.execute(text("INSERT INTO wattune_schema VALUES (1, '2025-03-01T12:00:00+00:00', 'wattune 0.1.0')"))
    Store(engine).add_run(a_run("5f0c"))
    store = open_store(postgres_url)
    assert store.run("5f0c") == a_run("5f0c")
    assert store.jobs.jobs() == ()
    store.jobs.define_job(A_JOB)
    run = store.jobs.submit(A_JOB.name, A_GPU, size(32), lease_s=60)
    assert store.jobs.job_memory(A_JOB.name).runs == (run,)
