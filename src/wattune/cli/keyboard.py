"""Keys of the screens of commands."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Read keys without Enter while the block lasts.

    Yield a function that returns the keys pressed as soon as there are any, or an empty text after so many seconds.
    Where standard input is no terminal, or this process is in its background, it only waits.
    """
    if sys.stdin is None or not sys.stdin.isatty() or not _in_foreground(sys.stdin.fileno()):

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def keys(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 64).decode(errors="ignore") if ready else ""

    tty.setcbreak(descriptor)
    try:
        yield keys
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it is not the terminal of this session, which nobody is stopped at
        return True
