"""The file that takes a program's output while the screen covers its terminal.

The program writes to the file by itself. Nothing stands between the two, so the program goes on, without SIGPIPE and
with all its output in the file, also where wattune is killed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wattune.levels.run.view.pane import LastLines

_CHUNK = 1 << 16


class ProgramLog:
    """The output of a program in a file: its last lines for the screen, and all of it for the terminal afterwards."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self.last_lines = LastLines()
        self._read = self._copied = 0

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[ProgramLog]:
        """Make the file, which stays unless it is empty at the end of the block."""
        made, name = tempfile.mkstemp(prefix="wattune-output-", suffix=".log")
        os.close(made)
        descriptor = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            yield cls(Path(name), descriptor)
        finally:
            if not os.fstat(descriptor).st_size:
                Path(name).unlink(missing_ok=True)
            os.close(descriptor)

    @property
    def is_empty(self) -> bool:
        return not os.fstat(self.descriptor).st_size

    def follow(self) -> None:
        """Take what is new into the last lines; of much the latest."""
        size = os.fstat(self.descriptor).st_size
        self._read = max(self._read, size - 16 * _CHUNK)
        while data := os.pread(self.descriptor, _CHUNK, self._read):
            self._read += len(data)
            self.last_lines.feed(data)

    def copy_to(self, terminal: int) -> None:
        """Write to a terminal what it does not have yet."""
        while data := os.pread(self.descriptor, _CHUNK, self._copied):
            self._copied += len(data)
            while data:
                data = data[os.write(terminal, data) :]

    def end_line(self, terminal: int) -> None:
        """End the last line on a terminal that has all, where the program did not."""
        if self._copied and os.pread(self.descriptor, 1, self._copied - 1) != b"\n":
            os.write(terminal, b"\n")
