"""The journal of what to undo if this process dies: an entry per GPU, written before the GPU is set; and the locks.

A GPU has a lock file and, while it is set, a journal entry. The lock is held by the process that tunes the GPU; the
kernel frees it when that process dies. An entry whose lock can be taken was therefore left by a dead process, and the
GPU has to be restored to what the entry holds.

Entries are in the state folder of a user, locks in one folder for all users of the machine. Nothing that another user
could have written is believed: see `wattune.devices.folder`. The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from wattune.core.errors import ConfigError, WattuneError
from wattune.devices.entry import SIZE, Entry, file_name, parse, text_of
from wattune.devices.folder import Folder
from wattune.devices.locks import Holder, busy, holder_of, holders_in, is_held, lock_name, lock_names, open_lock

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ENTRY = ".journal"
PATIENCE_S = 5.0
"""How long to wait for a process that restores the GPU at this moment."""

_POLL_S = 0.005


class Damaged(Exception):
    """An entry that cannot be believed, and why."""


class Claim:
    """The exclusive right to set one GPU, held until `release`."""

    def __init__(self, uuid: str, folder: Folder, locks: list[tuple[Folder, int]]) -> None:
        self.uuid = uuid
        self._name = file_name(uuid)
        self._folder = folder
        self._locks = locks
        self._entry = -1

    def write(self, entry: Entry) -> None:
        """Write the entry; later ones go over it in place, so that a disk that fills up does not matter."""
        text = text_of(entry)
        try:
            if self._entry < 0:
                self._entry = self._folder.create(self._name + ENTRY, text)
            elif os.pwrite(self._entry, text, 0) != SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise ConfigError(
                f"cannot write the journal {self._folder.path}/{self._name}{ENTRY}: {error.strerror}; "
                "the GPU was not set",
                hint="make room, or point WATTUNE_STATE to a folder you can write",
            ) from None

    def read(self) -> Entry | None:
        """Return the entry that an earlier owner left, or None; `Damaged` if it cannot be believed."""
        try:
            text = self._folder.read(self._name + ENTRY, most=SIZE)
            entry = parse(text)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Damaged(error.strerror or str(error)) from None
        except ValueError as error:  # and UnicodeDecodeError
            raise Damaged(str(error)) from None
        if file_name(entry.uuid) != self._name:
            raise Damaged(f"it is about another GPU, {entry.uuid[:60]}")
        return entry

    def written_s(self) -> float:
        """Return when the entry was last written, in Unix time."""
        return self._folder.modified_s(self._name + ENTRY)

    def erase(self) -> None:
        self._folder.remove(self._name + ENTRY)

    def set_aside(self) -> str:
        """Rename a damaged entry, so that it blocks nothing any more; return its new path."""
        aside = f"{self._name}.damaged-{time.time_ns()}"
        self._folder.rename(self._name + ENTRY, aside)
        return f"{self._folder.path}/{aside}"

    def release(self) -> None:
        """Give the claim up. The lock files go, so that another user can claim the GPU, unless an entry stays."""
        if self._folder.stat(self._name + ENTRY) is None:
            _give_back(self._locks, lock_name(self._name))
        self.close()

    def close(self) -> None:
        """Close the files and leave them: in a forked child, whose parent goes on."""
        if self._entry >= 0:
            os.close(self._entry)
        self._entry = -1
        self._folder.close()
        _close(self._locks)


class Journal:
    """The journals of a user and the locks of all users.

    A claim takes two locks: one beside the entries, which protects them whoever shares the folder, and one in the
    folder of all users.
    """

    def __init__(self, folder: str | os.PathLike[str], lock_folder: str | os.PathLike[str] | None = None) -> None:
        """`lock_folder` is that of all users; without it, or where it cannot be used, the other lock alone counts."""
        self.folder = os.fspath(folder)
        self.lock_folder = os.fspath(lock_folder) if lock_folder is not None else self.folder

    def claim(self, uuid: str, *, label: str) -> Claim:
        """Claim a GPU; `DeviceBusy` if another process has it."""
        folder = Folder.made(self.folder)
        locks: list[tuple[Folder, int]] = []
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            for lock_folder in (Folder.made(self.folder), self._shared_folder(uuid, label)):
                if lock_folder is not None:
                    locks.append((lock_folder, -1))
                    locks[-1] = (lock_folder, self._take(uuid, lock_folder, label, deadline_s=deadline_s))
        except BaseException:
            folder.close()
            _give_back(locks, lock_name(file_name(uuid)))
            raise
        return Claim(uuid, folder, locks)

    def left(self) -> tuple[str, ...]:
        """Return the GPUs that have an entry, whether its owner is alive or not."""
        folder = Folder.opened(self.folder)
        if folder is None:
            return ()
        try:
            return tuple(sorted(name.removesuffix(ENTRY) for name in folder.names() if name.endswith(ENTRY)))
        finally:
            folder.close()

    def entry(self, uuid: str) -> Entry | None:
        """Read the entry of a GPU without claiming it; None if there is none that can be read now."""
        folder = Folder.opened(self.folder)
        if folder is None:
            return None
        try:
            return parse(folder.read(file_name(uuid) + ENTRY, most=SIZE))
        except (OSError, ValueError):
            return None
        finally:
            folder.close()

    def holders(self) -> tuple[Holder, ...]:
        """Return the processes that hold GPUs now, without claiming anything."""
        paths = dict.fromkeys((self.folder, self.lock_folder))
        found = {(holder.name, holder.pid): holder for path in paths for holder in holders_in(path)}
        return tuple(found.values())

    def tidy(self) -> None:
        """Remove lock files that processes of this user left without an entry: they would keep other users out."""
        left, held = self.left(), {holder.name for holder in self.holders()}
        for path in dict.fromkeys((self.folder, self.lock_folder)):
            for name in lock_names(path):
                if name not in left and name not in held:
                    _try_to_remove(self, name)

    def _shared_folder(self, uuid: str, label: str) -> Folder | None:
        """Open the folder of all users' locks; None where this user cannot have a lock there."""
        if self.lock_folder == self.folder:
            return None
        try:
            folder = Folder.opened(self.lock_folder)
        except ConfigError:
            return None
        if folder is None or folder.is_writable():
            return folder
        try:
            name = lock_name(file_name(uuid))
            if is_held(folder, name):
                raise busy(label, holder_of(folder, name))
        finally:
            folder.close()
        return None

    def _take(self, uuid: str, folder: Folder, label: str, *, deadline_s: float) -> int:
        name = lock_name(file_name(uuid))
        while True:
            lock = open_lock(folder, name, label)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                if folder.is_same(name, lock):
                    _stamp(lock)
                    return lock
                os.close(lock)  # its last owner has removed the file meanwhile
                continue
            holder = holder_of(folder, name)
            if holder.pid is None:  # some file systems hide it
                holder = self._living_owner(uuid) or holder
            if self._tunes(holder, uuid) or time.monotonic() >= deadline_s:
                raise busy(label, holder)
            time.sleep(_POLL_S)

    def _tunes(self, holder: Holder, uuid: str) -> bool:
        """Return whether a holder tunes the GPU; one that restores it has no entry of its own and ends soon.

        A holder that does not live is one whose files the kernel has not closed yet.
        """
        if not holder.lives:
            return False
        entry = self.entry(uuid)
        return holder.user not in (None, os.geteuid()) or (entry is not None and entry.pid == holder.pid)

    def _living_owner(self, uuid: str) -> Holder | None:
        """Return the process that wrote the entry of a GPU, if it lives."""
        entry = self.entry(uuid)
        return None if entry is None or not os.path.exists(f"/proc/{entry.pid}") else Holder(entry.pid, state="running")


def _try_to_remove(journal: Journal, name: str) -> None:
    try:
        journal.claim(name, label=name).release()
    except WattuneError:
        return  # somebody has it now


def _give_back(locks: list[tuple[Folder, int]], name: str) -> None:
    """Remove the locks of a claim that failed half way."""
    for folder, lock in locks:
        if lock >= 0:
            folder.remove(name)
    _close(locks)


def _close(locks: list[tuple[Folder, int]]) -> None:
    for folder, lock in locks:
        if lock >= 0:
            os.close(lock)
        folder.close()
    locks.clear()


def _stamp(lock: int) -> None:
    """Note when the GPU was claimed, as the time of the file."""
    try:
        os.utime(lock)
    except OSError:
        return  # another user's file


def boot_id() -> str:
    """Return the id of this boot of the machine; empty if the system does not report it."""
    try:
        with open(BOOT_ID, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""
