"""Single keys from the terminal, which is given back as it was."""

from __future__ import annotations

import os
import select
import sys
import time
from types import TracebackType


class Keyboard:
    """`with Keyboard() as keyboard: keyboard.wait(0.5)`: keys arrive without Enter while the block lasts.

    Without a terminal at standard input there are no keys, and waiting is all it does.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[object] | None = None

    def __enter__(self) -> Keyboard:
        if self._fd is not None:
            import termios
            import tty

            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None and self._before is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def wait(self, seconds: float) -> str:
        """The keys that were pressed within so many seconds, as soon as there are any; empty after that time."""
        if self._fd is None:
            time.sleep(max(seconds, 0.0))
            return ""
        ready, _, _ = select.select([self._fd], [], [], max(seconds, 0.0))
        return os.read(self._fd, 64).decode(errors="ignore") if ready else ""
