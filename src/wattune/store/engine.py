"""Connecting to a database: URLs, transactions that read or write, and errors as errors of wattune."""

from __future__ import annotations

import logging
import os
import random
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from wattune.core.errors import StoreError, WattuneError
from wattune.store.records import StoreTimeout
from wattune.store.url import escaped, is_ambiguous, is_path, redacted, without_secrets

BUSY_TIMEOUT_S = 30.0
"""The time for a lock or a statement where the caller gives none."""
CONNECT_TIMEOUT_S = 10.0
SERVER_FULL_TIMEOUT_S = 120.0
IDLE_TIMEOUT_S = 120.0
"""A process that is stopped or lost within a transaction holds its locks for so long; a policy decides much faster."""
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A connection whose server is gone is noticed after 25 s, not after the two hours of Linux."""
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


def engine_of(url: str, *, timeout_s: float | None = None) -> Engine:
    """Make the engine of a store's URL, and the folder of a file; it connects later.

    `timeout_s` bounds the time for connecting, for a lock and for a statement. Connections are not pooled: one is
    opened per transaction. That costs little compared to what is measured, and a fork of the process or a restart of
    the server does no harm.
    """
    target = parse(url)
    if target.get_backend_name() == "sqlite":
        _prepare_file(Path(target.database or ""))
        return _sqlite_engine(target, timeout_s)
    return _postgresql_engine(target, timeout_s)


def _sqlite_engine(target: URL, timeout_s: float | None) -> Engine:
    options = {"timeout": BUSY_TIMEOUT_S if timeout_s is None else timeout_s}
    return _with_own_transactions(create_engine(target, poolclass=NullPool, connect_args=options))


def _with_own_transactions(engine: Engine) -> Engine:
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql_engine(target: URL, timeout_s: float | None) -> Engine:
    # libpq takes whole seconds, and at least two.
    connect_s = max(2, ceil(min(CONNECT_TIMEOUT_S, timeout_s or CONNECT_TIMEOUT_S)))
    options = {"connect_timeout": connect_s, "tcp_user_timeout": 1000 * connect_s, **_KEEPALIVES}
    options = {name: value for name, value in options.items() if name not in target.query}
    try:
        engine = create_engine(target, poolclass=NullPool, connect_args=options)
    except ImportError:
        raise StoreError(
            "a PostgreSQL store needs the psycopg package, which is not installed",
            hint="pip install 'wattune[postgres]'",
        ) from None
    # Its errors reach us; what it logs besides would stand between the lines of a program.
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    full_s = SERVER_FULL_TIMEOUT_S if timeout_s is None else timeout_s
    limit_s = BUSY_TIMEOUT_S if timeout_s is None else timeout_s
    event.listen(engine, "do_connect", partial(_connect_with_retries, full_s))
    event.listen(engine, "begin", partial(_limit_statements, limit_s))
    return engine


def read_only_engine(url: str) -> Engine:
    """Make the engine of an SQLite file that this user may read but not write; see `is_readable_only`.

    Without the write-ahead log's own files, which only writers make, nobody is writing: the file is read as it is.
    """
    target = parse(url)
    uri = f"file:{quote(target.database or '')}?mode=ro&immutable=1"
    connected = partial(sqlite3.connect, uri, uri=True, check_same_thread=False)
    return _with_own_transactions(create_engine(target, poolclass=NullPool, creator=connected))


def is_readable_only(engine: Engine) -> bool:
    """Return whether a file exists that this user may read but not write, or not its folder, with nobody writing.

    Opened as usual, SQLite would need a file beside it for its locks: it fails to make one, or makes one that the
    writers may not use.
    """
    path = Path(engine.url.database or "")
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if not os.access(path, os.R_OK) or index.exists() or (log.exists() and log.stat().st_size):
        return False
    return not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def parse(url: str) -> URL:
    """Parse the URL of a store; a plain path means SQLite."""
    if "://" not in url:
        if not is_path(url):
            raise StoreError("the store's URL cannot be read", hint=_FORMS)
        return _sqlite(url)
    scheme, rest = url.split("://", 1)
    if scheme == "sqlite":
        # Not parsed any further: a file may have ?, # and % in its name.
        return _sqlite(rest.removeprefix("/"))
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        kind = scheme if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) else "***"
        raise StoreError(f"there is no store of the kind {kind!r}", hint=_FORMS)
    if is_ambiguous(url):
        raise StoreError("the store's URL has more than one meaning", hint="write @ as %40, / as %2F and ? as %3F")
    try:
        return make_url(f"postgresql+psycopg://{escaped(rest)}")
    except (ArgumentError, ValueError):
        raise StoreError("the store's URL cannot be read", hint=_FORMS) from None


def place_of(target: URL) -> str:
    """Return where a database is, for people: its path, or its URL without any secret."""
    if target.get_backend_name() == "sqlite":
        return target.database or ""
    return redacted(target.set(drivername="postgresql").render_as_string(hide_password=False))


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads one state of the store throughout; database errors become `StoreError`."""
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with explained(engine.url), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that is committed when the block ends and rolled back when it fails; see `reading`."""
    with explained(engine.url), engine.execution_options(wattune_begin=IMMEDIATELY).begin() as connection:
        yield connection


def check_pages(connection: Connection) -> None:
    """Let SQLite check the structure of its file; a server checks its own."""
    if connection.dialect.name == "sqlite":
        problem = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if problem != "ok":
            raise DamagedRecord(str(problem))


def lock_store(connection: Connection) -> None:
    """Lock the store against other writers until this transaction ends."""
    # On SQLite the transaction began as BEGIN IMMEDIATE, which already excludes every other writer.
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})


def use_write_ahead_log(engine: Engine, *, timeout_s: float | None = None) -> None:
    """Switch an SQLite file to the mode that lets readers and a writer work at once.

    SQLite does not wait for other processes that make the same change, hence the retries. A file system without shared
    memory keeps the old mode, which is slower under contention and as safe.
    """
    deadline_s = time.monotonic() + (BUSY_TIMEOUT_S if timeout_s is None else timeout_s)
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
    try:
        file = Path(path).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # no such user, or the current folder was removed
        raise StoreError(f"the store {path} has no place: {error}", hint="write the whole path") from None
    return URL.create("sqlite", database=str(file))


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


def _limit_statements(limit_s: float, connection: Connection) -> None:
    """Let the server end what takes too long. Set per transaction, which connection poolers allow."""
    limits_s = {
        "statement_timeout": limit_s,
        "lock_timeout": limit_s,
        "idle_in_transaction_session_timeout": IDLE_TIMEOUT_S,
    }
    calls = (f"set_config('{name}', '{ceil(1000 * value_s)}ms', true)" for name, value_s in limits_s.items())
    connection.exec_driver_sql(f"SELECT {', '.join(calls)}").close()


def _connect_with_retries(
    full_s: float, dialect: Dialect, _record: object, words: Any, options: Any
) -> DBAPIConnection:
    """Connect, and retry while other processes use all connections of the server."""
    deadline_s = time.monotonic() + full_s
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
    "SQLITE_BUSY": ("another process keeps the store {place} locked", "find it with: fuser {place}"),
}

# By SQLSTATE; the server's manual, appendix A.
_POSTGRESQL = {
    "53100": ("the disk of the server is full: the store {place} could not be written", "free some space there"),
    "42501": ("the store {place} may not be written by this user", "grant CREATE and USAGE on its schema"),
    "25006": ("the store {place} is read-only", "connect to the primary server, not to a standby"),
    "28P01": ("the store {place} refused the password", "put it into the URL or into ~/.pgpass"),
    "3D000": ("the store {place} does not exist on its server", "make it with: createdb DATABASE"),
    "55P03": ("another process keeps the store {place} locked", "find it with: SELECT * FROM pg_stat_activity"),
    "57014": ("the store {place} took too long to answer", "see what it does: SELECT * FROM pg_stat_activity"),
}

MOST_QUOTED = 200
"""Letters of an error of the database that are shown."""
_OUTAGES = ("SQLITE_BUSY", "55P03", "57014")
"""Errors that mean that the store may answer later."""


class DamagedRecord(Exception):
    """Rows of which no record can be made, and why."""


@contextmanager
def explained(target: URL) -> Iterator[None]:
    """Convert whatever fails in the block, other than our own errors, to a `StoreError` about the store at a URL.

    A damaged file fails in any way: in the database library, in the driver, or where a record is made of a row.
    """
    try:
        yield
    except WattuneError:
        raise
    except SQLAlchemyError as error:
        raise store_error(error, target) from None
    except Exception as error:
        raise _damage(error, target) from error


def _damage(error: Exception, target: URL) -> StoreError:
    place = place_of(target)
    if isinstance(error, OSError):
        return StoreError(f"the store {place} cannot be used: {error.strerror or error}", hint=_ELSEWHERE)
    _, hint = _SQLITE["SQLITE_CORRUPT"]
    if target.get_backend_name() != "sqlite":
        hint = "restore it from a backup, or name another store with WATTUNE_STORE"
    kind = "" if isinstance(error, DamagedRecord) else f"{type(error).__name__}: "
    return StoreError(f"the store {place} is damaged: {kind}{_quoted(error, target)}", hint=hint)


def _quoted(error: BaseException, target: URL) -> str:
    """Return the first line of an error without secrets, cut where it is long: it may quote what is in the file."""
    line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    line = without_secrets(line, password=target.password, options=target.query)
    return line if len(line) <= MOST_QUOTED else f"{line[:MOST_QUOTED]}…"


def store_error(error: SQLAlchemyError, target: URL) -> StoreError:
    """Convert a database error to one about the store at a URL; no secret of the URL is in it."""
    place = place_of(target)
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    name, state = getattr(cause, "sqlite_errorname", None) or "", getattr(cause, "sqlstate", None) or ""
    known = next((words for prefix, words in _SQLITE.items() if name.startswith(prefix)), _POSTGRESQL.get(state))
    kind = StoreTimeout if (name or state).startswith(_OUTAGES) else StoreError
    if known is not None:
        message, hint = known
        return kind(message.format(place=place), hint=hint.format(place=place))
    line = _quoted(cause, target)
    if target.get_backend_name() == "sqlite":
        hint = "move it away, or name another store with WATTUNE_STORE"
        return StoreError(f"the store {place} cannot be used: {line}", hint=hint)
    hint = "check that the server runs and that the URL in WATTUNE_STORE is right: psql URL"
    kind = StoreTimeout if "timeout" in line else StoreError
    return kind(f"the store {place} cannot be used: {line}", hint=hint)
