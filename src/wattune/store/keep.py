"""Keeping what was measured: in the store, or where that fails in a file beside it. Nothing is lost either way."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import hypot
from pathlib import Path
from typing import Any

from wattune._version import __version__
from wattune.core.errors import StoreError
from wattune.store.protocol import RunExists
from wattune.store.records import FullRun, Run, RunGpu


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
    """A run of this program on this host, with the energy of its GPUs together and the time of the slowest.

    `time_s` is for those who know better, such as a command that ran without any GPU. Energy is None where one of the
    GPUs was not measured.
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
    """Nothing; the run is in the store.

    Where the store cannot be written, the run goes to a file under `state_dir` instead, and the error says so. A
    store that can be written again takes in what earlier failures left there.
    """
    # Imported here, since whoever measures should not pay for a database library before there is something to keep.
    from wattune.store.open import open_store
    from wattune.store.spill import recover, spill, spill_folders

    folders = spill_folders(state_dir)
    try:
        store = open_store(store_url)
        store.add_run(full)
    except RunExists:
        raise
    except StoreError as error:
        path = spill(full, _place(store_url), folders)
        raise StoreError(
            f"{error.message}; the run is kept in {path}",
            hint=f"{error.hint}; then take the run in with: wattune history --recover",
        ) from None
    with suppress(StoreError):  # what could not be taken in stays where it is, and the next run tries again
        recover(store, folders, meant_for=store.place)


def _place(store_url: str) -> str | None:
    from wattune.store.engine import parse, place_of

    try:
        return place_of(parse(store_url))
    except StoreError:
        return None
