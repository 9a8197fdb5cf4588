"""The lock files of GPUs: opening one, and which process holds it, what that does and since when.

A lock file in the folder of all users has a line with the folder in which its owner has the journal entry. The holder
is read from /proc, without taking the lock. The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from wattune.core.errors import ConfigError, DeviceBusy, NoPermission
from wattune.core.folder import FILE_FLAGS, Folder

_PREFIX, _SUFFIX = "wattune-", ".lock"
LOCKS = "/proc/locks"
_LONGEST_PATH = 4097
_MOST_LOCKS = 1000
"""More than the GPUs of any machine: a folder of all users may have any number of files."""
_STATES = {"R": "running", "S": "running", "D": "waiting", "I": "idle", "T": "stopped", "t": "traced", "Z": "dead"}


class Holder:
    """The process that holds a GPU; each part is None where the system does not show it."""

    __slots__ = ("age_s", "name", "owner", "pid", "state", "user")

    def __init__(
        self,
        pid: int | None,
        *,
        state: str | None = None,
        age_s: float | None = None,
        user: int | None = None,
        owner: int | None = None,
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
    def lives(self) -> bool:
        """Whether the process is there, as far as this user may see."""
        return self.pid is not None and self.state not in (None, "dead")

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
        return Holder(None)
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


def lock_name(name: str) -> str:
    """Return the name of the lock file of a GPU."""
    return f"{_PREFIX}{name}{_SUFFIX}"


def open_lock(folder: Folder, name: str, label: str) -> int:
    """Open the lock file, or create it. Files of others are opened without O_CREAT, as sticky folders ask for."""
    try:
        while True:
            try:
                return _with_one_name(folder.open(name, os.O_RDWR | FILE_FLAGS))
            except FileNotFoundError:
                pass
            try:
                return folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE_FLAGS)
            except FileExistsError:
                pass
    except PermissionError:
        holder = holder_of(folder, name)
        if is_held(folder, name):
            raise busy(label, holder) from None
        raise NoPermission(
            f"the last process that tuned {label} was {holder.owner_text}'s and has died",
            hint="restore the GPU as that user or as root: sudo wattune restore",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot use the lock {folder.path}/{name}: {error.strerror}",
            hint="remove it if it is no plain file, or point WATTUNE_LOCKS to another folder",
        ) from None


def _with_one_name(lock: int) -> int:
    """Return a lock file; OSError where it has a second name, since it will be written."""
    if os.fstat(lock).st_nlink > 1:
        os.close(lock)
        raise OSError(errno.EMLINK, "it has a second name")
    return lock


def note_folder(lock: int, folder: str) -> None:
    """Write into a lock file which folder has the entry, and make it this user's, so that its last owner cannot."""
    if os.fstat(lock).st_uid != os.geteuid():
        os.fchown(lock, os.geteuid(), -1)
    line = os.fsencode(folder) + b"\n"
    if os.pwrite(lock, line, 0) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(lock, len(line))


def noted_folder(lock: int) -> str | None:
    """Return the folder that a lock file names; None where it names none."""
    line, end, _ = os.pread(lock, _LONGEST_PATH, 0).partition(b"\n")
    return os.fsdecode(line) if end and line.startswith(b"/") and b"\0" not in line else None


def busy(label: str, holder: Holder) -> DeviceBusy:
    """Return the error of a GPU that another process tunes."""
    return DeviceBusy(
        f"{label} is being tuned by process {holder.text} already",
        hint=f"wait for it, stop it{holder.kill_hint}, or choose another GPU",
    )


def holders_in(path: str) -> list[Holder]:
    """Return the processes that hold locks in a folder."""
    folder = _readable(path)
    if folder is None:
        return []
    try:
        held = [(name, holder_of(folder, name)) for name in _locks_in(folder) if is_held(folder, name)]
        return [holder.named(_gpu_of(name)) for name, holder in held]
    finally:
        folder.close()


def lock_names(path: str) -> list[str]:
    """Return the GPUs that have a lock file in a folder."""
    folder = _readable(path)
    if folder is None:
        return []
    try:
        return [_gpu_of(name) for name in _locks_in(folder)]
    finally:
        folder.close()


def _gpu_of(name: str) -> str:
    return name[len(_PREFIX) : -len(_SUFFIX)]


def _locks_in(folder: Folder) -> list[str]:
    return sorted(name for name in folder.names() if name.startswith(_PREFIX) and name.endswith(_SUFFIX))[:_MOST_LOCKS]


def _readable(path: str) -> Folder | None:
    try:
        return Folder.opened(path)
    except ConfigError:
        return None  # closed to this user, so that it has no locks of this user either
