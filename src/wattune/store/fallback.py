"""The fallback for a store that cannot be written: a file of JSON lines, until the store imports it.

Each line is `{"store": place, "run": {...}, "trials": [...], "traces": [...]}` or, for a run of a recurring job that
ended while the store could not be written, `{"store": place, "job_end": {...}}`, or with `job_run` if the store did not
have the run at all. Writers append under a lock. An import reads the lines, stores them without
the lock, since a store may take long, and then removes under the lock what the store has. A run that was imported
before is known by its id. So commands that import at once, or die half-way, lose and double no run.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattune._version import __version__
from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import InputError, StoreError
from wattune.store.job_records import NoSuchRun, RunEnd, RunOver, UnsubmittedRun
from wattune.store.records import FullRun, Run, RunExists, RunGpu, full_run_from_json, full_run_to_json
from wattune.store.worker import WAIT_S, StoreWorker

if TYPE_CHECKING:
    from wattune.store.sql_store import Store

FILE_NAME = "unsaved-runs.jsonl"
LOCK_S = 2.0
"""The longest wait for the lock of a fallback file, which is held for a few milliseconds."""
_ANY_FILE = "unsaved-runs*.jsonl"
_PRIVATE = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Recovered:
    """Numbers of runs and ends of runs that were imported, and of lines that stay in the files."""

    taken: int
    left: int


def fallback_folders(state_dir: Path) -> tuple[Path, ...]:
    """Return the folders to try: the state folder and, in case its disk is full, a private temporary one."""
    return (state_dir, Path(tempfile.gettempdir()) / f"wattune-{os.getuid()}")


def write_run(full: FullRun, place: str | None, folders: Sequence[Path]) -> Path:
    """Write a run for the store at `place` (None: an invalid URL) to the fallback file, and return that file."""
    return _write({"store": place} | full_run_to_json(full), folders)


def write_end(end: RunEnd, place: str | None, folders: Sequence[Path]) -> Path:
    """Write the end of a job's run for the store at `place` to the fallback file, and return that file."""
    return _write({"store": place, "job_end": to_json(end)}, folders)


def write_job_run(run: UnsubmittedRun, place: str | None, folders: Sequence[Path]) -> Path:
    """Write a job's run that the store at `place` does not have to the fallback file, and return that file."""
    return _write({"store": place, "job_run": to_json(run)}, folders)


def _write(document: Mapping[str, Any], folders: Sequence[Path]) -> Path:
    return _write_line(json.dumps(document, allow_nan=False).encode() + b"\n", folders)


def _write_line(line: bytes, folders: Sequence[Path]) -> Path:
    reasons = []
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_safe(folder):
                raise PermissionError(errno.EPERM, "it belongs to another user")
            return _append_somewhere(folder, line)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror or error}")
    raise StoreError(
        f"the run could not be kept anywhere ({'; '.join(reasons)})", hint="free some space, then measure again"
    )


def move_unsaved(source: Path, folders: Sequence[Path]) -> None:
    """Move the lines of the fallback file in one folder to that of others, before the folder is removed."""
    for path in sorted(source.glob(_ANY_FILE)):
        with _locked(path) as file:
            for line in _lines(file):
                _write_line(line + b"\n", folders)
            path.unlink()


def recover(store: Store, folders: Sequence[Path], *, meant_for: str | None) -> Recovered:
    """Import the fallback files into the store: the lines meant for one place, or all if that is None."""
    files = [path for folder in folders for path in sorted(folder.glob(_ANY_FILE))]
    parts = [_recover_file(store, path, meant_for) for path in files]
    return Recovered(sum(part.taken for part in parts), sum(part.left for part in parts))


def _recover_file(store: Store, path: Path, meant_for: str | None) -> Recovered:
    try:
        if not path.exists() or not _is_safe(path.parent):
            return Recovered(0, 0)
        with _locked(path) as file:
            lines = _lines(file)
        done = {line for line in lines if _import_line(store, line, meant_for)}
        return _remove(path, done)
    except OSError as error:
        raise StoreError(
            f"cannot import the runs of {path}: {error.strerror}", hint="check that you may write to it"
        ) from None


def _remove(path: Path, done: set[bytes]) -> Recovered:
    """Remove lines that the store has; another process may have done so already."""
    with _locked(path) as file:
        lines = _lines(file)
        left = [line for line in lines if line not in done]
        if len(left) < len(lines) or not lines:
            _replace(path, left)
        return Recovered(len(lines) - len(left), len(left))


def _lines(file: io.FileIO) -> list[bytes]:
    return [line for line in file.read().splitlines() if line]


def _import_line(store: Store, line: bytes, meant_for: str | None) -> bool:
    """Import a line and return whether it may be removed; a line that cannot be read stays."""
    try:
        document = json.loads(line)
        if meant_for not in (None, document["store"]):
            return False
        record = _record_of(document)
    except (ValueError, KeyError, TypeError, AttributeError, InputError):
        return False
    match record:
        case FullRun():
            with suppress(RunExists):
                store.add_run(record)
            return True
        case RunEnd():
            try:
                store.jobs.record_end(record)
            except RunOver:  # the store has this end, or another
                return True
            except NoSuchRun:  # this store has forgotten the run, or it is another store's
                return bool(document["store"] == store.place)
            return True
        case UnsubmittedRun():
            with suppress(RunOver):
                store.jobs.add_ended_run(record)
            return True


