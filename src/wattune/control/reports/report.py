"""Reports of a training program, whichever way they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class Report:
    """The metric at the end of an epoch."""

    metric: float | None
    """None where it is no finite number, such as a loss that is NaN."""
    epoch: int | None = None
    """The number that the program gives that epoch; None where it gives none."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One iteration has ended, or all those up to a number."""

    number: int | None = None
    """Iterations since the program started; None for one more."""


@dataclass(frozen=True, slots=True)
class NoMemory:
    """The batch size does not fit."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A report that could not be parsed, with one line that describes the problem."""

    complaint: str


AnyReport = Report | StepReport | NoMemory | Unreadable


def finite(value: float) -> float | None:
    """Return the value, or None where it is not finite."""
    return value if isfinite(value) else None


def number_of(text: str) -> float | None:
    """Parse a number; None where the text is none or not finite."""
    try:
        return finite(float(text))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class StepCount:
    """Epochs and steps reported so far, so that none counts twice."""

    epochs: frozenset[int] = frozenset()
    steps: int = 0

    def is_new(self, report: Report) -> bool:
        """Return True where the epoch was not reported yet; one without a number is always new."""
        return report.epoch is None or report.epoch not in self.epochs

    def reported(self, report: Report) -> StepCount:
        if report.epoch is None:
            return self
        return StepCount(self.epochs | {report.epoch}, self.steps)

    def stepped(self, step: StepReport) -> tuple[StepCount, int]:
        """Return the count after a step, and the number of new iterations.

        A number that went down starts again: the program counts from one in each epoch.
        """
        if step.number is None:
            return StepCount(self.epochs, self.steps + 1), 1
        more = step.number - self.steps if step.number >= self.steps else step.number
        return StepCount(self.epochs, step.number), max(more, 0)
