"""A relay for the output of a program that wattune searches for steps and metrics.

    with OutputRelay.made((1, 2), file) as relay:
        start the program with its output at relay.places
        relay.started()

The program writes to a pseudo-terminal of the same size where its output goes to a terminal, and to a pipe elsewhere.
`injected/relay.py` passes it on, as a process that outlives this one. With `made`, the last text is copied into the
file of steps, and a program whose output goes to a file writes to that itself. With `copied`, all that the program
writes is copied into a pipe, and nothing else: a file may have other writers.
"""

from __future__ import annotations

import os
import pty
import select
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from wattune.control.injected import relay as injected
from wattune.control.step_file import StepFile

DRAINED_S = 2.0
"""After the end of the program: the relay goes on by itself where other processes hold the output open."""
_OPOST = 1

_Route = tuple[int, int, int]
"""A source, its place, and the number of the stream."""


@dataclass(slots=True)
class OutputRelay:
    """A running relay."""

    places: tuple[int, int]
    """Descriptors for the standard output and the standard error of the program."""
    _opened: set[int]
    """Those of them that are of the relay."""
    _process: subprocess.Popen[bytes] | None
    _drained_s: float = DRAINED_S

    @classmethod
    @contextmanager
    def made(cls, places: tuple[int, int], file: StepFile, *, owner: int | None = None) -> Iterator[OutputRelay]:
        """Relay output that would go to these descriptors; at the end of the block it has arrived there.

        `owner` is the user who runs the program, who may open its output by name; without one it is this user.
        """
        with cls._begun(places, str(file.descriptor), files=False, owner=owner, inherited=(file.descriptor,)) as relay:
            yield relay

    @classmethod
    @contextmanager
    def copied(cls, places: tuple[int, int], *, owner: int | None = None) -> Iterator[tuple[OutputRelay, RelayedText]]:
        """Relay output that would go to these descriptors; yield also its text, which must be read.

        The relay goes on, without copies, once the text is closed.
        """
        reading, writing = os.pipe()
        text = RelayedText(reading)
        try:
            with cls._begun(
                places, f"{injected.PIPE}{writing}", files=True, owner=owner, inherited=(writing,)
            ) as relay:
                os.close(writing)
                try:
                    yield relay, text
                finally:
                    relay._drained_s = DRAINED_S if text.has_ended else 0.0  # its reader has waited already
                    text.close()
        finally:
            text.close()

    @classmethod
    @contextmanager
    def _begun(
        cls, places: tuple[int, int], copies: str, *, files: bool, owner: int | None, inherited: Sequence[int] = ()
    ) -> Iterator[OutputRelay]:
        routes: dict[_Route, _Route] = {}
        ours: dict[_Route, int] = {}
        found = []
        for stream, place in enumerate(places, start=1):
            key = _identity(place, files=files)
            if key is not None and key not in ours:
                source, ours[key] = _pair(place)
                if owner is not None:
                    os.fchown(ours[key], owner, -1)
                routes[key] = source, place, stream
            found.append(place if key is None else ours[key])
        try:
            process = _start(copies, list(routes.values()), inherited) if routes else None
        finally:
            for source, _, _ in routes.values():
                os.close(source)
        relay = cls((found[0], found[1]), set(ours.values()), process)
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
        if self._process is None:
            return
        try:
            self._process.wait(self._drained_s)
        except subprocess.TimeoutExpired:
            self._process.returncode = 0  # it is left to itself, without a warning


@dataclass(slots=True)
class RelayedText:
    """What a relay has copied into a pipe."""

    descriptor: int
    is_open: bool = True
    has_ended: bool = False
    """True once the relay has."""
    _partial: bytes = b""

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Wait for what is copied next; yield the number of each stream and its bytes."""
        data = os.read(self.descriptor, _CHUNK) if self.is_open else b""
        if not data:
            self.has_ended = True
            self.close()
        self._partial += data
        while len(self._partial) >= injected.RECORD_HEAD:
            head = int.from_bytes(self._partial[: injected.RECORD_HEAD], "little")
            end = injected.RECORD_HEAD + (head >> 96)
            if len(self._partial) < end:
                return
            text, self._partial = self._partial[injected.RECORD_HEAD : end], self._partial[end:]
            yield head >> 64 & 0xFFFFFFFF, text

    def is_ready(self, wait_s: float = 0.0) -> bool:
        """Return whether `read` would not wait, after waiting so long for it."""
        return self.is_open and bool(select.select([self.descriptor], [], [], wait_s)[0])

    def close(self) -> None:
        if self.is_open:
            os.close(self.descriptor)
        self.is_open = False


_CHUNK = 1 << 16


def _identity(place: int, *, files: bool) -> _Route | None:
    """Return what distinguishes the target of a descriptor from others.

    None where it is closed and, unless `files` are relayed too, for files.
    """
    try:
        about = os.fstat(place)
    except OSError:
        return None
    return None if stat.S_ISREG(about.st_mode) and not files else (about.st_dev, about.st_ino, about.st_rdev)


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


def _start(copies: str, routes: Sequence[_Route], inherited: Sequence[int]) -> subprocess.Popen[bytes]:
    # The places are 1 and 2, which the relay itself has as well.
    again = [(source, os.dup(place), stream) for source, place, stream in routes]
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", injected.__file__, copies, *(":".join(map(str, one)) for one in again)],
            pass_fds=[*inherited, *(descriptor for source, place, _ in again for descriptor in (source, place))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        for _, place, _ in again:
            os.close(place)
