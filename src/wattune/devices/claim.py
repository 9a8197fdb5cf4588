"""The claim of a GPU: its locks, the journal entry that its owner writes, and those that earlier owners left.

The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from wattune.core.errors import ConfigError
from wattune.core.folder import Folder
from wattune.devices.entry import SIZE, Entry, file_name, parse, text_of
from wattune.devices.locks import lock_name, note_folder, noted_folder

ENTRY = ".journal"


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

    def find_earlier(self, take: Callable[[Folder], int]) -> None:
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
            self._earlier = [(earlier, take(earlier))]

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
            give_back(self._locks, lock_name(self._name), entry_is_gone=True)
        self.close()

    def close(self) -> None:
        """Close the files and leave them: in a forked child, whose parent goes on."""
        if self._entry >= 0:
            os.close(self._entry)
        self._entry = -1
        self._folder.close()
        close_locks(self._locks)
        close_locks(self._earlier)

    def _leave_earlier(self) -> None:
        if self._earlier and self._earlier[0][0].stat(self._name + ENTRY) is None:
            give_back(self._earlier, lock_name(self._name))
        close_locks(self._earlier)


def give_back(locks: list[tuple[Folder, int]], name: str, *, entry_is_gone: bool = False) -> None:
    """Close locks and remove their files, but not one that leads to an entry which may be there still."""
    for folder, lock in locks:
        if lock >= 0 and (entry_is_gone or noted_folder(lock) is None):
            folder.remove(name)
    close_locks(locks)


def close_locks(locks: list[tuple[Folder, int]]) -> None:
    """Close locks and leave their files."""
    for folder, lock in locks:
        if lock >= 0:
            os.close(lock)
        folder.close()
    locks.clear()
