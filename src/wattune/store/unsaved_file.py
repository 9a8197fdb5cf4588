"""Files of runs that wait for the store: JSON lines, under a lock, in folders that no other user can write.

Nothing that another user could have written is believed, and nothing is written where another user could lead it:
see `wattune.core.folder`.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wattune.core.errors import ConfigError
from wattune.core.folder import Folder

FILE_NAME = "unsaved-runs.jsonl"
LOCK_S = 2.0
"""The longest wait for the lock of a file, which is held for a few milliseconds."""
_STEM, _SUFFIX = FILE_NAME.split(".")


def append(path: Path, line: bytes) -> Path:
    """Append a line to the file of a folder or, where others keep that locked, to a file of one's own beside it.

    OSError where that is impossible, `ConfigError` where another user could have made the folder.
    """
    name = FILE_NAME
    with _opened(path, made=True) as folder:
        assert folder is not None
        try:
            _append(folder, name, line)
        except BlockingIOError:
            name = f"{_STEM}-{uuid.uuid4()}.{_SUFFIX}"
            _append(folder, name, line)
    return path / name


def files_in(path: Path) -> tuple[str, ...]:
    """Return the names of the files of a folder; `ConfigError` where another user could have made them."""
    try:
        with _opened(path) as folder:
            names = () if folder is None else folder.names()
    except ConfigError:
        if not os.path.lexists(path / FILE_NAME):
            return ()
        raise
    return tuple(sorted(name for name in names if name.startswith(_STEM) and name.endswith(f".{_SUFFIX}")))


def lines_of(path: Path, name: str) -> list[bytes]:
    """Return the lines of a file; none where it is gone."""
    with _opened(path) as folder:
        if folder is None or folder.stat(name) is None:
            return []
        with _locked(folder, name) as file:
            return _lines(file)


def remove_lines(path: Path, name: str, done: set[bytes]) -> int:
    """Remove lines from a file, which goes with its last one, and return how many stay."""
    with _opened(path) as folder:
        if folder is None or folder.stat(name) is None:
            return 0
        with _locked(folder, name) as file:
            lines = _lines(file)
            left = [line for line in lines if line not in done]
            if not left:
                folder.remove(name)
            elif len(left) < len(lines):
                os.close(folder.create(name, b"".join(line + b"\n" for line in left)))
            return len(left)


def _lines(file: io.FileIO) -> list[bytes]:
    return [line for line in file.readall().splitlines() if line]


def _append(folder: Folder, name: str, line: bytes) -> None:
    with _locked(folder, name) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            # A process that died while writing left its last line without an end.
            cut_off = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            rest = (b"\n" if cut_off else b"") + line
            while rest:  # a disk that is nearly full takes only a part
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            if not size:
                folder.remove(name)
            raise


@contextmanager
def _opened(path: Path, *, made: bool = False) -> Iterator[Folder | None]:
    folder = Folder.made(str(path)) if made else Folder.opened(str(path))
    try:
        yield folder
    finally:
        if folder is not None:
            folder.close()


@contextmanager
def _locked(folder: Folder, name: str) -> Iterator[io.FileIO]:
    """Open and lock a file, private and unbuffered, so that a full disk is noticed at once."""
    deadline_s = time.monotonic() + LOCK_S
    while True:
        descriptor = folder.open_trusted(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with io.FileIO(descriptor, "a+") as file:
            if os.fstat(descriptor).st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
            _lock(file, deadline_s)
            # The previous holder of the lock may have replaced the file; then this one is obsolete.
            if folder.is_same(name, descriptor):
                file.seek(0)
                yield file
                return


def _lock(file: io.FileIO, deadline_s: float) -> None:
    """Lock the file; BlockingIOError if another process, which may be stopped, does not release it in time."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise BlockingIOError(errno.EAGAIN, "another process keeps it locked") from None
            time.sleep(0.005)
