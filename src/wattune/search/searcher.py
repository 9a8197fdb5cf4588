"""The protocol of those who choose what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from wattune.core.trial import History

C = TypeVar("C")


class Searcher(Protocol[C]):
    """Chooses among candidates by what was tried; a frozen value whose memory is the history it is given."""

    def propose(self, candidates: Sequence[C], history: History[C]) -> C | None:
        """The candidate to try next, or None where enough is known."""
        ...
