"""Steps counted on what a program prints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.tuning.metric_pattern import StepPattern


@dataclass(frozen=True, slots=True)
class LineSteps:
    """Which steps the lines of a program have told of so far: `lines, more = lines.read(line)`.

    A line may tell a number (`step 200`), which then counts from the number before. Many programs start to count anew
    with every epoch; the count then goes on from there.
    """

    pattern: StepPattern
    last: int | None = None

    def read(self, line: str) -> tuple[LineSteps, int]:
        """The count as it goes on, and how many steps this line says are newly over.

        The first number tells where the count stands and not how many steps were done since it was looked at.
        """
        step = self.pattern.read(line)
        if step is None:
            return self, 0
        if step.number is None:
            return self, 1
        if self.last is None:
            more = 1
        elif step.number < self.last:
            more = max(step.number, 1)
        else:
            more = step.number - self.last
        return replace(self, last=step.number), more
