"""A file whose lines another process reads, and when it has dealt with one."""

import ctypes
import os
import select

IN_ACCESS = 1
ACCESSES = 3
"""A poll of `MetricFile` reads again what it read last, if anything, and then what is new. So the third read after a
line was written is of a poll after the one that found it."""


class ReadFile:
    """A file of reports; `tell` returns once its reader has dealt with a line."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        library = ctypes.CDLL(None, use_errno=True)
        self._events = library.inotify_init1(os.O_NONBLOCK)
        if library.inotify_add_watch(self._events, os.fsencode(path), IN_ACCESS) < 0:
            raise OSError(ctypes.get_errno(), "cannot watch", path)

    def tell(self, line):
        """Write a line and wait until it was read and dealt with."""
        os.write(self._file, f"{line}\n".encode())
        self._drain()
        for _ in range(ACCESSES):
            select.select([self._events], [], [])
            self._drain()

    def _drain(self):
        try:
            while os.read(self._events, 1 << 16):
                pass
        except BlockingIOError:
            pass
