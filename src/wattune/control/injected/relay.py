"""Pass the output of a program on and copy it for wattune, which searches it for steps and metrics.

    python -I -S relay.py COPIES SOURCE:PLACE:STREAM …

It reads each source descriptor, writes to its place, and copies what it read: into the rings of the shared file, of
which only the last text is kept, or into a pipe, which loses nothing and makes the program wait for its reader. COPIES
is the descriptor of the file, or `pipe:` and that of the pipe.

It is a process in a session of its own: it goes on until the program has closed its output, also where wattune is
killed, and keys of the terminal do not reach it. A source that is a pseudo-terminal gets the size of the terminal that
it stands for.
"""

from __future__ import annotations

import errno
import os
import selectors
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""Errors of a place that nobody reads any more; a full disk may have room again."""

CHUNK = 1 << 14
"""Bytes at once: no more than a record of the file may have."""
RESIZED_S = 0.25
"""Between two looks at the size of a terminal."""


class Copies:
    """Copies of one stream in a pipe: records of a time in ns (8 bytes), the stream and a length (4 each), and text."""

    def __init__(self, pipe: int, stream: int) -> None:
        from time import monotonic_ns

        self.pipe, self.stream, self.now_ns = pipe, stream, monotonic_ns

    def copy(self, data: bytes) -> None:
        head = self.now_ns() | self.stream << 64 | len(data) << 96
        write_all(self.pipe, head.to_bytes(RECORD_HEAD, "little") + data)


RECORD_HEAD = 16
PIPE = "pipe:"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, or raise the error of the descriptor."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process has set the place so
            import select

            select.select([], [descriptor], [])


class Route:
    """From a source to its place, with a copy in a ring or a pipe."""

    def __init__(self, source: int, place: int, copies: Any) -> None:
        self.source, self.place, self.copies = source, place, copies

    def pass_on(self) -> bool:
        """Pass on what there is; return False where the program has closed, or nobody reads the place any more."""
        try:
            data = os.read(self.source, CHUNK)
        except OSError:
            return False
        try:
            write_all(self.place, data)
        except OSError as error:
            if error.errno in GONE:
                return False
        self.copy(data)
        return bool(data)

    def copy(self, data: bytes) -> None:
        try:
            if data and self.copies is not None:
                self.copies.copy(data)
        except Exception:  # wattune has ended, perhaps; the program has not
            self.copies = None

    def follow_size(self) -> None:
        """Give a pseudo-terminal the size of its terminal."""
        if os.isatty(self.source):
            copy_size(self.place, self.source)


def copy_size(terminal: int, pseudo: int) -> None:
    """Give a pseudo-terminal the size of a terminal."""
    import fcntl
    import termios

    try:
        size, before = (fcntl.ioctl(one, termios.TIOCGWINSZ, bytes(8)) for one in (terminal, pseudo))
        if size != before:
            fcntl.ioctl(pseudo, termios.TIOCSWINSZ, size)
    except OSError:
        pass  # the terminal has gone


def relay(routes: list[Route]) -> None:
    """Pass on output until all sources are closed."""
    with selectors.DefaultSelector() as selector:
        for route in routes:
            selector.register(route.source, selectors.EVENT_READ, route)
        while selector.get_map():
            for key, _ in selector.select(RESIZED_S):
                if not key.data.pass_on():
                    selector.unregister(key.fd)
                    os.close(key.fd)  # if the place was closed, the program notices at its next write
            for key in selector.get_map().values():
                key.data.follow_size()


def main(copies: str, *routes: str) -> None:
    """Relay as the arguments of the command say."""
    numbers = [tuple(map(int, route.split(":"))) for route in routes]
    make = _pipe_copies(int(copies[len(PIPE) :])) if copies.startswith(PIPE) else _ring_copies(int(copies))
    relay([Route(source, place, make(stream)) for source, place, stream in numbers])


def _pipe_copies(pipe: int) -> Any:
    return lambda stream: Copies(pipe, stream)


def _ring_copies(file: int) -> Any:
    import importlib.util

    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wattune_hook.py")
    spec = importlib.util.spec_from_file_location("wattune_injected", beside)
    assert spec is not None
    assert spec.loader is not None
    injected = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(injected)
    steps = injected.Steps(injected.SharedFile.inherited(file))
    return lambda stream: injected.OutputRing(steps, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
