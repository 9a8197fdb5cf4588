"""When to look at an energy counter next, so that each of its moves is seen soon and few looks see none."""

from __future__ import annotations

from dataclasses import dataclass, replace

POLL_S = 0.02
"""A move of the counter is seen so late at most; what that leaves open at both ends of a window is 0.8 of it."""
_REST = 0.95
"""Share of a refresh in which nobody looks. Less than 1, because a look comes late by what computers are late by: so
looks creep towards the move, until one comes too early and the next sees it fresh."""
_FORGET = 1.02
"""By so much what was learned of a refresh grows from move to move: one that slows down is followed."""


@dataclass(frozen=True, slots=True)
class Polling:
    """How often a counter moves, as the part tells or as was seen, and whether it just did."""

    told_s: float | None = None
    """The refresh of the counter, where the part is known to have one."""
    learned_s: float | None = None
    moved_s: float | None = None
    moved: bool = False

    def looked(self, time_s: float, *, moved: bool) -> Polling:
        """After one more look."""
        if not moved:
            return replace(self, moved=False)
        learned_s = self.learned_s
        if self.moved_s is not None:
            gap_s = time_s - self.moved_s
            learned_s = gap_s if learned_s is None else min(gap_s, _FORGET * learned_s)
        return replace(self, learned_s=learned_s, moved_s=time_s, moved=True)

    @property
    def wait_s(self) -> float:
        """How long to wait until the next look: a counter that moved does not move again before its next refresh."""
        refresh_s = self.learned_s if self.told_s is None else self.told_s
        if not self.moved or refresh_s is None:
            return POLL_S
        return max(POLL_S, _REST * refresh_s)
