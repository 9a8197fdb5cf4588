"""Places in the work of a GPU, at which a new setting is due or between which time is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Stamp(Protocol):
    """A place in the work of a rank."""

    def passed(self) -> bool:
        """Return whether the work before it is done."""
        ...

    def wait(self) -> None:
        """Wait until the work before it is done."""
        ...

    def seconds_to(self, later: Stamp) -> float:
        """Return the seconds from here to a later stamp; both must have passed."""
        ...


Stamps = Callable[[], Stamp]
"""Returns a stamp behind all work given so far."""


class HostStamp:
    """A time of the host; work on the CPU is done when the call that does it returns."""

    __slots__ = ("time_s",)

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s

    @classmethod
    def now(cls) -> HostStamp:
        return cls(time.perf_counter())

    def passed(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def seconds_to(self, later: Stamp) -> float:
        if not isinstance(later, HostStamp):
            raise TypeError("stamps of two clocks cannot be subtracted")
        return later.time_s - self.time_s
