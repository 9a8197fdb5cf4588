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
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wattune.core.codec import JsonReader
from wattune.core.errors import InputError, StoreError
from wattune.core.folder import Folder
from wattune.core.job import Job, JobGpu, JobRun, Outcome, StepAccount
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
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
class Entry:
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


def entries_of(path: Path) -> list[Entry]:
    """Return the runs in a spool; none where it is gone."""
    with _opened(path.parent) as folder:
        if folder is None or folder.stat(path.name) is None:
            return []
        if path.suffix == Path(LINES_NAME).suffix:
            with _locked(folder, path.name) as file:
                return [_entry_of_line(line) for line in _lines(file)]
        with _locked(folder, LOCK_NAME):
            _check(folder, path.name)
            engine = engine_of(str(path), timeout_s=LOCK_S)
            with reading(engine) as connection:
                if not sa.inspect(connection).has_table(unsaved.name):  # its writer is at work, or was killed
                    return []
            schema.migrate(engine)
            with reading(engine) as connection:
                rows = connection.execute(sa.select(unsaved)).all()
                return [_entry(connection, *row) for row in rows]


def remove(path: Path, entries: Sequence[Entry]) -> int:
    """Remove runs from a spool, which goes with the last one, and return how many stay."""
    with _opened(path.parent) as folder:
        if folder is None or folder.stat(path.name) is None:
            return 0
        if path.suffix == Path(LINES_NAME).suffix:
            with _locked(folder, path.name) as file:
                return _remove_lines(folder, path.name, _lines(file), {entry.key for entry in entries})
        with _locked(folder, LOCK_NAME):
            if folder.stat(path.name) is None:
                return 0
            _check(folder, path.name)
            with writing(engine_of(str(path), timeout_s=LOCK_S)) as connection:
                for entry in entries:
                    for key in (unsaved.c.run_id, schema.runs.c.id, schema.job_runs.c.id):
                        connection.execute(sa.delete(key.table).where(key == entry.key))
                left: int = connection.execute(sa.select(sa.func.count()).select_from(unsaved)).scalar_one()
            if entries and not left:
                folder.remove(path.name)
                folder.remove(LOCK_NAME)
            return left


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
    at = utc_time(run.ended_at)
    current = define(connection, storable_job(run.job), at)
    record = run.record(current)
    job_rows.insert_run(connection, current, record)
    end(connection, current, record, run.run, at)


def _entry(connection: sa.Connection, run_id: str, place: str | None, submitted: bool | None) -> Entry:
    try:
        if submitted is not None:
            return Entry(run_id, place, _ended_run(connection, run_id, submitted))
        (run,) = runs_in(connection, sa.select(schema.runs).where(schema.runs.c.id == run_id))
        return Entry(run_id, place, full_run(connection, run))
    except Exception:  # a damaged file fails in any way
        return Entry(run_id, place, None)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndLine:
    """The end of a run of a job, as earlier versions wrote it."""

    run_id: str
    outcome: Outcome
    ended_at: datetime
    cost: Measurement | None = None
    profiling: Measurement | None = None
    setting: Setting | None = None
    steps: StepAccount | None = None
    metrics: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunLine:
    """A run of a job that the store did not have, as earlier versions wrote it."""

    job: Job
    batch_size: int
    gpu: JobGpu
    why: str
    submitted_at: datetime
    replaces: str | None = None
    host: str
    pid: int
    end: _EndLine


def _entry_of_line(line: bytes) -> Entry:
    try:
        document = json.loads(line)
        return Entry(line, document["store"], _run_of_line(document))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return Entry(line, None, None)


def _run_of_line(document: Mapping[str, Any]) -> FullRun | EndedRun:
    """Return the run of `{"store", "run", "trials", "traces"}`, `{"store", "job_end"}` or `{"store", "job_run"}`."""
    reader = JsonReader(unknown_fields="skip", missing_fields="default")
    if "job_end" in document:
        return _ended_by_line(reader.read(_EndLine, document["job_end"]), None)
    if "job_run" in document:
        line = reader.read(_RunLine, document["job_run"])
        return _ended_by_line(line.end, line)
    return full_run_from_json(document)


def _ended_by_line(end: _EndLine, line: _RunLine | None) -> EndedRun:
    if end.outcome is Outcome.RUNNING:
        raise ValueError("a run that is kept has ended")
    run = JobRun(
        id=end.run_id,
        order=0,
        recurrence=0,
        batch_size=line.batch_size if line else 0,
        gpu=line.gpu if line else JobGpu(name="", simulated=False, max_power_w=0.0),
        why=line.why if line else "",
        submitted_at=line.submitted_at if line else None,
        outcome=end.outcome,
        metrics=end.metrics,
        cost=end.cost,
        profiling=end.profiling,
        setting=end.setting,
        steps=end.steps,
    )
    return EndedRun(
        job=line.job if line else None,
        run=run,
        ended_at=utc_time(end.ended_at),
        submitted=line is None,
        replaces=line.replaces if line else None,
        host=line.host if line else "",
        pid=line.pid if line else 0,
    )


def _lines(file: io.FileIO) -> list[bytes]:
    return [line for line in file.readall().splitlines() if line]


def _remove_lines(folder: Folder, name: str, lines: list[bytes], done: set[str | bytes]) -> int:
    left = [line for line in lines if line not in done]
    if not left:
        folder.remove(name)
    elif len(left) < len(lines):
        os.close(folder.create(name, b"".join(line + b"\n" for line in left)))
    return len(left)
