"""The fallback for a store that cannot be written: a file of JSON lines, until the store imports it.

Each line is `{"store": place, "run": {...}, "trials": [...], "traces": [...]}` or, for a run of a recurring job that
ended while the store could not be written, `{"store": place, "job_end": {...}}`, or with `job_run` if the store did not
have the run at all. Writers append under a lock. An import reads the lines, stores them without
the lock, since a store may take long, and then removes under the lock what the store has. A run that was imported
before is known by its id. So commands that import at once, or die half-way, lose and double no run.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattune._version import __version__
from wattune.core.codec import JsonReader, to_json
from wattune.core.errors import ConfigError, InputError, StoreError
from wattune.core.job import Outcome
from wattune.store.job_records import NoSuchRun, RunEnd, RunOver, UnsubmittedRun
from wattune.store.records import FullRun, Run, RunExists, RunGpu, full_run_from_json, full_run_to_json
from wattune.store.unsaved_file import append, files_in, lines_of, remove_lines
from wattune.store.worker import WAIT_S, StoreWorker

if TYPE_CHECKING:
    from wattune.store.sql_store import Store

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""Places for temporary files; the last is in memory, for a machine whose only disk is full."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Numbers of runs and ends of runs that were new to the store, and of lines that stay in the files."""

    taken: int
    left: int
    problems: tuple[str, ...] = ()
    """Why files were left as they are."""


def fallback_folders(state_dir: Path) -> tuple[Path, ...]:
    """Return every folder in which runs are kept, in the order in which a writer tries them, and a reader reads them.

    After the state folder, whose disk may be full, come private ones in all places for temporary files. Where there is
    room at the moment makes no difference: a reader that finds more room looks in the same places. TMPDIR is the last:
    a scheduler sets another one for each of its jobs, which no later command knows, and may remove it with the job.
    """
    places = dict.fromkeys((*TEMPORARY, *filter(None, (os.environ.get("TMPDIR"),))))
    return (state_dir, *(Path(place) / f"wattune-{os.geteuid()}" for place in places))


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
            return append(folder, line)
        except (OSError, ConfigError) as error:
            reasons.append(f"{folder}: {_reason(error)}")
    raise StoreError(
        f"the run could not be kept anywhere ({'; '.join(reasons)})", hint="free some space, then measure again"
    )


def _reason(error: OSError | ConfigError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else error.message.rpartition(": ")[2]


def move_unsaved(source: Path, folders: Sequence[Path]) -> None:
    """Move the lines of the fallback file in one folder to that of others, before the folder is removed."""
    for name in files_in(source):
        lines = lines_of(source, name)
        for line in lines:
            _write_line(line + b"\n", folders)
        remove_lines(source, name, set(lines))


def recover(store: Store, folders: Sequence[Path], *, meant_for: str | None) -> Recovered:
    """Import the fallback files into the store: the lines meant for one place, or all if that is None.

    A file that cannot be read, or that another user could have written, stays as it is and becomes a problem.
    """
    parts = [_recover_folder(store, folder, meant_for) for folder in dict.fromkeys(folders)]
    return Recovered(
        sum(part.taken for part in parts),
        sum(part.left for part in parts),
        tuple(problem for part in parts for problem in part.problems),
    )


def _recover_folder(store: Store, folder: Path, meant_for: str | None) -> Recovered:
    taken, left, problems = 0, 0, []
    path = folder
    try:
        for name in files_in(folder):
            path = folder / name
            imported = {line: _import_line(store, line, meant_for) for line in lines_of(folder, name)}
            left += remove_lines(folder, name, {line for line, end in imported.items() if end is not _Line.LEFT})
            taken += sum(end is _Line.STORED for end in imported.values())
    except (OSError, ConfigError) as error:
        problems.append(f"the runs of {path} are not imported: {_reason(error)}")
    return Recovered(taken, left, tuple(problems))


class _Line(Enum):
    """What became of a line of a fallback file."""

    STORED = "stored"
    KNOWN = "known"
    """The store has it, or has no use for it: another end of the run, or the run was forgotten."""
    LEFT = "left"
    """It is meant for another store, or cannot be read."""


def _import_line(store: Store, line: bytes, meant_for: str | None) -> _Line:
    try:
        document = json.loads(line)
        if meant_for not in (None, document["store"]):
            return _Line.LEFT
        record = _record_of(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return _Line.LEFT
    try:
        match record:
            case FullRun():
                store.add_run(record)
            case RunEnd():
                if _outcome(store, record.run_id) is record.outcome:
                    return _Line.KNOWN
                store.jobs.record_end(record)
            case UnsubmittedRun():
                with suppress(NoSuchRun):
                    if _outcome(store, record.run_id) is record.end.outcome:
                        return _Line.KNOWN
                store.jobs.add_ended_run(record)
    except (RunExists, RunOver):
        return _Line.KNOWN
    except NoSuchRun:  # this store has forgotten the run, or it is another store's
        return _Line.KNOWN if document["store"] == store.place else _Line.LEFT
    return _Line.STORED


def _outcome(store: Store, run_id: str) -> Outcome:
    return store.jobs.job_run(run_id).run.outcome


def _record_of(document: Mapping[str, Any]) -> FullRun | RunEnd | UnsubmittedRun:
    reader = JsonReader(unknown_fields="skip")
    if "job_end" in document:
        return reader.read(RunEnd, document["job_end"])
    if "job_run" in document:
        return reader.read(UnsubmittedRun, document["job_run"])
    return full_run_from_json(document)


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
