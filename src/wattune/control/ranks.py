"""How the processes of a data-parallel job agree, without a server: rank 0 decides and tells the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Ranks(Protocol):
    """The processes of one job. All of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many they are."""
        ...

    def broadcast(self, text: str) -> str:
        """The text of rank 0, on every rank; what the others pass in is not looked at."""
        ...

    def sum_and_max(self, values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For each place the sum and the largest of what the ranks pass in, the same on every rank."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A job of one process."""

    rank: int = 0
    size: int = 1

    def broadcast(self, text: str) -> str:
        """The text."""
        return text

    def sum_and_max(self, values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values, twice."""
        return tuple(values), tuple(values)
