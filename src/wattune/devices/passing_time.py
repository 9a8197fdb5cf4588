"""The time of a simulated GPU: virtual time, or wall time."""

from __future__ import annotations

import time
from typing import Protocol


class PassingTime(Protocol):
    """A clock that can be read and waited on."""

    def now_s(self) -> float:
        """Seconds since the clock was made."""

    def wait(self, seconds: float) -> None:
        """Let so many seconds pass."""


class VirtualTime:
    """Time that passes only by `wait`, which returns at once."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def wait(self, seconds: float) -> None:
        self._now_s += seconds


class WallTime:
    """Wall time since the clock was made, plus `ahead_s` seconds that were skipped."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self.ahead_s = 0.0

    def now_s(self) -> float:
        return time.monotonic() - self._start_s + self.ahead_s

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)