def _record_of(document: Mapping[str, Any]) -> FullRun | RunEnd | UnsubmittedRun:
    reader = JsonReader(unknown_fields="skip")
    if "job_end" in document:
        return reader.read(RunEnd, document["job_end"])
    if "job_run" in document:
        return reader.read(UnsubmittedRun, document["job_run"])
    return full_run_from_json(document)


def _append_somewhere(folder: Path, line: bytes) -> Path:
    """Append to the file of a folder or, where others keep that locked, to a file of one's own beside it."""
    path = folder / FILE_NAME
    try:
        _append(path, line)
    except BlockingIOError:
        path = path.with_stem(f"{path.stem}-{uuid.uuid4()}")
        _append(path, line)
    return path


def _append(path: Path, line: bytes) -> None:
    with _locked(path) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            # A process that died while writing left its last line without an end.
            cut_off = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            rest = (b"\n" if cut_off else b"") + line
            while rest:  # a disk that is nearly full takes only a part
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def _replace(path: Path, lines: list[bytes]) -> None:
    if not lines:
        path.unlink()
        return
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, _PRIVATE | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _is_safe(folder: Path) -> bool:
    """Return whether no other user can have made the folder: where everybody may write, it must belong to this user."""
    shared = folder.parent.stat().st_mode & stat.S_IWOTH
    return not shared or folder.lstat().st_uid == os.getuid()


@contextmanager
def _locked(path: Path) -> Iterator[io.FileIO]:
    """Open and lock the file, private and unbuffered, so that a full disk is noticed at once."""
    deadline_s = time.monotonic() + LOCK_S
    while True:
        with os.fdopen(os.open(path, _PRIVATE | os.O_RDWR | os.O_APPEND, 0o600), "a+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
            _lock(file, deadline_s)
            # The previous holder of the lock may have replaced the file; then this one is obsolete.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.seek(0)
                yield file
                return


def _lock(file: io.FileIO, deadline_s: float) -> None:
    """Lock the file; BlockingIOError if another process, which may be stopped, does not release it in time."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise BlockingIOError(errno.EAGAIN, "another process keeps it locked") from None
            time.sleep(0.005)


def new_run(
    kind: str,
    name: str,
    *,
    started_at: datetime,
    gpus: Sequence[RunGpu],
    time_s: float | None = None,
    note: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> Run:
    """Make a run of this program on this host, with the total energy of its GPUs and the time of the slowest.

    `time_s` overrides that time, for example for a command that ran without a GPU. Energy is None if one of the GPUs
    was not measured.
    """
    energies_j = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    errors_j = [gpu.energy_error_j for gpu in gpus if gpu.energy_error_j is not None]
    return Run(
        id=str(uuid.uuid4()),
        kind=kind,
        name=name,
        started_at=started_at,
        time_s=max((gpu.time_s for gpu in gpus), default=0.0) if time_s is None else time_s,
        energy_j=sum(energies_j) if gpus and len(energies_j) == len(gpus) else None,
        energy_error_j=hypot(*errors_j) if gpus and len(errors_j) == len(gpus) else None,
        simulated=any(gpu.simulated for gpu in gpus),
        host=socket.gethostname(),
        version=__version__,
        gpus=tuple(gpus),
        note=note,
        details=details or {},
    )


def keep_run(full: FullRun, *, store_url: str, state_dir: Path) -> None:
    """Store a run; see `keep_runs`."""
    keep_runs([full], store_url=store_url, state_dir=state_dir)


def keep_runs(runs: Sequence[FullRun], *, store_url: str, state_dir: Path, wait_s: float = WAIT_S) -> None:
    """Store runs, in a few seconds at most.

    If the store cannot be written or does not answer in time, write the runs to a file under `state_dir` and raise an
    error that names it. A store that can be written again imports what earlier failures left there.
    """
    folders, worker = fallback_folders(state_dir), StoreWorker(store_url, wait_s=wait_s)
    started_s = time.monotonic()
    try:
        worker.call(lambda store: _add_all(store, runs))
    except RunExists:
        raise
    except StoreError as error:
        path = _write_all(runs, worker.place, folders)
        raise StoreError(
            f"{error.message}; the {'run is' if len(runs) == 1 else 'runs are'} kept in {path}",
            hint=f"{error.hint}; then import the run with: wattune history --recover",
        ) from None
    except BaseException:  # a signal while waiting
        _write_all(runs, worker.place, folders)
        raise
    rest_s = max(0.0, wait_s - (time.monotonic() - started_s))
    with suppress(StoreError):  # what could not be imported stays in the file, and the next run tries again
        worker.result(worker.post(lambda store: recover(store, folders, meant_for=store.place)), wait_s=rest_s)


def _add_all(store: Store, runs: Sequence[FullRun]) -> None:
    for full in runs:
        store.add_run(full)


def _write_all(runs: Sequence[FullRun], place: str | None, folders: Sequence[Path]) -> Path:
    """Write the runs to the fallback file. Those that the store has after all are known by their ids."""
    return [write_run(full, place, folders) for full in runs][-1]
