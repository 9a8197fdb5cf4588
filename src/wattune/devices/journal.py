"""The journal of what to undo if this process dies: an entry per GPU, written before the GPU is set; and the locks.

A GPU has a lock file and, while it is set, a journal entry. The lock is held by the process that tunes the GPU; the
kernel frees it when that process dies. An entry whose lock can be taken was therefore left by a dead process, and the
GPU has to be restored to what the entry holds.

Entries are in the state folder of a user, locks in one folder for all users of the machine. A lock names the folder
that has the entry, so that the next owner of the GPU finds it, whichever folder is its own. Nothing that another user
could have written is believed: see `wattune.devices.folder`; root believes what the owner of the lock has written in a
folder that only that user can write. The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from wattune.core.errors import ConfigError
from wattune.devices.entry import SIZE, Entry, file_name, parse, text_of
from wattune.devices.folder import FILE_FLAGS, Folder
from wattune.devices.locks import (
    Holder,
    busy,
    holder_of,
    holders_in,
    is_held,
    lock_name,
    lock_names,
    note_folder,
    noted_folder,
    open_lock,
)

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ENTRY = ".journal"
PATIENCE_S = 5.0
"""How long to wait for a process that restores the GPU at this moment."""

_POLL_S = 0.005


class Damaged(Exception):
    """An entry that cannot be believed, and why."""


class Left:
    """The entry of a GPU that a dead process left in a folder."""

    def __init__(self, name: str, folder: Folder) -> None:
        self._name = name
        self._folder = folder

    @property
    def user(self) -> int | None:
        """The other user whose entry it is; None for one of this user's."""
        return None if self._folder.owner == os.geteuid() else self._folder.owner

    def read(self) -> Entry | None:
        """Return the entry, or None if its user has removed it; `Damaged` if nothing of it can be believed."""
        try:
            entry = parse(self._folder.read(self._name + ENTRY, most=SIZE))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Damaged(error.strerror or str(error)) from None
        except ValueError as error:
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


class Claim:
    """The exclusive right to set one GPU, held until `release`."""

    def __init__(self, uuid: str, folder: Folder, locks: list[tuple[Folder, int]]) -> None:
        """The locks are that of all users, where there is one, and that beside the entries of this user."""
        self.uuid = uuid
        self.problem: str | None = None
        """Why the folder in which the last owner left its entry cannot be read."""
        self._name = file_name(uuid)
        self._folder = folder
        self._locks = locks
        self._shared = locks[0][1] if len(locks) > 1 else -1
        self._earlier: list[tuple[Folder, int]] = []
        """The folder of the last owner, if it is another, and the lock there."""
        self._entry = -1

    def find_earlier(self, journal: Journal, *, label: str, deadline_s: float) -> None:
        """Open the folder that the last owner of the GPU noted in the lock of all users, and take the lock there."""
        noted = None if self._shared < 0 else noted_folder(self._shared)
        if noted is None:
            return
        try:
            earlier = Folder.opened(noted, owner=os.fstat(self._shared).st_uid)
        except ConfigError as error:
            self.problem = error.message
            return
        if earlier is None:
            self.problem = f"there is no folder {noted}"
            return
        if earlier.identity == self._folder.identity:
            earlier.close()
            return
        self._earlier = [(earlier, -1)]
        if earlier.stat(lock_name(self._name)) is not None:
            self._earlier = [(earlier, journal.take(self.uuid, earlier, label, deadline_s=deadline_s))]

    def write(self, entry: Entry) -> None:
        """Write the entry; later ones go over it in place, so that a disk that fills up does not matter."""
        text = text_of(entry)
        try:
            if self._entry < 0:
                self._leave_earlier()
                self.problem = None  # the GPU is ours from now on
                if self._shared >= 0:
                    note_folder(self._shared, os.path.abspath(self._folder.path))
                self._entry = self._folder.create(self._name + ENTRY, text)
            elif os.pwrite(self._entry, text, 0) != SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise ConfigError(
                f"cannot write the journal {self._folder.path}/{self._name}{ENTRY}: {error.strerror}; "
                "the GPU was not set",
                hint="make room, or point WATTUNE_STATE to a folder you can write",
            ) from None

    def left(self) -> list[Left]:
        """Return the entries that earlier owners left: that of the last owner, and then an older one of this user."""
        folders = [*(folder for folder, _ in self._earlier), self._folder]
        return [Left(self._name, folder) for folder in folders if folder.stat(self._name + ENTRY) is not None]

    def erase(self) -> None:
        self._folder.remove(self._name + ENTRY)

    def release(self) -> None:
        """Give the claim up. The lock files go, so that another user can claim the GPU, unless an entry stays."""
        is_last = self.problem is None and not self.left()
        self._leave_earlier()
        if is_last:
            _give_back(self._locks, lock_name(self._name), entry_is_gone=True)
        self.close()

    def close(self) -> None:
        """Close the files and leave them: in a forked child, whose parent goes on."""
        if self._entry >= 0:
            os.close(self._entry)
        self._entry = -1
        self._folder.close()
        _close(self._locks)
        _close(self._earlier)

    def _leave_earlier(self) -> None:
        if self._earlier and self._earlier[0][0].stat(self._name + ENTRY) is None:
            _give_back(self._earlier, lock_name(self._name))
        _close(self._earlier)


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
            shared = self._shared_folder(uuid, label)
            for lock_folder in ([] if shared is None else [shared]) + [Folder.made(self.folder)]:
                locks.append((lock_folder, -1))
                locks[-1] = (lock_folder, self.take(uuid, lock_folder, label, deadline_s=deadline_s))
            claim = Claim(uuid, Folder.made(self.folder), locks)
        except BaseException:
            _give_back(locks, lock_name(file_name(uuid)))
            raise
        try:
            claim.find_earlier(self, label=label, deadline_s=deadline_s)
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


def _give_back(locks: list[tuple[Folder, int]], name: str, *, entry_is_gone: bool = False) -> None:
    """Close locks and remove their files, but not one that leads to an entry which may be there still."""
    for folder, lock in locks:
        if lock >= 0 and (entry_is_gone or noted_folder(lock) is None):
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
