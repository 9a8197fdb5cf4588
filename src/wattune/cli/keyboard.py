"""Keys of the screens of commands."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Keys:
    """The keyboard of this process, where standard input is a terminal and this process is in its foreground."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] | None = None

    def __call__(self, seconds: float) -> str:
        """Return the keys pressed as soon as there are any, or an empty text after so many seconds."""
        if self._before is None or self._descriptor is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return os.read(self._descriptor, 64).decode(errors="ignore") if ready else ""

    def take(self) -> None:
        """Read keys without Enter from now on."""
        if self._before is None and self._descriptor is not None and self.is_in_foreground:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)

    def release(self) -> None:
        """Leave the terminal as it was; in the background it is the shell's by now."""
        if self._before is not None and self._descriptor is not None and self.is_in_foreground:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
        self._before = None

    @property
    def is_in_foreground(self) -> bool:
        return self._descriptor is None or _in_foreground(self._descriptor)


@contextmanager
def keyboard() -> Iterator[Keys]:
    """Read keys without Enter while the block lasts."""
    keys = Keys()
    keys.take()
    try:
        yield keys
    finally:
        keys.release()


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it is not the terminal of this session, which nobody is stopped at
        return True
