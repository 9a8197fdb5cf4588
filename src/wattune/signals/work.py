"""Work that is done bit by bit: a generator that yields between two bits, and returns what came of them all.

A bit of the search for a period takes about a millisecond, so that a stream of samples can be kept up with without ever
standing still for longer.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


def done(work: Work[T]) -> T:
    """What comes of the work, all of it done at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


class Task(Generic[T]):
    """Work that remembers how far it has come, so that whoever asks for a bit that was done before gets the same."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._bits = 0
        self._whole: int | None = None
        self._result: T | None = None

    def after(self, bits: int) -> T | None:
        """What came of the work once so many bits are done; None where that is not yet all."""
        while self._whole is None and self._bits < bits:
            self._bits += 1
            try:
                next(self._work)
            except StopIteration as end:
                self._whole, self._result = self._bits, end.value
        return self._result if self._whole is not None and bits >= self._whole else None
