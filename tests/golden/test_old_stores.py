"""Stores of earlier versions are migrated with every row unchanged.

Each file of `stores` is an SQLite store of one schema version, as `sqlite3 history.db .dump` writes it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from job_store_contract import A_GPU, A_JOB, size
from store_contract import a_run
from wattune.store.engine import engine_of
from wattune.store.schema import MIGRATIONS, migrate
from wattune.store.sql_store import Store, open_store

FOLDER = Path(__file__).parent / "stores"
FILES = sorted(FOLDER.glob("version-*.sql"))


def left_behind(dump: Path, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text(encoding="utf-8"))
    connection.close()


def schema(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return [" ".join(sql.split()) for (sql,) in rows]


def test_every_version_before_the_newest_has_its_file() -> None:
    assert [file.stem for file in FILES] == [f"version-{number}" for number in range(1, len(MIGRATIONS))]


@pytest.mark.parametrize("dump", FILES, ids=lambda file: file.stem)
def test_an_old_store_is_migrated_with_its_rows(dump: Path, tmp_path: Path) -> None:
    left_behind(dump, tmp_path / "history.db")
    store = open_store(str(tmp_path / "history.db"))
    assert store.runs() == (a_run("7a10", minutes=3, simulated=False).run, a_run("5f0c").run)
    assert store.run("5f0c") == a_run("5f0c")
    assert store.run("7a10") == a_run("7a10", minutes=3, simulated=False)
    store.jobs.define_job(A_JOB)
    run = store.jobs.submit(A_JOB.name, A_GPU, size(32), lease_s=60)
    assert open_store(str(tmp_path / "history.db")).jobs.job_memory(A_JOB.name).runs == (run,)


@pytest.mark.parametrize("dump", FILES, ids=lambda file: file.stem)
def test_a_released_migration_is_unchanged(dump: Path, tmp_path: Path) -> None:
    version = int(dump.stem.removeprefix("version-"))
    left_behind(dump, tmp_path / "old.db")
    migrate(engine_of(str(tmp_path / "new.db")), MIGRATIONS[:version])
    assert schema(tmp_path / "new.db") == schema(tmp_path / "old.db")


@pytest.mark.postgres
def test_an_old_store_on_a_server_is_migrated(postgres_url: str) -> None:
    engine = engine_of(postgres_url)
    migrate(engine, MIGRATIONS[:1])
    Store(engine).add_run(a_run("5f0c"))
    store = open_store(postgres_url)
    assert store.run("5f0c") == a_run("5f0c")
    assert store.jobs.jobs() == ()
