"""Pass the output of a program on and copy it for wattune, which searches it for steps and metrics.

    python -I -S relay.py MODE COPIES SOURCE:PLACE:STREAM …

It reads each source descriptor, writes to its place, and copies what it read into a pipe, which loses nothing and makes
the program wait for its reader; COPIES is the descriptor of that pipe. With the mode `instead` of a place only the
copies get the output, until nobody reads them any more.

It is a process in a session of its own: it goes on until the program has closed its output, also where wattune is
killed, and keys of the terminal do not reach it. A source that is a pseudo-terminal gets the size of the terminal that
it stands for.
"""

from __future__ import annotations

import errno
import os
import selectors
import sys
from time import monotonic_ns

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""Errors of a place that nobody reads any more; a full disk may have room again."""

CHUNK = 1 << 14
RESIZED_S = 0.25
"""Between two looks at the size of a terminal."""


RECORD_HEAD = 16
"""A record of the pipe has a time in ns (8 bytes), the stream and a length (4 each), and text."""
BESIDE, INSTEAD = "beside", "instead"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, or raise the error of the descriptor."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process has set the place so
            import select

            select.select([], [descriptor], [])


class Route:
    """From a source to its place, with a copy in a pipe."""

    def __init__(self, source: int, place: int, stream: int, pipe: int, mode: str) -> None:
        self.source, self.place, self.stream = source, place, stream
        self.pipe: int | None = pipe
        self.instead = mode == INSTEAD

    def pass_on(self) -> bool:
        """Pass on what there is; return False where the program has closed, or nobody reads the place any more."""
        try:
            data = os.read(self.source, CHUNK)
        except OSError:
            return False
        if not (self.instead and self.copied(data)):
            try:
                write_all(self.place, data)
            except OSError as error:
                if error.errno in GONE:
                    return False
        if not self.instead:
            self.copied(data)
        return bool(data)

    def copied(self, data: bytes) -> bool:
        """Copy what was read; return whether somebody reads the copies."""
        if data and self.pipe is not None:
            head = monotonic_ns() | self.stream << 64 | len(data) << 96
            try:
                write_all(self.pipe, head.to_bytes(RECORD_HEAD, "little") + data)
            except OSError:  # wattune has ended, perhaps; the program has not
                self.pipe = None
        return self.pipe is not None

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


def main(mode: str, pipe: str, *routes: str) -> None:
    """Relay as the arguments of the command say."""
    numbers = [tuple(map(int, route.split(":"))) for route in routes]
    relay([Route(source, place, stream, int(pipe), mode) for source, place, stream in numbers])


if __name__ == "__main__":
    main(*sys.argv[1:])
