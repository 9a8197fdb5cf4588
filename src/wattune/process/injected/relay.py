"""Pass the output of a program on and copy it for wattune, which searches it for steps and metrics.

    python -I -S relay.py MODE COPIES SOURCE:PLACE:STREAM …

It reads each source descriptor, writes to its place, and copies what it read into a pipe, whose descriptor is COPIES.
The mode says what becomes of copies that nobody reads for long: `beside` loses them, `awaited` makes the program wait,
and with `instead` the place gets nothing but what nobody will read any more.

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
BESIDE, AWAITED, INSTEAD = "beside", "awaited", "instead"
MOST_LEFT = 1 << 16
"""Bytes that may wait here, where the program does not."""
ENDED_S = 1.0
"""How long they wait after the end of the program."""


class Copies:
    """The copies of all streams."""

    def __init__(self, pipe: int, mode: str) -> None:
        self.pipe: int | None = pipe
        self.left = b""
        os.set_blocking(pipe, mode != BESIDE)

    def add(self, stream: int, data: bytes) -> bool:
        """Copy what was read; return whether somebody may read it."""
        if data and len(self.left) < MOST_LEFT:
            head = monotonic_ns() | stream << 64 | len(data) << 96
            self.left += head.to_bytes(RECORD_HEAD, "little") + data
        self.flush()
        return self.pipe is not None

    def flush(self) -> None:
        """Write what is left, as far as there is room."""
        try:
            while self.left and self.pipe is not None:
                self.left = self.left[os.write(self.pipe, self.left) :]
        except BlockingIOError:
            pass  # later, perhaps
        except OSError:  # wattune has ended, perhaps; the program has not
            self.pipe = None

    def end(self) -> None:
        """Wait a little for a reader of what is left."""
        if self.left and self.pipe is not None:
            import select

            select.select([], [self.pipe], [], ENDED_S)
            self.flush()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, or raise the error of the descriptor."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process has set the place so
            import select

            select.select([], [descriptor], [])


class Route:
    """From a source to its place, with copies."""

    def __init__(self, source: int, place: int, stream: int, copies: Copies, mode: str) -> None:
        self.source, self.place, self.stream = source, place, stream
        self.copies, self.instead = copies, mode == INSTEAD

    def pass_on(self) -> bool:
        """Pass on what there is; return False where the program has closed, or nobody reads the place any more."""
        try:
            data = os.read(self.source, CHUNK)
        except OSError:
            return False
        if not (self.instead and self.copies.add(self.stream, data)):
            try:
                write_all(self.place, data)
            except OSError as error:
                if error.errno in GONE:
                    return False
        if not self.instead:
            self.copies.add(self.stream, data)
        return bool(data)

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
                key.data.copies.flush()


def main(mode: str, pipe: str, *routes: str) -> None:
    """Relay as the arguments of the command say."""
    copies = Copies(int(pipe), mode)
    numbers = [tuple(map(int, route.split(":"))) for route in routes]
    relay([Route(source, place, stream, copies, mode) for source, place, stream in numbers])
    copies.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
