"""The journal of what to undo if this process dies: one file per GPU, written before the GPU is set.

A GPU has a lock file and, while it is set, a journal entry. The lock is held by the process that tunes the GPU; the
kernel frees it when that process dies. An entry whose lock can be taken was therefore left by a dead process, and the
GPU has to be restored to what the entry holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wattune.core.codec import from_json, to_json
from wattune.core.errors import ConfigError, DeviceBusy, InputError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of a GPU before it was set, and the knobs that were set since."""

    uuid: str
    device: str
    """The name that opens it again: `nvml:GPU-…`."""
    touched: tuple[str, ...]
    """Among sm_clock, mem_clock, power_limit."""
    found: Mapping[str, float | None]
    pid: int
    boot_id: str


class Claim:
    """The exclusive right to set one GPU, held until `release`."""

    def __init__(self, folder: Path, uuid: str, lock: int) -> None:
        self._folder = folder
        self._uuid = uuid
        self._lock = lock

    def write(self, entry: Entry) -> None:
        """Write the entry to disk, atomically."""
        file = _entry_file(self._folder, self._uuid)
        partial = file.with_suffix(".partial")
        try:
            with partial.open("w", encoding="utf-8") as stream:
                json.dump(to_json(entry), stream)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(file)
        except OSError as error:
            raise ConfigError(
                f"cannot write the journal {file}: {error.strerror}; the GPU was not set",
                hint="make room, or point WATTUNE_STATE to a folder you can write",
            ) from None

    def read(self) -> Entry | None:
        """Return the entry that an earlier owner left, or None."""
        return _read(_entry_file(self._folder, self._uuid))

    def erase(self) -> None:
        _entry_file(self._folder, self._uuid).unlink(missing_ok=True)

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@dataclass(frozen=True, slots=True)
class Journal:
    """The journals and locks of all GPUs, in one folder."""

    folder: Path

    def claim(self, uuid: str, *, label: str) -> Claim:
        """Claim a GPU; `DeviceBusy` if another process has it."""
        file = self.folder / f"{_safe(uuid)}.lock"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(
                f"cannot use the state folder {self.folder}: {error.strerror}",
                hint="point WATTUNE_STATE to a folder you can write",
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise DeviceBusy(
                f"{label} is being tuned by process {owner} already",
                hint=f"wait for it, stop it with `kill {owner}`, or choose another GPU",
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return Claim(self.folder, uuid, lock)

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry, whether its owner is alive or not."""
        files = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        return tuple(entry for entry in map(_read, files) if entry is not None)

    @contextmanager
    def abandoned(self, uuid: str) -> Iterator[tuple[Claim, Entry] | None]:
        """Claim a GPU whose owner is dead and yield the claim and its entry; None if there is nothing to undo."""
        if not _entry_file(self.folder, uuid).exists():
            yield None
            return
        try:
            claim = self.claim(uuid, label=uuid)
        except DeviceBusy:
            yield None
            return
        try:
            entry = claim.read()
            if entry is not None and entry.boot_id != boot_id():
                claim.erase()  # the driver forgot its settings at the reboot
                entry = None
            yield None if entry is None else (claim, entry)
        finally:
            claim.release()


def boot_id() -> str:
    """Return the id of this boot of the machine; empty if the system does not report it."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _read(file: Path) -> Entry | None:
    try:
        return from_json(Entry, json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, InputError):
        # Entries are written atomically, so one that cannot be read was damaged by something else.
        raise ConfigError(
            f"the journal {file} is damaged", hint="reset the GPU to its defaults by hand, then remove the file"
        ) from None


def _entry_file(folder: Path, uuid: str) -> Path:
    return folder / f"{_safe(uuid)}.json"


def _safe(uuid: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "_", uuid)
