"""A relay for the output of a program that is not read otherwise.

    with OutputRelay.made((1, 2), file) as relay:
        start the program with its output at relay.places
        relay.started()

The program writes to a pseudo-terminal of the same size where its output goes to a terminal, to a pipe where it goes
to a pipe or a device, and to the file itself where it goes to a file. `injected/relay.py` passes it on, as a process
that outlives this one.
"""

from __future__ import annotations

import os
import pty
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wattune.control.injected import relay as injected
from wattune.control.step_file import StepFile

DRAINED_S = 2.0
"""After the end of the program: the relay goes on by itself where other processes hold the output open."""
_OPOST = 1


@dataclass(slots=True)
class OutputRelay:
    """A running relay."""

    places: tuple[int, int]
    """Descriptors for the standard output and the standard error of the program."""
    _opened: set[int]
    """Those of them that are of the relay."""
    _process: subprocess.Popen[bytes] | None

    @classmethod
    @contextmanager
    def made(cls, places: tuple[int, int], file: StepFile) -> Iterator[OutputRelay]:
        """Relay output that would go to these descriptors; at the end of the block it has arrived there."""
        routes: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        ours: dict[tuple[int, int, int], int] = {}
        found = []
        for stream, place in enumerate(places, start=1):
            key = _identity(place)
            if key is not None and key not in ours:
                source, ours[key] = _pair(place)
                routes[key] = source, place, stream
            found.append(place if key is None else ours[key])
        try:
            process = _start(file, list(routes.values())) if routes else None
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
            self._process.wait(DRAINED_S)
        except subprocess.TimeoutExpired:
            self._process.returncode = 0  # it is left to itself, without a warning


def _identity(place: int) -> tuple[int, int, int] | None:
    """Return what distinguishes the target of a descriptor from others; None for files and closed descriptors."""
    try:
        about = os.fstat(place)
    except OSError:
        return None
    return None if stat.S_ISREG(about.st_mode) else (about.st_dev, about.st_ino, about.st_rdev)


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


def _start(file: StepFile, routes: list[tuple[int, int, int]]) -> subprocess.Popen[bytes]:
    # The places are 1 and 2, which the relay itself has as well.
    again = [(source, os.dup(place), stream) for source, place, stream in routes]
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", injected.__file__, *map(str, (file.descriptor, *map(_route, again)))],
            pass_fds=[file.descriptor, *(descriptor for source, place, _ in again for descriptor in (source, place))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        for _, place, _ in again:
            os.close(place)


def _route(numbers: tuple[int, int, int]) -> str:
    return ":".join(map(str, numbers))
