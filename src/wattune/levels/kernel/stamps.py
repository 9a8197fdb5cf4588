"""When the work of a rank got somewhere: by the host's clock, or by whatever a framework knows of its GPU.

A program hands work to a GPU and runs ahead of it, so "now" on the host is not where the GPU is. A stamp is put between
two pieces of work; later it tells whether the GPU has passed it and how long the way from one stamp to another took.
"""

from __future__ import annotations

import time
from typing import Protocol


class Stamp(Protocol):
    """A place in the work of a rank."""

    def passed(self) -> bool:
        """Whether the work before it is done."""
        ...

    def wait(self) -> None:
        """Nothing; the work before it is done when this returns."""
        ...

    def seconds_to(self, later: Stamp) -> float:
        """Seconds from here to a later stamp; both must have passed."""
        ...


class Stamps(Protocol):
    """What puts stamps into the work of a rank."""

    def stamp(self) -> Stamp:
        """A stamp behind all work given so far."""
        ...


class HostStamp:
    """A moment of the host; work on the CPU is done when the call that does it returns."""

    __slots__ = ("time_s",)

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s

    def passed(self) -> bool:
        """True."""
        return True

    def wait(self) -> None:
        """Nothing, at once."""

    def seconds_to(self, later: Stamp) -> float:
        """Seconds between the two moments."""
        if not isinstance(later, HostStamp):
            raise TypeError("stamps of two clocks cannot be subtracted")
        return later.time_s - self.time_s


class HostStamps:
    """Stamps for work that runs on the CPU."""

    def stamp(self) -> HostStamp:
        """Now."""
        return HostStamp(time.perf_counter())
