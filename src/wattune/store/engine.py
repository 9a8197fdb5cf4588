"""How a database is reached: which one a URL names, and transactions that read or write."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import NullPool

from wattune.core.errors import StoreError

BUSY_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10
SERVER_FULL_TIMEOUT_S = 120.0
IMMEDIATELY = "BEGIN IMMEDIATE"
# Any number that other programs are unlikely to use as their advisory lock: "wattune" on a telephone's keys.
LOCK_KEY = 9288863
# What a server says that has no place left, and the system where even its queue is full; before a session stands, the
# driver gives words only, no SQLSTATE.
_SERVER_FULL = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "Resource temporarily unavailable",
)
_FORMS = "a store is a file, sqlite:///path/to/history.db, or postgresql://user@host/database"


def engine_of(url: str) -> Engine:
    """The engine of a store's URL, its folder made where it is a file; nothing is connected yet.

    Connections are not pooled: one is opened per transaction. That costs little beside what is measured, and lets a
    process fork or a server restart without anybody noticing.
    """
    target = parse(url)
    if target.get_backend_name() == "sqlite":
        _prepare_file(Path(target.database or ""))
        engine = create_engine(target, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    options = {} if "connect_timeout" in target.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    try:
        engine = create_engine(target, poolclass=NullPool, connect_args=options)
    except ImportError:
        raise StoreError(
            "a PostgreSQL store needs the psycopg package, which is not installed",
            hint="pip install 'wattune[postgres]'",
        ) from None
    event.listen(engine, "do_connect", _connect_patiently)
    return engine


def parse(url: str) -> URL:
    """The database that a URL names; a plain path means SQLite."""
    if "://" not in url:
        return _sqlite(url)
    scheme, rest = url.split("://", 1)
    if scheme == "sqlite":
        # Not parsed any further: a file may have ?, # and % in its name.
        return _sqlite(rest.removeprefix("/"))
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise StoreError(f"there is no store of the kind {scheme!r}", hint=_FORMS)
    try:
        return make_url(f"postgresql+psycopg://{rest}")
    except (ArgumentError, ValueError):
        raise StoreError("the store's URL cannot be read", hint=_FORMS) from None


def place_of(target: URL) -> str:
    """Where a database is, for people: its path, or its URL without the password."""
    if target.get_backend_name() == "sqlite":
        return target.database or ""
    shown = target.set(drivername="postgresql").difference_update_query(["password"])
    return shown.render_as_string(hide_password=True)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the store throughout."""
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that is kept whole when the block ends, and leaves nothing when it fails."""
    with engine.execution_options(wattune_begin=IMMEDIATELY).begin() as connection:
        yield connection


def keep_others_out(connection: Connection) -> None:
    """Nothing; until this transaction ends, nobody else gets past this call in one of theirs."""
    # On SQLite the transaction began as BEGIN IMMEDIATE, which already keeps every other writer out.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})


def use_write_ahead_log(engine: Engine) -> None:
    """Nothing; an SQLite file lets readers and a writer work at once from now on.

    The change of mode does not wait for other processes that make it at the same moment, hence the tries. A file
    system without shared memory keeps the old mode, which is slower under contention and as safe.
    """
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with engine.execution_options(wattune_begin=None).connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").close()
            return
        except OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


def _sqlite(path: str) -> URL:
    if path in ("", ":memory:"):
        raise StoreError("the store's URL names no file", hint=_FORMS)
    return URL.create("sqlite", database=str(Path(path).expanduser().absolute()))


def _prepare_file(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"the store {path} is a folder, not a file", hint=f"name a file in it: {path}/history.db")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the store's folder {path.parent}: {error.strerror}",
            hint="name a store that you may write to with WATTUNE_STORE",
        ) from None


def _set_up_sqlite(connection: Any, record: object) -> None:
    del record
    # The driver's own transaction handling begins late and commits by surprise; ours is explicit.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON").close()


def _connect_patiently(dialect: Dialect, record: object, words: Any, options: Any) -> DBAPIConnection:
    """A connection, waited for while others have all that the server allows: each is in use for moments only."""
    del record
    deadline_s = time.monotonic() + SERVER_FULL_TIMEOUT_S
    while True:
        try:
            return dialect.connect(*words, **options)
        except dialect.loaded_dbapi.Error as error:
            full = any(phrase in str(error) for phrase in _SERVER_FULL)
            if not full or time.monotonic() > deadline_s:
                raise
            # Chance keeps those who wait from coming back all at once.
            time.sleep(random.uniform(0.02, 0.2))


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its place at once: a transaction that reads first and then writes can be refused half-way.
    begin: str | None = connection.get_execution_options().get("wattune_begin", "BEGIN")
    if begin == IMMEDIATELY:
        _take_turn(connection)
    elif begin is not None:
        connection.exec_driver_sql(begin)


def _take_turn(connection: Connection) -> None:
    """Nothing; this writer is in, after however many others: the wait is given up when the queue does not move."""
    while True:
        seen = _commits(connection)
        try:
            connection.exec_driver_sql(IMMEDIATELY)
            return
        except OperationalError as error:
            if not _is_busy(error) or _commits(connection) == seen:
                raise


def _commits(connection: Connection) -> object:
    """What changes whenever another connection has written to the file."""
    return connection.exec_driver_sql("PRAGMA data_version").scalar()


def _is_busy(error: OperationalError) -> bool:
    return getattr(error.orig, "sqlite_errorname", None) == "SQLITE_BUSY"
