from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Column, Double, Engine, MetaData, Table, inspect, text

from store_contract import a_run
from wattune.core.errors import StoreError
from wattune.store import schema
from wattune.store.engine import engine_of, reading
from wattune.store.schema import VERSION, metadata, migrate
from wattune.store.sql_store import open_store

NOW = list(range(1, VERSION + 1))
"""The versions up to today's."""


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
    migrate(engine)
    migrate(engine)
    assert versions(engine) == NOW


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version after today's, with one column more."""
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    carbon = Table("wattune_runs", MetaData(), Column("carbon_g", Double)).c.carbon_g
    monkeypatch.setattr(schema, "LATER_COLUMNS", (*schema.LATER_COLUMNS, carbon))


def test_a_store_of_this_version_can_be_migrated_further(store_url: str, request: pytest.FixtureRequest) -> None:
    open_store(store_url).add_run(a_run("a"))
    request.getfixturevalue("later")
    engine = engine_of(store_url)
    migrate(engine)
    with reading(engine) as connection:
        assert connection.execute(text("SELECT id, carbon_g FROM wattune_runs")).one() == ("a", None)
    assert versions(engine) == [*NOW, VERSION + 1]


def test_a_failed_migration_is_rolled_back(
    store_url: str, later: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    with monkeypatch.context() as today:
        today.setattr(schema, "VERSION", VERSION)
        open_store(store_url).add_run(a_run("a"))
    engine = engine_of(store_url)
    nowhere = Table("nowhere", MetaData(), Column("x", Double)).c.x
    with monkeypatch.context() as broken:
        broken.setattr(schema, "LATER_COLUMNS", (*schema.LATER_COLUMNS, nowhere))
        with pytest.raises(StoreError, match="nowhere"):
            migrate(engine)
    assert versions(engine) == NOW
    assert "carbon_g" not in {column["name"] for column in inspect(engine).get_columns("wattune_runs")}
    migrate(engine)
    assert open_store(store_url).run("a") == a_run("a")


def test_a_store_newer_than_the_program_is_refused_unchanged(
    store_url: str, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(store_url)
    migrate(engine)
    monkeypatch.setattr(schema, "VERSION", VERSION)
    with pytest.raises(StoreError, match=f"is of version {VERSION + 1}") as caught:
        open_store(store_url)
    assert "upgrade" in (caught.value.hint or "")
    assert versions(engine)[-1] == VERSION + 1
