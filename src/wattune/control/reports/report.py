"""What a training program can tell while it runs, whichever way it does."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class Report:
    """The metric at the end of an epoch."""

    metric: float | None
    """None where what was reported is no number, such as a loss that is NaN."""
    epoch: int | None = None
    """What the program calls that epoch; None where it does not say."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One iteration is over, or all those up to a number."""

    number: int | None = None
    """How many are over since the program started; None where it is just one more."""


@dataclass(frozen=True, slots=True)
class NoMemory:
    """The batch size does not fit."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Something that was meant to tell and could not be understood; one line says what is wrong with it."""

    complaint: str


Told = Report | StepReport | NoMemory | Unreadable


def finite(value: float) -> float | None:
    """The value, or None where it is not a finite number."""
    return value if isfinite(value) else None


def number_of(text: str) -> float | None:
    """The number that a text is, or None where it is none or not finite."""
    try:
        return finite(float(text))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class StepCount:
    """What was told so far, so that nothing counts twice."""

    epochs: frozenset[int] = frozenset()
    steps: int = 0

    def is_new(self, report: Report) -> bool:
        """Whether a report is of an epoch that was not reported yet; one without a number always is."""
        return report.epoch is None or report.epoch not in self.epochs

    def reported(self, report: Report) -> StepCount:
        """This, after a report."""
        if report.epoch is None:
            return self
        return StepCount(self.epochs | {report.epoch}, self.steps)

    def stepped(self, step: StepReport) -> tuple[StepCount, int]:
        """This, after a step, and how many iterations that was; a number that went down starts afresh, as in an epoch.

        A program that counts from one in each epoch tells 1 after its last number.
        """
        if step.number is None:
            return StepCount(self.epochs, self.steps + 1), 1
        more = step.number - self.steps if step.number >= self.steps else step.number
        return StepCount(self.epochs, step.number), max(more, 0)
