"""The lines that a program prints, read beside it.

The hook in the program's Python copies what it writes, wherever that goes (`process.step_file`). Output that goes to a
file, as under nohup or a batch system, can be read there. Elsewhere a relay stands between the program and its output:

    with OutputRelay.made((1, 2)) as relay:
        start the program with its output at relay.places
        relay.started()
        read relay.text

The program writes to a pseudo-terminal of the same size where its output goes to a terminal, and to a pipe elsewhere.
`injected/relay.py` passes it on, as a process that outlives this one, and copies it into a pipe.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import stat
import subprocess
import sys
import termios
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from wattune.process.injected import relay as injected
from wattune.process.step_file import SILENT_S, PrintedText, StepFile, Written, is_gone

DRAINED_S = 2.0
"""After the end of the program: the relay goes on by itself where other processes hold the output open."""
TAIL = 1 << 14
"""Bytes of the output that are kept to find out why a program died."""
COPIES = 1 << 20
"""Bytes that may wait in the pipe of copies, where the system allows so many."""
_CHUNK = 1 << 16
_MOST_CHUNKS = 64
"""Chunks that are read at once of a program that prints without a pause."""
_OPOST = 1

_Route = tuple[int, int, int]
"""A source, its place, and the number of the stream."""


@dataclass(slots=True)
class OutputRelay:
    """A running relay."""

    places: tuple[int, int]
    """Descriptors for the standard output and the standard error of the program."""
    text: RelayedText
    _opened: set[int]
    """Those of them that are of the relay."""
    _process: subprocess.Popen[bytes] | None

    @classmethod
    @contextmanager
    def made(
        cls, places: tuple[int, int], *, owner: int | None = None, mode: str = injected.BESIDE
    ) -> Iterator[OutputRelay]:
        """Relay output that would go to these descriptors; at the end of the block what was printed has arrived there.

        `owner` is the user who runs the program, who may open its output by name; without one it is this user. `mode`
        says what becomes of copies that nobody reads (`injected/relay.py`); with INSTEAD only output for a terminal is
        relayed.
        """
        routes: dict[_Route, _Route] = {}
        ours: dict[_Route, int] = {}
        found = []
        for stream, place in enumerate(places, start=1):
            key = None if mode == injected.INSTEAD and not os.isatty(place) else _identity(place)
            if key is not None and key not in ours:
                source, ours[key] = _pair(place)
                if owner is not None:
                    os.fchown(ours[key], owner, -1)
                routes[key] = source, place, stream
            found.append(place if key is None else ours[key])
        reading, writing = _copies_pipe()
        text = RelayedText(reading)
        try:
            process = _start(writing, list(routes.values()), mode) if routes else None
        finally:
            for descriptor in (writing, *(source for source, _, _ in routes.values())):
                os.close(descriptor)
        relay = cls((found[0], found[1]), text, set(ours.values()), process)
        try:
            yield relay
        finally:
            relay.started()
            relay._end()

    def started(self) -> None:
        """Close the program's ends here, so that the relay sees when the program has closed them."""
        while self._opened:
            os.close(self._opened.pop())

    def _end(self) -> None:
        drained_s = DRAINED_S if self.text.has_ended else 0.0  # else its reader has waited already
        self.text.close()
        if self._process is None:
            return
        try:
            self._process.wait(drained_s)
        except subprocess.TimeoutExpired:
            self._process.returncode = 0  # it is left to itself, without a warning


@dataclass(slots=True)
class RelayedText:
    """What a relay has copied, which goes on without copies once this is closed."""

    descriptor: int
    is_open: bool = True
    has_ended: bool = False
    """True once the relay has."""
    tail: bytes = b""
    """The end of it."""
    _partial: bytes = b""

    def read(self, wait_s: float = 0.0) -> Iterator[tuple[int, Written]]:
        """Yield the number of each stream and what was written to it, after waiting so long for something."""
        for _ in range(_MOST_CHUNKS):
            if not self.is_open or not select.select([self.descriptor], [], [], wait_s)[0]:
                return
            data, wait_s = os.read(self.descriptor, _CHUNK), 0.0
            if not data:
                self.has_ended = True
                self.close()
            self._partial += data
            yield from self._records()

    def rest(self) -> Iterator[tuple[int, Written]]:
        """Yield what is left after the end of a program; its own children may hold its output open."""
        end_s = time.monotonic() + DRAINED_S
        while self.is_open and (left_s := end_s - time.monotonic()) > 0:
            yield from self.read(left_s)

    def close(self) -> None:
        if self.is_open:
            os.close(self.descriptor)
        self.is_open = False

    def _records(self) -> Iterator[tuple[int, Written]]:
        while len(self._partial) >= injected.RECORD_HEAD:
            head = int.from_bytes(self._partial[: injected.RECORD_HEAD], "little")
            end = injected.RECORD_HEAD + (head >> 96)
            if len(self._partial) < end:
                return
            text, self._partial = self._partial[injected.RECORD_HEAD : end], self._partial[end:]
            self.tail = (self.tail + text)[-TAIL:]
            yield head >> 64 & 0xFFFFFFFF, Written((head & (1 << 64) - 1) / 1e9, text)


