"""Something that was tried, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from wattune.core.measurement import Measurement

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Trial(Generic[C]):
    """A choice and its cost."""

    choice: C
    cost: Measurement


History = tuple[Trial[C], ...]
