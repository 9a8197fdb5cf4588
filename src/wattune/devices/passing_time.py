"""How time passes for a simulated GPU: virtually, when work is done, or as on the wall."""

from __future__ import annotations

import time
from typing import Protocol


class PassingTime(Protocol):
    """A clock that can be read and waited on."""

    def now_s(self) -> float:
        """Seconds since the clock was made."""
        ...

    def wait(self, seconds: float) -> None:
        """Nothing; so many seconds have passed."""
        ...


class VirtualTime:
    """Time that passes only while someone waits, and then at once."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        """Seconds waited so far."""
        return self._now_s

    def wait(self, seconds: float) -> None:
        """Nothing; so many seconds have passed, in no time."""
        self._now_s += seconds


class WallTime:
    """Time as it passes for everybody."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def now_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._start_s

    def wait(self, seconds: float) -> None:
        """Nothing; so many seconds have passed, asleep."""
        time.sleep(seconds)
