"""Every way in which a store can fail is one line and a hint."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from store_contract import a_run
from wattune.core.errors import StoreError
from wattune.store.engine import engine_of, parse, place_of, store_error
from wattune.store.sql_store import Store, open_store


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        action()
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value.message


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in complaint(lambda: open_store(str(tmp_path)))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot make the store's folder" in complaint(lambda: open_store(f"{tmp_path}/file/history.db"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder without write permission")
def test_a_folder_without_write_permission() -> None:
    assert "cannot be opened" in complaint(lambda: open_store("/proc/history.db"))


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and no database\n" * 40)
    assert "no SQLite database" in complaint(lambda: open_store(str(path)))
    assert path.read_text().startswith("these are my notes")


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = open_store(str(path))
    for number in range(20):
        store.add_run(a_run(f"{number:02}"))
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (path.stat().st_size - 100))
    assert "is damaged" in complaint(lambda: open_store(str(path)))


def test_a_full_disk_leaves_earlier_runs_readable(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    open_store(url).add_run(a_run("a"))
    engine = engine_of(url)

    def cap(connection: sqlite3.Connection, record: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages}").close()

    event.listen(engine, "connect", cap)
    store = Store(engine)

    def fill() -> None:
        for number in range(100):
            store.add_run(a_run(f"b{number:03}", name="x" * 5000))

    assert "the disk is full" in complaint(fill)
    after = open_store(url)
    assert after.run("a") == a_run("a")
    whole = after.runs()
    assert len(after.trial_records()) == 2 * len(whole)


def test_a_store_that_another_process_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattune.store.engine.BUSY_TIMEOUT_S", 0.01)
    store = open_store(str(tmp_path / "history.db"))
    holder = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert "locked" in complaint(lambda: store.add_run(a_run("a")))
        assert store.runs() == ()
    finally:
        holder.close()


def test_a_writer_waits_while_other_writers_make_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattune.store.engine.BUSY_TIMEOUT_S", 0.01)
    store = open_store(str(tmp_path / "history.db"))
    others = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    others.execute("BEGIN IMMEDIATE")
    calls = 0

    def data_version(_: object) -> int:
        """Another writer has committed before each call, and the last one is gone at the seventh."""
        nonlocal calls
        calls += 1
        if calls == 7:
            others.close()
        return calls

    monkeypatch.setattr("wattune.store.engine._data_version", data_version)
    store.add_run(a_run("a"))
    assert calls == 7
    assert store.run("a") == a_run("a")


def test_a_server_without_free_connections_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    pauses: list[float] = []

    def refuse(*_words: object, **_options: object) -> None:
        raise psycopg.OperationalError("connection failed: FATAL:  sorry, too many clients already")

    clock = SimpleNamespace(monotonic=lambda: 30.0 * len(pauses), sleep=pauses.append)
    monkeypatch.setattr("wattune.store.engine.time", clock)
    monkeypatch.setattr(psycopg, "connect", refuse)
    monkeypatch.setattr(psycopg.Connection, "connect", refuse)
    assert "too many clients" in complaint(lambda: open_store("postgresql://me@host/db"))
    assert len(pauses) == 5


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://me@host/db", "no store of the kind 'mysql'"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("", "names no file"),
        ("postgresql://host:port/db", "cannot be read"),
    ],
)
def test_invalid_urls(url: str, words: str) -> None:
    assert words in complaint(lambda: open_store(url))


def test_an_unreachable_server(tmp_path: Path) -> None:
    message = complaint(lambda: open_store(f"postgresql://me:secret@/db?host={tmp_path}"))
    assert "cannot be used" in message
    assert "secret" not in message


@pytest.mark.postgres
def test_a_missing_database(postgres_url: str) -> None:
    missing = postgres_url.replace("/history_", "/nowhere_")
    assert "does not exist" in complaint(lambda: open_store(missing))


def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match="psycopg") as caught:
        open_store("postgresql://me@host/db")
    assert caught.value.hint == "pip install 'wattune[postgres]'"


@pytest.mark.parametrize(
    ("state", "words"),
    [("53100", "disk of the server is full"), ("42501", "may not be written"), ("28P01", "refused the password")],
)
def test_server_errors_get_a_message_and_a_hint(state: str, words: str) -> None:
    class Refusal(Exception):
        sqlstate = state

    error = store_error(OperationalError("INSERT", {}, Refusal("detail\nmore detail")), parse("postgresql://host/db"))
    assert words in error.message


def test_other_errors_show_their_first_line() -> None:
    error = store_error(OperationalError("INSERT", {}, Exception("first\nsecond")), parse("/data/history.db"))
    assert error.message == "the store /data/history.db cannot be used: first"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite:////data/50% off?#1.db", "/data/50% off?#1.db"),
        ("/data/history.db", "/data/history.db"),
        ("postgres://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db?password=secret", "postgresql://me@host/db"),
    ],
)
def test_the_place_of_a_url(url: str, place: str) -> None:
    assert place_of(parse(url)) == place
