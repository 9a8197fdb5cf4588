"""The lines that a program prints, read beside it.

The hook in the program's Python copies what it writes, wherever that goes, and a relay copies what passes through it
(`control.output_relay`). Output that goes to a file, as under nohup or a batch system, is read there.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wattune.control.reports.file import LineBuffer
from wattune.control.step_file import SILENT_S, PrintedText, StepFile, is_gone

MOST_BYTES = 1 << 20
"""Bytes that are read at once; of more the latest."""
FILES = 0
"""Stands for the process of lines in files, which is unknown."""


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A line, and how long ago it ended."""

    text: str
    age_s: float


class _FileText:
    """The text of a file that the output of a program goes to."""

    def __init__(self, descriptor: int) -> None:
        """What the file contains by now is not of the program."""
        self.descriptor, self.lines = descriptor, LineBuffer()
        self._position = os.fstat(descriptor).st_size

    def new(self) -> Iterator[PrintedLine]:
        """Return the lines since the last call; when each of them ended is unknown here."""
        try:
            size = os.fstat(self.descriptor).st_size
            start = max(self._position if size >= self._position else 0, size - MOST_BYTES)
            self._position = size
            data = os.pread(self.descriptor, size - start, start) if size > start else b""
        except OSError:
            return
        yield from (PrintedLine(line, 0.0) for line in self.lines.feed(data))


class _CopiedText:
    """The text of one stream of one process, copied by the hook or by a relay."""

    def __init__(self, file: StepFile, text: PrintedText) -> None:
        self.lines = LineBuffer()
        self._file, self.text, self._read = file, text, 0

    def new(self) -> Iterator[PrintedLine]:
        read, self._read = self._read, self.text.written
        if read == self.text.written:
            return
        writes = self._file.writes_since(read, self.text)
        if not writes:
            self.lines.rest()  # it was overwritten, and so was the end of the line
        now_s = time.monotonic()
        for one in writes:
            age_s = max(now_s - one.time_s, 0.0)
            yield from (PrintedLine(line, age_s) for line in self.lines.feed(one.data))


class PrintedLines:
    """The lines of a program by process: as its own Python or a relay copies them, and in the files they go to."""

    def __init__(self, descriptors: Sequence[int] = (), copied: StepFile | None = None) -> None:
        """The descriptors are open for reading."""
        self._files = [_FileText(one) for one in descriptors]
        self._copied = copied
        self._texts: dict[tuple[int, int], _CopiedText] = {}

    @classmethod
    def beside(cls, descriptors: Sequence[int], copied: StepFile | None = None) -> PrintedLines:
        """Open the regular files among these descriptors a second time."""
        found: dict[tuple[int, int], int] = {}
        for descriptor in descriptors:
            try:
                about = os.fstat(descriptor)
                if stat.S_ISREG(about.st_mode) and (about.st_dev, about.st_ino) not in found:
                    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
                    found[about.st_dev, about.st_ino] = again
            except OSError:
                continue  # a closed descriptor, or a file that may only be written
        return cls(tuple(found.values()), copied)

    def new(self) -> dict[int, list[PrintedLine]]:
        """Return the lines since the last call by process, in order of time, copies before files."""
        found: dict[int, list[PrintedLine]] = {}
        for text in self._found():
            found.setdefault(text.text.pid, []).extend(text.new())
        for lines in found.values():
            lines.sort(key=lambda line: -line.age_s)
        for file in self._files:
            found.setdefault(FILES, []).extend(file.new())
        return {pid: lines for pid, lines in found.items() if lines}

    def rest(self) -> dict[int, list[PrintedLine]]:
        """Return last lines without an end, after the end of the program."""
        found: dict[int, list[PrintedLine]] = {}
        for text in self._texts.values():
            found.setdefault(text.text.pid, []).extend(PrintedLine(line, 0.0) for line in text.lines.rest())
        for file in self._files:
            found.setdefault(FILES, []).extend(PrintedLine(line, 0.0) for line in file.lines.rest())
        return found

    def close(self) -> None:
        for text in self._files:
            os.close(text.descriptor)
        self._files = []

    def _found(self) -> Sequence[_CopiedText]:
        for text in () if self._copied is None else self._copied.texts():
            key = text.start, text.pid
            if key not in self._texts and self._copied is not None:
                self._texts[key] = _CopiedText(self._copied, text)
            self._texts[key].text = text
        return tuple(self._texts.values())


class OneProcess:
    """The process whose steps count, since ranks step together: another once that has ended or stood still."""

    def __init__(self) -> None:
        self.pid: int | None = None
        """None before the first step."""
        self._moved_s = float("-inf")

    def among(self, moved: Sequence[int]) -> int | None:
        """Choose of the processes that have new steps; None where the one that counts has none."""
        now_s = time.monotonic()
        if self.pid not in moved:
            if not moved or (now_s - self._moved_s < SILENT_S and not self._has_ended()):
                return None
            self.pid = moved[0]
        self._moved_s = now_s
        return self.pid

    def _has_ended(self) -> bool:
        return self.pid is None or (self.pid != FILES and is_gone(self.pid))
