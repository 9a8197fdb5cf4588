"""Writing files for users: plain files are replaced at once, streams and devices are written through.

A plain file keeps its permissions, a new one gets those of the user's file mask, and a symbolic link to a plain file
stays a link. A terminal, a pipe or a device such as /dev/null stays what it is.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from wattune.core.errors import InputError

_HINT = "choose a folder that exists, is writable and has room"


def write_text(file: Path, text: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(file, text.encode("utf-8", "replace"))


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file; on failure raise an error of one line, and a plain file is as before."""
    try:
        descriptor = _own_descriptor(file)
        if descriptor is not None:
            _write_to_own(descriptor, content)
        elif is_replaced(file):
            _replace(file, content)
        else:
            _write_through(file, content)
    except OSError as error:
        hint = "let a program read it first" if error.errno == errno.ENXIO else _HINT
        raise InputError(f"cannot write {file}: {error.strerror}", hint=hint) from None


def is_replaced(file: Path) -> bool:
    """Return True where writing makes a new plain file, or replaces one; False for streams and devices."""
    found = _stat(file)
    return (found is None or stat.S_ISREG(found.st_mode)) and _own_descriptor(file) is None


def check_writable(file: Path | None) -> None:
    """Raise where a file cannot be written there, before a measurement rather than after it."""
    if file is None or _own_descriptor(file) is not None:
        return
    try:
        found = _stat(file)
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint=_HINT) from None
    if found is not None and not stat.S_ISREG(found.st_mode):
        _check_stream(file, found.st_mode)
        return
    target = Path(os.path.realpath(file))
    if not (target.parent.is_dir() and os.access(target.parent, os.W_OK)):
        folder = target.parent if file.is_symlink() else file.parent
        raise InputError(f"cannot write {file}: no folder to write to", hint=f"make it first: mkdir -p {folder}")
    if found is not None and not os.access(target, os.W_OK):
        raise InputError(f"cannot write {file}: it is write-protected", hint="choose another file")


def check_plain(file: Path) -> None:
    """Raise where something other than a plain file is there: measurements are read back from it and continued."""
    if not is_replaced(file):
        raise InputError(f"{file} is no plain file", hint="name a file that can be read again")


def _stat(file: Path) -> os.stat_result | None:
    """Return what a path leads to; None where there is nothing."""
    try:
        return os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:  # a null character
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None


def _check_stream(file: Path, mode: int) -> None:
    """Raise for what cannot be written through: folders, sockets, and disks, which would be damaged."""
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a disk"))
    for is_kind, name in kinds:
        if is_kind(mode):
            raise InputError(f"cannot write {file}: it is {name}", hint="name a file")
    if not os.access(file, os.W_OK):
        raise InputError(f"cannot write {file}: {os.strerror(errno.EACCES)}", hint="choose another file")


def _own_descriptor(file: Path) -> int | None:
    """Return the descriptor that a path such as /dev/stdout or /dev/fd/3 stands for; None for other paths.

    Where it is a plain file, replacing that file would cut it off from what is printed to the descriptor.
    """
    path = os.fspath(file)
    for _ in range(8):
        folder, name = os.path.split(os.path.join(os.getcwd(), path))
        folder = os.path.realpath(folder)
        if folder == f"/proc/{os.getpid()}/fd" and name.isascii() and name.isdecimal():
            return int(name)
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def _write_to_own(descriptor: int, content: bytes) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    _write_all(descriptor, content)


def _write_through(file: Path, content: bytes) -> None:
    _check_stream(file, os.stat(file).st_mode)
    # Without O_NONBLOCK, opening a pipe that nobody reads would wait for ever.
    descriptor = os.open(file, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.set_blocking(descriptor, True)
        _write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _replace(file: Path, content: bytes) -> None:
    """Write a file beside the target and rename it."""
    target = os.path.realpath(file)
    before = _stat(file)
    if before is not None and not os.access(target, os.W_OK):
        raise OSError(errno.EACCES, "it is write-protected")
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}")
    mode = 0o666 if before is None else 0o600
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            _write_all(descriptor, content)
            if before is not None:
                _keep_permissions(descriptor, before)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise


def _keep_permissions(descriptor: int, before: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
