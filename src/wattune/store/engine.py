"""Connecting to a database: URLs, transactions that read or write, and errors as errors of wattune."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from wattune.core.errors import StoreError

BUSY_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10
SERVER_FULL_TIMEOUT_S = 120.0
IMMEDIATELY = "BEGIN IMMEDIATE"
# Any number that other programs are unlikely to use as their advisory lock: "wattune" on a telephone's keys.
LOCK_KEY = 9288863
# Messages of a server without free connections, and of a system whose queue is full. While connecting, the driver
# reports text only, no SQLSTATE.
_SERVER_FULL = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "Resource temporarily unavailable",
)
_FORMS = "a store is a file, sqlite:///path/to/history.db, or postgresql://user@host/database"


def engine_of(url: str) -> Engine:
    """Make the engine of a store's URL, and the folder of a file; it connects later.

    Connections are not pooled: one is opened per transaction. That costs little compared to what is measured, and a
    fork of the process or a restart of the server does no harm.
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
    event.listen(engine, "do_connect", _connect_with_retries)
    return engine


def parse(url: str) -> URL:
    """Parse the URL of a store; a plain path means SQLite."""
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
    """Return where a database is, for people: its path, or its URL without the password."""
    if target.get_backend_name() == "sqlite":
        return target.database or ""
    public = target.set(drivername="postgresql").difference_update_query(["password"])
    return public.render_as_string(hide_password=True)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads one state of the store throughout; database errors become `StoreError`."""
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with explained(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that is committed when the block ends and rolled back when it fails; see `reading`."""
    with explained(engine), engine.execution_options(wattune_begin=IMMEDIATELY).begin() as connection:
        yield connection


def lock_store(connection: Connection) -> None:
    """Lock the store against other writers until this transaction ends."""
    # On SQLite the transaction began as BEGIN IMMEDIATE, which already excludes every other writer.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})


def use_write_ahead_log(engine: Engine) -> None:
    """Switch an SQLite file to the mode that lets readers and a writer work at once.

    SQLite does not wait for other processes that make the same change, hence the retries. A file system without shared
    memory keeps the old mode, which is slower under contention and as safe.
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


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transaction handling begins late and commits implicitly; ours is explicit.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON").close()


def _connect_with_retries(dialect: Dialect, _record: object, words: Any, options: Any) -> DBAPIConnection:
    """Connect, and retry while other processes use all connections of the server."""
    deadline_s = time.monotonic() + SERVER_FULL_TIMEOUT_S
    while True:
        try:
            return dialect.connect(*words, **options)
        except dialect.loaded_dbapi.Error as error:
            full = any(phrase in str(error) for phrase in _SERVER_FULL)
            if not full or time.monotonic() > deadline_s:
                raise
            # A random wait keeps waiting processes from retrying all at once.
            time.sleep(random.uniform(0.02, 0.2))


def _begin_sqlite(connection: Connection) -> None:
    # A writer locks at once: a transaction that reads first and then writes can be refused half-way.
    begin: str | None = connection.get_execution_options().get("wattune_begin", "BEGIN")
    if begin == IMMEDIATELY:
        _begin_writing(connection)
    elif begin is not None:
        connection.exec_driver_sql(begin)


def _begin_writing(connection: Connection) -> None:
    """Begin a writing transaction, waiting as long as other writers make progress."""
    while True:
        before = _data_version(connection)
        try:
            connection.exec_driver_sql(IMMEDIATELY)
            return
        except OperationalError as error:
            if not _is_busy(error) or _data_version(connection) == before:
                raise


def _data_version(connection: Connection) -> object:
    """Return a value that changes whenever another connection has written to the file."""
    return connection.exec_driver_sql("PRAGMA data_version").scalar()


def _is_busy(error: OperationalError) -> bool:
    return getattr(error.orig, "sqlite_errorname", None) == "SQLITE_BUSY"


_ELSEWHERE = "name a store that you may write to with WATTUNE_STORE"

_SQLITE = {
    "SQLITE_FULL": ("the disk is full: the store {place} could not be written", "free some space"),
    "SQLITE_IOERR": (
        "the disk failed or is full: the store {place} could not be read or written",
        "check the free space and quotas (df, quota)",
    ),
    "SQLITE_NOTADB": (
        "{place} is not a store: it is no SQLite database",
        "move the file away, or name another store with WATTUNE_STORE",
    ),
    "SQLITE_CORRUPT": (
        "the store {place} is damaged",
        "move it away and rescue what is readable: sqlite3 damaged.db .recover | sqlite3 history.db",
    ),
    "SQLITE_READONLY": ("the store {place} may not be written", _ELSEWHERE),
    "SQLITE_CANTOPEN": ("the store {place} cannot be opened", _ELSEWHERE),
    "SQLITE_PERM": ("the store {place} may not be opened", _ELSEWHERE),
    "SQLITE_BUSY": ("another process has kept the store {place} locked for 30 s", "find it with: fuser {place}"),
}

# By SQLSTATE; the server's manual, appendix A.
_POSTGRESQL = {
    "53100": ("the disk of the server is full: the store {place} could not be written", "free some space there"),
    "42501": ("the store {place} may not be written by this user", "grant CREATE and USAGE on its schema"),
    "25006": ("the store {place} is read-only", "connect to the primary server, not to a standby"),
    "28P01": ("the store {place} refused the password", "put it into the URL or into ~/.pgpass"),
    "3D000": ("the store {place} does not exist on its server", "make it with: createdb DATABASE"),
}


@contextmanager
def explained(engine: Engine) -> Iterator[None]:
    """Convert database errors of the block to `StoreError`."""
    try:
        yield
    except SQLAlchemyError as error:
        raise store_error(error, place_of(engine.url)) from None


def store_error(error: SQLAlchemyError, place: str) -> StoreError:
    """Convert a database error to one about the store at `place`."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    name, state = getattr(cause, "sqlite_errorname", None) or "", getattr(cause, "sqlstate", None) or ""
    known = next((words for prefix, words in _SQLITE.items() if name.startswith(prefix)), _POSTGRESQL.get(state))
    if known is not None:
        message, hint = known
        return StoreError(message.format(place=place), hint=hint.format(place=place))
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    hint = _ELSEWHERE
    if place.startswith("postgresql://"):
        hint = "check that the server runs and that the URL in WATTUNE_STORE is right: psql URL"
    return StoreError(f"the store {place} cannot be used: {lines[0]}", hint=hint)
