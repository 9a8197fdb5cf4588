"""A folder whose files are believed only if no other user could have written them.

Every file is opened relative to the open folder (openat) and no symbolic link is followed, so that nobody can put
another file in place of the one that was checked. Journals, locks and runs that wait for the store are in such
folders. The watchdog imports this file, so it imports little.
"""

from __future__ import annotations

import errno
import os
import stat

from wattune.core.errors import ConfigError

FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Without O_NONBLOCK a planted pipe would block us."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Folder:
    """An open folder of a user, or of root."""

    def __init__(self, path: str, descriptor: int, owner: int) -> None:
        self.path = path
        self.owner = owner
        """The user who may have written it; what anybody else but root could have written is not believed."""
        self._descriptor = descriptor

    @classmethod
    def opened(cls, path: str, *, owner: int | None = None) -> Folder | None:
        """Open a folder of a user, without one this user's, or of root's.

        None if there is none, `ConfigError` if another user could have written it.
        """
        owner = os.geteuid() if owner is None else owner
        try:
            descriptor = os.open(path, _FOLDER_FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, _reason(path, error)) from None
        why = _distrusted(os.fstat(descriptor), owner)
        if why is not None:
            os.close(descriptor)
            raise _unusable(path, why)
        return cls(path, descriptor, owner)

    @classmethod
    def made(cls, path: str) -> Folder:
        """Open a folder of this user to write; create it where it is missing, and close it to others."""
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            _make(path)
            descriptor = os.open(path, _FOLDER_FLAGS)
        except OSError as error:
            raise _unusable(path, _reason(path, error)) from None
        found = os.fstat(descriptor)
        try:
            if (
                found.st_uid == os.geteuid()
                and found.st_mode & _WRITABLE_BY_OTHERS
                and not found.st_mode & stat.S_ISVTX
            ):
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_WRITABLE_BY_OTHERS)
        except OSError as error:
            os.close(descriptor)
            raise _unusable(path, error.strerror or str(error)) from None
        os.close(descriptor)
        folder = cls.opened(path)
        assert folder is not None
        return folder

    @property
    def identity(self) -> tuple[int, int]:
        """What tells this folder from others, whatever path leads to it."""
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def is_writable(self) -> bool:
        """Return whether this user may create files."""
        return os.access(".", os.W_OK | os.X_OK, dir_fd=self._descriptor, effective_ids=True)

    def open(self, name: str, flags: int) -> int:
        """Open a plain file; OSError for anything else."""
        descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a plain file")
        return descriptor

    def open_trusted(self, name: str, flags: int) -> int:
        """Open a plain file that only the owner, or root, could have written; OSError for another."""
        descriptor = self.open(name, flags | FILE_FLAGS)
        why = _distrusted(os.fstat(descriptor), self.owner, links=1)
        if why is not None:
            os.close(descriptor)
            raise OSError(errno.EPERM, why)
        return descriptor

    def create(self, name: str, data: bytes) -> int:
        """Write a file under a passing name, flush it to disk, rename it, and return it open."""
        partial = name + ".partial"
        self.remove(partial)
        descriptor = self.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE_FLAGS)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
            self.rename(partial, name)
        except BaseException:
            os.close(descriptor)
            self.remove(partial)
            raise
        return descriptor

    def read(self, name: str, *, most: int) -> bytes:
        """Read a file that only the owner, or root, could have written; OSError for another."""
        descriptor = self.open_trusted(name, os.O_RDONLY)
        try:
            return os.read(descriptor, most + 1)
        finally:
            os.close(descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None

    def is_same(self, name: str, descriptor: int) -> bool:
        """Return whether the name still leads to the open file."""
        there, here = self.stat(name), os.fstat(descriptor)
        return there is not None and (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    def modified_s(self, name: str) -> float:
        found = self.stat(name)
        return 0.0 if found is None else found.st_mtime

    def rename(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there, or not ours to remove, is left."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EPERM, errno.EACCES):
                raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _distrusted(found: os.stat_result, owner: int, *, links: int | None = None) -> str | None:
    """Return why another user could have written a file or folder of an owner; None if none could."""
    if found.st_uid not in (0, owner):
        return f"it belongs to another user ({found.st_uid})"
    if found.st_mode & _WRITABLE_BY_OTHERS and not found.st_mode & stat.S_ISVTX:
        return "other users may write it"
    if links is not None and found.st_nlink != links:
        return "it has a second name"
    return None


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return


def _reason(path: str, error: OSError) -> str:
    if os.path.islink(path):
        return "it is a symbolic link"
    return error.strerror or str(error)


def _unusable(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"cannot use the folder {path}: {why}",
        hint="point WATTUNE_STATE to a folder that only you can write",
    )
