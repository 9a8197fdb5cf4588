"""Spools: runs that wait for the store, in SQLite files with the tables of a store, in folders that no other can write.

Nothing that another user could have written is believed, and nothing is written where another user could lead it: see
`wattune.core.folder`. A file is written, read and removed under the lock of its folder, which is held for milliseconds.
Files of JSON lines are those of earlier versions: they are read, and no longer written.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wattune.core.codec import JsonReader
from wattune.core.errors import InputError, StoreError
from wattune.core.folder import Folder
from wattune.store import job_rows, schema
from wattune.store.engine import engine_of, reading, writing
from wattune.store.fallback import FILE_NAME, LINES_NAME
from wattune.store.job_records import EndedRun, storable_job, utc_time
from wattune.store.records import FullRun, full_run_from_json
from wattune.store.sql_job_store import define, end
from wattune.store.sql_store import full_run, insert_run, runs_in

LOCK_NAME = "unsaved-runs.lock"
LOCK_S = 2.0
"""The longest wait for the lock of a folder."""
PAGE_BYTES = 1024
"""Small, so that a file of one run has 30 kB and finds room on a disk that is nearly full."""

unsaved = sa.Table(
    "wattune_unsaved",
    sa.MetaData(),
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("store", sa.Text),
    sa.Column("submitted", sa.Boolean),
)
"""A run, the place of the store that it is meant for, and for a run of a job whether that store has its beginning."""


@dataclass(frozen=True, slots=True)
class SpooledRun:
    """A run in a spool; None if it cannot be read."""

    key: str | bytes
    place: str | None
    """The place of the store that it is meant for."""
    run: FullRun | EndedRun | None


def append(path: Path, run: FullRun | EndedRun, place: str | None) -> Path:
    """Write a run to the spool of a folder or, where that is locked or damaged, to one of its own beside it.

    OSError or StoreError where that is impossible, `ConfigError` where another user could have made the folder.
    """
    with _opened(path, made=True) as folder:
        assert folder is not None
        try:
            with _locked(folder, LOCK_NAME):
                return _write(folder, FILE_NAME, run, place)
        except (BlockingIOError, StoreError):
            name = f"{Path(FILE_NAME).stem}-{uuid.uuid4()}{Path(FILE_NAME).suffix}"
            return _write(folder, name, run, place)


def entries_of(path: Path) -> list[SpooledRun]:
    """Return the runs in a spool; none where it is gone."""
    with _locked_spool(path) as spool:
        match spool:
            case None:
                return []
            case sa.Engine():
                with reading(spool) as connection:
                    if not sa.inspect(connection).has_table(unsaved.name):  # its writer is at work, or was killed
                        return []
                schema.migrate(spool)
                with reading(spool) as connection:
                    return [_entry(connection, *row) for row in connection.execute(sa.select(unsaved)).all()]
            case _:
                return [_entry_of_line(line) for line in spool]


def remove(path: Path, entries: Sequence[SpooledRun]) -> int:
    """Remove runs from a spool, which goes with the last one, and return how many stay."""
    with _locked_spool(path) as spool, _opened(path.parent) as folder:
        if spool is None or folder is None:
            return 0
        done = [entry.key for entry in entries]
        if isinstance(spool, sa.Engine):
            left, rest = _remove_rows(spool, done), b""
        else:
            lines = [line for line in spool if line not in done]
            left, rest = len(lines), b"".join(line + b"\n" for line in lines)
        if done and not left:
            folder.remove(path.name)
            if isinstance(spool, sa.Engine):  # else its lock may be another's
                folder.remove(LOCK_NAME)
        elif done and rest:
            os.close(folder.create(path.name, rest))
        return left


def _remove_rows(engine: sa.Engine, run_ids: Sequence[str | bytes]) -> int:
    with writing(engine) as connection:
        for key in (unsaved.c.run_id, schema.runs.c.id, schema.job_runs.c.id):
            connection.execute(sa.delete(key.table).where(key.in_(run_ids)))
        left: int = connection.execute(sa.select(sa.func.count()).select_from(unsaved)).scalar_one()
        return left


@contextmanager
def _locked_spool(path: Path) -> Iterator[sa.Engine | list[bytes] | None]:
    """Lock a spool and open it, or read the lines of one of an earlier version; None where it is gone."""
    with _opened(path.parent) as folder:
        if folder is None or folder.stat(path.name) is None:
            yield None
        elif path.suffix == Path(LINES_NAME).suffix:
            with _locked(folder, path.name) as file:
                yield [line for line in file.readall().splitlines() if line]
        else:
            with _locked(folder, LOCK_NAME):
                _check(folder, path.name)
                is_there = folder.stat(path.name) is not None
                yield engine_of(str(path), timeout_s=LOCK_S) if is_there else None


def _write(folder: Folder, name: str, run: FullRun | EndedRun, place: str | None) -> Path:
    is_new = folder.stat(name) is None
    if is_new:
        os.close(folder.open_trusted(name, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    _check(folder, name)
    path = Path(folder.path) / name
    try:
        engine = engine_of(str(path), timeout_s=LOCK_S)
        sa.event.listen(engine, "connect", _set_page_size)
        schema.migrate(engine)
        with writing(engine) as connection:
            unsaved.metadata.create_all(connection)
            _insert(connection, run, place)
    except BaseException:
        if is_new:
            folder.remove(name)
            folder.remove(f"{name}-journal")
        raise
    return path


def _set_page_size(connection: Any, _record: object) -> None:
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}").close()


def _insert(connection: sa.Connection, run: FullRun | EndedRun, place: str | None) -> None:
    run_id = run.run.id
    if connection.execute(sa.select(unsaved).where(unsaved.c.run_id == run_id)).first() is not None:
        return
    submitted = run.submitted if isinstance(run, EndedRun) else None
    connection.execute(sa.insert(unsaved), {"run_id": run_id, "store": place, "submitted": submitted})
    if isinstance(run, FullRun):
        insert_run(connection, run)
        return
    assert run.job is not None
    current = define(connection, storable_job(run.job), run.ended_at)
    record = run.record(current)
    job_rows.insert_run(connection, current, record)
    end(connection, current, record, run.run, run.ended_at)


def _entry(connection: sa.Connection, run_id: str, place: str | None, submitted: bool | None) -> SpooledRun:
    try:
        if submitted is not None:
            return SpooledRun(run_id, place, _ended_run(connection, run_id, submitted))
        (run,) = runs_in(connection, sa.select(schema.runs).where(schema.runs.c.id == run_id))
        return SpooledRun(run_id, place, full_run(connection, run))
    except Exception:  # a damaged file fails in any way
        return SpooledRun(run_id, place, None)


def _ended_run(connection: sa.Connection, run_id: str, submitted: bool) -> EndedRun:
    current = job_rows.job_of_run(connection, run_id)
    record = job_rows.record_of_run(connection, current, run_id, now=utc_time(None))
    assert record.ended_at is not None
    return EndedRun(
        job=job_rows.job_as_defined(connection, record.job, record.definition),
        run=record.run,
        ended_at=record.ended_at,
        submitted=submitted,
        replaces=record.replaces,
        host=record.host,
        pid=record.pid,
    )


def _check(folder: Folder, name: str) -> None:
    """Raise OSError if another user could have written a file, or what SQLite reads with it."""
    for own in (name, *(f"{name}-{kind}" for kind in ("journal", "wal", "shm"))):
        if folder.stat(own) is not None:
            os.close(folder.open_trusted(own, os.O_RDONLY))


@contextmanager
def _opened(path: Path, *, made: bool = False) -> Iterator[Folder | None]:
    folder = Folder.made(str(path)) if made else Folder.opened(str(path))
    try:
        yield folder
    finally:
        if folder is not None:
            folder.close()


@contextmanager
def _locked(folder: Folder, name: str) -> Iterator[io.FileIO]:
    """Open and lock a file; BlockingIOError if another process, which may be stopped, does not release it in time."""
    deadline_s = time.monotonic() + LOCK_S
    while True:
        descriptor = folder.open_trusted(name, os.O_RDWR | os.O_CREAT)
        with io.FileIO(descriptor, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise BlockingIOError(errno.EAGAIN, "another process keeps it locked") from None
                time.sleep(0.005)
            else:
                # The previous holder of the lock may have replaced or removed the file; then this one is obsolete.
                if folder.is_same(name, descriptor):
                    yield file
                    return


# files of earlier versions


def _entry_of_line(line: bytes) -> SpooledRun:
    try:
        document = json.loads(line)
        return SpooledRun(line, document["store"], _run_of_line(document))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return SpooledRun(line, None, None)


_UNKNOWN = {"batch_size": 0, "gpu": {"name": "", "simulated": False, "max_power_w": 0.0}, "host": "", "pid": 0}
"""What the line of an end does not have; the store knows the run."""


def _run_of_line(document: Mapping[str, Any]) -> FullRun | EndedRun:
    """Return the run of `{"store", "run", "trials", "traces"}`, `{"store", "job_end"}` or `{"store", "job_run"}`."""
    if "job_end" not in document and "job_run" not in document:
        return full_run_from_json(document)
    begun = document.get("job_run", _UNKNOWN)
    run = begun | (document["job_end"] if "job_end" in document else begun["end"])
    run |= {"id": run["run_id"], "order": 0, "recurrence": 0}
    reader = JsonReader(unknown_fields="skip", missing_fields="default")
    return reader.read(EndedRun, {"job": None} | run | {"run": run, "submitted": "job_end" in document})