def _identity(place: int) -> _Route | None:
    """Return what distinguishes the target of a descriptor from others; None where it is closed."""
    try:
        about = os.fstat(place)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_rdev


def _pair(place: int) -> tuple[int, int]:
    """Return two ends that stand for a place: the one that the relay reads, and the program's."""
    if not os.isatty(place):
        return os.pipe()
    source, ours = pty.openpty()
    attributes = termios.tcgetattr(place)
    attributes[_OPOST] &= ~termios.OPOST  # the terminal itself does it
    termios.tcsetattr(ours, termios.TCSANOW, attributes)
    injected.copy_size(place, source)
    return source, ours


def _copies_pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    with suppress(OSError):  # this user has no more memory for pipes
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, COPIES)
    return reading, writing


def _start(copies: int, routes: Sequence[_Route], mode: str) -> subprocess.Popen[bytes]:
    # The places are 1 and 2, which the relay itself has as well.
    again = [(source, os.dup(place), stream) for source, place, stream in routes]
    try:
        return subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                injected.__file__,
                mode,
                str(copies),
                *(":".join(map(str, one)) for one in again),
            ],
            pass_fds=[copies, *(descriptor for source, place, _ in again for descriptor in (source, place))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        for _, place, _ in again:
            os.close(place)


LONGEST_LINE = 1 << 16
"""Bytes of a line that are kept: a program that prints no line end must not fill the memory."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class LineBuffer:
    """Splits bytes into lines; a line without an end waits for it.

    A carriage return ends a line too, since progress bars overwrite their line and never end it.
    """

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> tuple[str, ...]:
        *lines, self._partial = re.split(rb"[\r\n]", self._partial + data)
        self._partial = self._partial[-LONGEST_LINE:]
        return tuple(plain(line) for line in lines if line)

    def rest(self) -> tuple[str, ...]:
        """Return a last line without an end, if any."""
        partial, self._partial = self._partial, b""
        return (plain(partial),) if partial else ()


def plain(line: bytes) -> str:
    """Decode a line and remove terminal colours."""
    return _COLOUR.sub("", line.decode("utf-8", "replace"))


MOST_BYTES = 1 << 20
"""Bytes of a file that are read at once; of more the latest."""
UNKNOWN = 0
"""Stands for the process of lines in files or of a relay, which is unknown."""


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A line, and how long ago it ended."""

    text: str
    age_s: float


def _lines_of(buffer: LineBuffer, written: Written, now_s: float) -> Iterator[PrintedLine]:
    age_s = max(now_s - written.time_s, 0.0)
    return (PrintedLine(line, age_s) for line in buffer.feed(written.data))


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
    """The text of one stream of one process, copied by the hook."""

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
            yield from _lines_of(self.lines, one, now_s)


class PrintedLines:
    """The lines of a program by process: as its own Python or a relay copies them, and in the files they go to."""

    def __init__(
        self, descriptors: Sequence[int] = (), copied: StepFile | None = None, relayed: RelayedText | None = None
    ) -> None:
        """The descriptors are open for reading."""
        self._files = [_FileText(one) for one in descriptors]
        self._copied, self._relayed = copied, relayed
        self._texts: dict[tuple[int, int], _CopiedText] = {}
        self._streams: dict[int, LineBuffer] = defaultdict(LineBuffer)

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

    def new(self, *, ended: bool = False) -> dict[int, list[PrintedLine]]:
        """Return the lines since the last call by process, in order of time, copies before others.

        Of a program that has ended they include last lines without an end.
        """
        found: dict[int, list[PrintedLine]] = defaultdict(list)
        for text in self._found():
            found[text.text.pid].extend(text.new())
        for lines in found.values():
            lines.sort(key=lambda line: -line.age_s)
        if self._relayed is not None:
            now_s = time.monotonic()
            for stream, written in self._relayed.rest() if ended else self._relayed.read():
                found[UNKNOWN].extend(_lines_of(self._streams[stream], written, now_s))
        for file in self._files:
            found[UNKNOWN].extend(file.new())
        for pid, buffer in self._buffers() if ended else ():
            found[pid].extend(PrintedLine(line, 0.0) for line in buffer.rest())
        return {pid: lines for pid, lines in found.items() if lines}

    def close(self) -> None:
        for text in self._files:
            os.close(text.descriptor)
        self._files = []

    def _buffers(self) -> Iterator[tuple[int, LineBuffer]]:
        yield from ((text.text.pid, text.lines) for text in self._texts.values())
        yield from ((UNKNOWN, lines) for lines in (*self._streams.values(), *(file.lines for file in self._files)))

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
        return self.pid is None or (self.pid != UNKNOWN and is_gone(self.pid))
