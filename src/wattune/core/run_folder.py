"""Private folders for the files of a run, which go when the process that made them ends, however it ends.

A process holds the lock of its folder (`flock`), which the kernel frees when the process dies. So a folder whose lock
can be taken was left by a dead process: its watchdog removes it, or else the next process that makes one.

The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

PREFIX = "wattune-steps-"
FILE = "steps"
MEMORY = "/dev/shm"
"""Held in memory: a write to a folder on a disk may wait for the disk."""
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def places() -> tuple[str, ...]:
    """Return the folders in which such folders are made, the best first."""
    import tempfile

    return tuple(dict.fromkeys((MEMORY, tempfile.gettempdir())))


class RunFolder:
    """A folder with one file, which both belong to the user who runs the program."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def made(cls, place: str) -> RunFolder:
        """Make a folder of this user's that no other user can enter."""
        import tempfile

        while True:
            path = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place)
            descriptor = os.open(path, _FLAGS)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return cls(path, descriptor)
            os.close(descriptor)  # somebody removed it before it was locked

    @property
    def file_path(self) -> str:
        return f"{self.path}/{FILE}"

    def create(self, *, owner: int | None) -> int:
        """Create the file, give it and the folder to the owner, and return it open."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(FILE, flags, 0o600, dir_fd=self._descriptor)
        if owner is not None and owner != os.geteuid():
            os.fchown(file, owner, -1)
            os.fchown(self._descriptor, owner, -1)
        return file

    def remove(self) -> None:
        """Remove the folder with its file, and free its lock."""
        _remove(self.path, self._descriptor)


def remove_left(folders: tuple[str, ...]) -> None:
    """Remove what dead processes left in these folders, as far as this user may."""
    for path in _paths(folders):
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)  # its process lives
        else:
            _remove(path, descriptor)


def has_left(folders: tuple[str, ...], pid: int) -> bool:
    """Return whether there is a folder of a process."""
    return any(os.path.basename(path).startswith(f"{PREFIX}{pid}-") for path in _paths(folders))


def _paths(folders: tuple[str, ...]) -> list[str]:
    found = []
    for folder in folders:
        try:
            found += [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith(PREFIX)]
        except OSError:
            continue
    return found


def _remove(path: str, descriptor: int) -> None:
    _without_error(lambda: os.unlink(FILE, dir_fd=descriptor))
    _without_error(lambda: os.rmdir(path))
    os.close(descriptor)


def _without_error(remove: Callable[[], None]) -> None:
    """Remove what may be gone, or have been replaced by something else."""
    try:
        remove()
    except OSError:
        return
