"""Pass the output of a program on and copy it into the shared file, for `wattune run --step-pattern`.

    python -I -S relay.py FILE SOURCE:PLACE:STREAM …

FILE is the descriptor of that file. It reads each source descriptor, writes to its place, and copies what it wrote. It
is a process in a session of its own: it goes on until the program has closed its output, also where wattune is killed,
and keys of the terminal do not reach it. A source that is a pseudo-terminal gets the size of the terminal that it
stands for.
"""

from __future__ import annotations

import os
import selectors
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 14
"""Bytes at once: no more than a record of the file may have."""
RESIZED_S = 0.25
"""Between two looks at the size of a terminal."""


class Route:
    """From a source to its place, with a copy in a ring."""

    def __init__(self, source: int, place: int, ring: Any) -> None:
        self.source, self.place, self.ring = source, place, ring

    def pass_on(self) -> bool:
        """Pass on what there is; return False where the program or the place has closed."""
        try:
            data = left = os.read(self.source, CHUNK)
            while left:
                left = left[os.write(self.place, left) :]
        except OSError:
            return False
        self.copy(data)
        return bool(data)

    def copy(self, data: bytes) -> None:
        try:
            if data and self.ring is not None:
                self.ring.copy(data)
        except Exception:  # wattune has ended, perhaps; the program has not
            self.ring = None

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


def main(file: str, *routes: str) -> None:
    """Relay as the arguments of the command say."""
    import importlib.util

    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wattune_hook.py")
    spec = importlib.util.spec_from_file_location("wattune_injected", beside)
    assert spec is not None
    assert spec.loader is not None
    injected = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(injected)
    steps = injected.Steps(injected.SharedFile.inherited(int(file)))
    numbers = [tuple(map(int, route.split(":"))) for route in routes]
    relay([Route(source, place, injected.OutputRing(steps, stream)) for source, place, stream in numbers])


if __name__ == "__main__":
    main(*sys.argv[1:])
