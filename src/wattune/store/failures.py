"""What went wrong in a database, in one line and with what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from wattune.core.errors import StoreError

_ELSEWHERE = "name a store that you may write to with WATTUNE_STORE"

_SQLITE = {
    "SQLITE_FULL": ("the disk is full: the store {place} could not be written", "free some space"),
    "SQLITE_IOERR": (
        "the disk failed or is full: the store {place} could not be read or written",
        "look at the free space and at quotas (df, quota)",
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
    "SQLITE_BUSY": (
        "another process has kept the store {place} locked for 30 s",
        "find it with: fuser {place}",
    ),
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
def explained(place: str) -> Iterator[None]:
    """The block, whose database errors come out as a `StoreError`."""
    try:
        yield
    except SQLAlchemyError as error:
        raise store_error(error, place) from None


def store_error(error: SQLAlchemyError, place: str) -> StoreError:
    """What a database error means to whoever keeps the store at `place`."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    known = _of_sqlite(cause) or _of_postgresql(cause)
    if known is not None:
        message, hint = known
        return StoreError(message.format(place=place), hint=hint.format(place=place))
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return StoreError(f"the store {place} cannot be used: {lines[0]}", hint=_hint(place))


def _of_sqlite(cause: BaseException) -> tuple[str, str] | None:
    name = getattr(cause, "sqlite_errorname", None) or ""
    return next((words for prefix, words in _SQLITE.items() if name.startswith(prefix)), None)


def _of_postgresql(cause: BaseException) -> tuple[str, str] | None:
    return _POSTGRESQL.get(getattr(cause, "sqlstate", None) or "")


def _hint(place: str) -> str:
    if place.startswith("postgresql://"):
        return "see that the server runs and that the URL in WATTUNE_STORE is right: psql URL"
    return _ELSEWHERE
