"""Which process holds the lock of a GPU, what it does and since when: read from /proc, without taking the lock.

The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import fcntl
import os
import time

from wattune.devices.folder import FILE_FLAGS, Folder

LOCKS = "/proc/locks"
_STATES = {"R": "running", "S": "running", "D": "waiting", "I": "idle", "T": "stopped", "t": "traced", "Z": "dead"}


class Holder:
    """The process that holds a GPU; each part is None where the system does not show it."""

    __slots__ = ("age_s", "name", "owner", "pid", "state", "user")

    def __init__(
        self, pid: int | None, *, state: str | None, age_s: float | None, user: int | None, owner: int | None
    ) -> None:
        self.pid = pid
        self.state = state
        """running, stopped, …"""
        self.age_s = age_s
        """Seconds since it claimed the GPU."""
        self.user = user
        self.owner = owner
        """The user whose lock file it is."""
        self.name = ""

    def named(self, name: str) -> Holder:
        """Return the same with the name of its GPU."""
        self.name = name
        return self

    @property
    def text(self) -> str:
        return "unknown" if self.pid is None else str(self.pid)

    @property
    def kill_hint(self) -> str:
        return "" if self.pid is None else f" with `kill {self.pid}`"

    @property
    def owner_text(self) -> str:
        return "root" if self.owner == 0 else f"user {self.owner}"


def holder_of(folder: Folder, name: str) -> Holder:
    """Return the process that holds a lock file, as far as the system shows it."""
    found = folder.stat(name)
    if found is None:
        return Holder(None, state=None, age_s=None, user=None, owner=None)
    pid = _pid_of(found)
    state, user = _process(pid)
    return Holder(pid, state=state, age_s=max(0.0, time.time() - found.st_mtime), user=user, owner=found.st_uid)


def is_held(folder: Folder, name: str) -> bool:
    """Return whether a lock is held; a shared lock is tried for a moment, or else the kernel's table is read."""
    try:
        descriptor = folder.open(name, os.O_RDONLY | FILE_FLAGS)
    except OSError:
        return holder_of(folder, name).pid is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _pid_of(found: os.stat_result) -> int | None:
    """Return the process that the kernel's table names for a file: `1: FLOCK ADVISORY WRITE 4711 fe:00:123 0 EOF`."""
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open(LOCKS, encoding="ascii") as stream:
            for line in stream:
                words = line.split()
                if len(words) >= 6 and words[1] == "FLOCK" and words[3] == "WRITE" and words[5] == place:
                    return int(words[4]) or None
    except (OSError, ValueError):
        pass
    return None


def _process(pid: int | None) -> tuple[str | None, int | None]:
    """Return the state of a process and its user."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            letter = stream.read().rpartition(b")")[2].split()[0].decode("ascii")
        return _STATES.get(letter, "running"), os.stat(f"/proc/{pid}").st_uid
    except (OSError, IndexError, UnicodeDecodeError):
        return None, None
