"""The journal of what to undo if this process dies: an entry per GPU, written before the GPU is set; and the locks.

A GPU has a lock file and, while it is set, a journal entry. The lock is held by the process that tunes the GPU; the
kernel frees it when that process dies. An entry whose lock can be taken was therefore left by a dead process, and the
GPU has to be restored to what the entry holds.

Entries are in the state folder of a user, locks in one folder for all users of the machine. A lock names the folder
that has the entry, so that the next owner of the GPU finds it, whichever folder is its own. Nothing that another user
could have written is believed: see `wattune.core.folder`; root believes what the owner of the lock has written in a
folder that only that user can write. The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator

from wattune.core.errors import ConfigError
from wattune.core.folder import FILE_FLAGS, Folder
from wattune.devices.claim import ENTRY, Claim, give_back
from wattune.devices.entry import SIZE, Entry, file_name, parse
from wattune.devices.locks import (
    Holder,
    busy,
    holder_of,
    holders_in,
    is_held,
    lock_name,
    lock_names,
    noted_folder,
    open_lock,
)

BOOT_ID = "/proc/sys/kernel/random/boot_id"
PATIENCE_S = 5.0
"""How long to wait for a process that restores the GPU at this moment."""

_POLL_S = 0.005


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
        locks: list[tuple[Folder, int]] = []
        deadline_s = time.monotonic() + PATIENCE_S
        try:
            for folder in self._lock_folders(uuid, label):
                locks.append((folder, -1))
                locks[-1] = (folder, self.take(uuid, folder, label, deadline_s=deadline_s))
            claim = Claim(uuid, Folder.made(self.folder), locks)
        except BaseException:
            give_back(locks, lock_name(file_name(uuid)))
            raise
        try:
            claim.find_earlier(lambda earlier: self.take(uuid, earlier, label, deadline_s=deadline_s))
        except BaseException:
            claim.close()
            raise
        return claim

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
        return _read(Folder.opened(self.folder), uuid)

    def holders(self) -> tuple[Holder, ...]:
        """Return the processes that hold GPUs now, without claiming anything."""
        paths = dict.fromkeys((self.folder, self.lock_folder))
        found = {(holder.name, holder.pid): holder for path in paths for holder in holders_in(path)}
        return tuple(found.values())

    def names(self) -> tuple[str, ...]:
        """Return the GPUs on which a dead process may have left settings: those with an entry, or a lock not held."""
        held = {holder.name for holder in self.holders()}
        locked = {name for path in (self.folder, self.lock_folder) for name in lock_names(path)} - held
        return tuple(sorted({*self.left(), *(name for name in locked if file_name(name) == name)}))

    def abandoned(self) -> dict[str, Entry | None]:
        """Return the GPUs that a dead process left set, with its entry where this user may read it, claiming nothing.

        A lock that nobody holds and that leads to an entry, or is another user's, shows that its owner died.
        """
        held, own = {holder.name for holder in self.holders()}, self.left()
        found: dict[str, Entry | None] = {}
        for name in self.names():
            leads, entry = (True, self.entry(name)) if name in own else self._elsewhere(name)
            if leads and name not in held:
                found[name] = entry
        return found

    def _elsewhere(self, name: str) -> tuple[bool, Entry | None]:
        """Return whether the lock of all users leads to an entry or is closed to this user, and that entry if known."""
        try:
            folder = Folder.opened(self.lock_folder)
        except ConfigError:
            folder = None
        if folder is None:
            return False, None
        try:
            lock = folder.open(lock_name(name), os.O_RDONLY | FILE_FLAGS)
        except OSError as error:
            return isinstance(error, PermissionError), None
        else:
            leads = noted_folder(lock) is not None
            os.close(lock)
            return leads, self._entry_of_holder(name, folder) if leads else None
        finally:
            folder.close()

    def _lock_folders(self, uuid: str, label: str) -> Iterator[Folder]:
        """Open the folders of the locks, each once the lock in the one before is taken."""
        shared = self._shared_folder(uuid, label)
        if shared is not None:
            yield shared
        yield Folder.made(self.folder)

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

    def take(self, uuid: str, folder: Folder, label: str, *, deadline_s: float) -> int:
        """Take the lock of a GPU in a folder, which is created where it is missing; `DeviceBusy` if it is held."""
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
            if self._tunes(holder, self._entry_of_holder(uuid, folder)) or time.monotonic() >= deadline_s:
                raise busy(label, holder)
            time.sleep(_POLL_S)

    def _tunes(self, holder: Holder, entry: Entry | None) -> bool:
        """Return whether a holder tunes the GPU; one that restores it has no entry of its own and ends soon.

        A holder that does not live is one whose files the kernel has not closed yet.
        """
        if not holder.lives:
            return False
        if entry is None:
            return holder.user not in (None, os.geteuid())  # its entries cannot be read
        return entry.pid == holder.pid

    def _entry_of_holder(self, uuid: str, folder: Folder) -> Entry | None:
        """Return the entry that the last owner wrote: in the folder that the lock names, or in that of this user."""
        try:
            lock = folder.open(lock_name(file_name(uuid)), os.O_RDONLY | FILE_FLAGS)
        except OSError:
            return None
        try:
            noted, owner = noted_folder(lock), os.fstat(lock).st_uid
        finally:
            os.close(lock)
        try:
            return _read(Folder.opened(noted or folder.path, owner=owner), uuid)
        except ConfigError:
            return None

    def _living_owner(self, uuid: str) -> Holder | None:
        """Return the process that wrote the entry of a GPU, if it lives."""
        entry = self.entry(uuid)
        return None if entry is None or not os.path.exists(f"/proc/{entry.pid}") else Holder(entry.pid, state="running")


def _read(folder: Folder | None, uuid: str) -> Entry | None:
    """Read the entry of a GPU and close the folder; None if there is none that can be read now."""
    if folder is None:
        return None
    try:
        return parse(folder.read(file_name(uuid) + ENTRY, most=SIZE))
    except (OSError, ValueError):
        return None
    finally:
        folder.close()


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
