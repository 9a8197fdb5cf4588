"""Settle, measure, hold: the states of one choice after the other, for every level, and when a state is over.

    Settling(choice, since)      applied, and not measured yet; over once `settle.is_over(...)`
    Measuring(choice, window)    a window under way; over once `measure.is_over(...)`

Then the policy of the level makes another choice, or holds one. `since` and `window` are values of the level: the
first reading and the totals of a run, the intervals of a job, the counter readings of a pipeline. A level counts time
in seconds, in steps (iterations, intervals, updates of the energy counter), or in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Generic, TypeVar

C = TypeVar("C")
S = TypeVar("S")
W = TypeVar("W")


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """The end of settling or of a window: at `most`, or from `least` on once the error is small enough."""

    least_s: float = 0.0
    least_steps: int = 0
    most_s: float = inf
    most_steps: float = inf
    precision: float | None = None
    """Largest relative error; None where the error does not matter."""

    def is_over(self, *, time_s: float = 0.0, steps: int = 0, error: float | None = None) -> bool:
        if time_s >= self.most_s or steps >= self.most_steps:
            return True
        if time_s < self.least_s or steps < self.least_steps:
            return False
        return self.precision is None or (error is not None and error <= self.precision)

    def steps_left(self, *, time_s: float = 0.0, steps: int = 0) -> int:
        """Return the number of steps up to the least length, by the step time so far; 1 at least."""
        if not steps:
            return max(self.least_steps, 1)
        return max(self.least_steps - steps, ceil((self.least_s - time_s) / max(time_s / steps, 1e-9)), 1)


@dataclass(frozen=True, slots=True)
class Settling(Generic[C, S]):
    """A choice was applied and is not measured yet."""

    choice: C
    since: S
    """A value that shows how long ago that was."""


@dataclass(frozen=True, slots=True)
class Measuring(Generic[C, W]):
    """A window of a choice is under way."""

    choice: C
    window: W
    """Its measurements so far."""
