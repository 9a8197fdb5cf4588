from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from store_contract import a_run
from wattune.core.errors import StoreError
from wattune.store.engine import engine_of, reading
from wattune.store.schema import MIGRATIONS, metadata, migrate
from wattune.store.sql_store import open_store

LATER = (
    "ALTER TABLE wattune_runs ADD COLUMN carbon_g DOUBLE PRECISION",
    "UPDATE wattune_runs SET carbon_g = energy_j / 1000",
)
BROKEN = ("CREATE TABLE wattune_extra (id INTEGER)", "ALTER TABLE nowhere ADD COLUMN x TEXT")
NOW = list(range(1, len(MIGRATIONS) + 1))
"""The versions up to today's."""
NEXT = NOW[-1] + 1


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def versions(engine: Engine) -> list[int]:
    with reading(engine) as connection:
        return list(connection.execute(text("SELECT version FROM wattune_schema ORDER BY version")).scalars())


def test_migrations_create_the_tables_that_queries_use(store_url: str) -> None:
    engine = engine_of(store_url)
    migrate(engine)
    found = inspect(engine)
    for table in metadata.tables.values():
        columns = {column["name"]: column for column in found.get_columns(table.name)}
        assert list(columns) == [column.name for column in table.columns]
        assert [columns[column.name]["nullable"] for column in table.columns] == [
            column.nullable for column in table.columns
        ]
        keys = found.get_pk_constraint(table.name)["constrained_columns"]
        assert keys == [column.name for column in table.primary_key.columns]


def test_migrating_again_changes_nothing(store_url: str) -> None:
    engine = engine_of(store_url)
    assert migrate(engine) == migrate(engine) == NOW[-1]
    assert versions(engine) == NOW


def test_a_store_of_this_version_can_be_migrated_further(store_url: str) -> None:
    store = open_store(store_url)
    store.add_run(a_run("a"))
    engine = engine_of(store_url)
    assert migrate(engine, (*MIGRATIONS, LATER)) == NEXT
    with reading(engine) as connection:
        assert connection.execute(text("SELECT carbon_g FROM wattune_runs")).scalar() == a_run("a").run.energy_j / 1000
    assert versions(engine)[-1] == NEXT


def test_a_failed_migration_is_rolled_back(store_url: str) -> None:
    store = open_store(store_url)
    store.add_run(a_run("a"))
    engine = engine_of(store_url)
    with pytest.raises(Exception, match="nowhere"):
        migrate(engine, (*MIGRATIONS, LATER, BROKEN))
    assert versions(engine) == NOW
    assert not inspect(engine).has_table("wattune_extra")
    assert open_store(store_url).run("a") == a_run("a")


def test_a_store_newer_than_the_program_is_refused_unchanged(store_url: str) -> None:
    engine = engine_of(store_url)
    migrate(engine, (*MIGRATIONS, LATER))
    with pytest.raises(StoreError, match=f"is of version {NEXT}") as caught:
        open_store(store_url)
    assert "upgrade" in (caught.value.hint or "")
    assert versions(engine)[-1] == NEXT
