"""The fallback for a store that cannot be written: runs are kept in a spool until the store imports them.

An import reads a spool, stores the runs without any lock of the spool, since a store may take long, and then removes
what the store has. A run that was imported before is known by its id. So commands that import at once, or die half-way,
lose and double no run.
"""

from __future__ import annotations

import os
import socket
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
from wattune.core.errors import ConfigError, StoreError
from wattune.core.folder import Folder
from wattune.store.job_records import EndedRun, NoSuchRun, RunOver
from wattune.store.records import FullRun, Run, RunExists, RunGpu
from wattune.store.worker import WAIT_S, StoreWorker

if TYPE_CHECKING:
    from wattune.store.spool import SpooledRun
    from wattune.store.sql_store import Store

TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""Places for temporary files; the last is in memory, for a machine whose only disk is full."""
FILE_NAME, LINES_NAME = "unsaved-runs.db", "unsaved-runs.jsonl"
"""The spool of a folder, and the file that earlier versions wrote."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Numbers of runs and ends of runs that were new to the store, and of entries that stay in the spools."""

    taken: int
    left: int
    problems: tuple[str, ...] = ()
    """Why spools were left as they are."""


def fallback_folders(state_dir: Path) -> tuple[Path, ...]:
    """Return every folder in which runs are kept, in the order in which a writer tries them, and a reader reads them.

    After the state folder, whose disk may be full, come private ones in all places for temporary files. Where there is
    room at the moment makes no difference: a reader that finds more room looks in the same places. TMPDIR is the last:
    a scheduler sets another one for each of its jobs, which no later command knows, and may remove it with the job.
    """
    places = dict.fromkeys((*TEMPORARY, *filter(None, (os.environ.get("TMPDIR"),))))
    return (state_dir, *(Path(place) / f"wattune-{os.geteuid()}" for place in places))


def spools_in(path: Path) -> tuple[Path, ...]:
    """Return the spools of a folder; `ConfigError` where another user could have made them."""
    try:
        folder = Folder.opened(str(path))
    except ConfigError:
        if not any(os.path.lexists(path / name) for name in (FILE_NAME, LINES_NAME)):
            return ()
        raise
    if folder is None:
        return ()
    try:
        names = sorted(name for name in folder.names() if name.startswith("unsaved-runs"))
    finally:
        folder.close()
    return tuple(path / name for name in names if name.endswith((".db", ".jsonl")))


def write_run(run: FullRun | EndedRun, place: str | None, folders: Sequence[Path]) -> Path:
    """Keep a run for the store at `place` (None: an invalid URL) in the first folder that takes it.

    Return the file.
    """
    from wattune.store.spool import append

    reasons = []
    for folder in folders:
        try:
            return append(folder, run, place)
        except (OSError, ConfigError, StoreError) as error:
            reasons.append(f"{folder}: {_reason(error)}")
    raise StoreError(
        f"the run could not be kept anywhere ({'; '.join(reasons)})", hint="free some space, then measure again"
    )


def _reason(error: OSError | ConfigError | StoreError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else error.message.rpartition(": ")[2]


def move_unsaved(source: Path, folders: Sequence[Path]) -> None:
    """Move the runs that are kept in one folder to others, before the folder is removed."""
    for path in spools_in(source):
        from wattune.store.spool import entries_of, remove

        entries = [entry for entry in entries_of(path) if entry.run is not None]
        for entry in entries:
            assert entry.run is not None
            write_run(entry.run, entry.place, folders)
        remove(path, entries)


def recover(store: Store, folders: Sequence[Path], *, meant_for: str | None) -> Recovered:
    """Import what is kept into the store: what was meant for one place, or all if that is None.

    A spool that cannot be read, or that another user could have written, stays as it is and becomes a problem.
    """
    taken, left, problems = 0, 0, list[str]()
    for folder in dict.fromkeys(folders):
        for path in _listed(folder, problems):
            from wattune.store.spool import entries_of, remove

            entries: list[SpooledRun] = []
            with _noted(path, problems):
                entries = entries_of(path)
            new = [_import(store, entry, meant_for) for entry in entries]
            done = [entry for entry, is_new in zip(entries, new, strict=True) if is_new is not None]
            taken += new.count(True)
            if entries:
                with _noted(path, problems):
                    left += remove(path, done)
    return Recovered(taken, left, tuple(problems))


def _listed(folder: Path, problems: list[str]) -> tuple[Path, ...]:
    with _noted(folder, problems):
        return spools_in(folder)
    return ()


@contextmanager
def _noted(path: Path, problems: list[str]) -> Iterator[None]:
    """Run a block; note why it failed, if it did."""
    try:
        yield
    except (OSError, ConfigError, StoreError) as error:
        problems.append(f"the runs of {path} are not imported: {_reason(error)}")


def _import(store: Store, entry: SpooledRun, meant_for: str | None) -> bool | None:
    """Store a run, and return whether it was new to the store; None if it stays in the spool.

    It stays if it is meant for another store or cannot be read. The store has no use for another end of a run, or for
    the end of a run that was forgotten.
    """
    if entry.run is None or meant_for not in (None, entry.place):
        return None
    try:
        if isinstance(entry.run, EndedRun):
            return store.jobs.add_ended_run(entry.run)
        store.add_run(entry.run)
    except (RunExists, RunOver):
        return False
    except NoSuchRun:
        return False if entry.place == store.place else None
    return True


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
    """Keep the runs in a spool. Those that the store has after all are known by their ids."""
    return [write_run(full, place, folders) for full in runs][-1]
