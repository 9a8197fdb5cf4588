"""Steps and phases in what a program prints, found by patterns of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wattune.control.reports.printed import OneProcess, PrintedLine, PrintedLines
from wattune.control.reports.report import (
    AnyReport,
    MetricPattern,
    PhasePattern,
    PhaseReport,
    SlowPattern,
    StepCount,
    StepPattern,
    StepReport,
)
from wattune.control.step_file import NewSteps

AnyPattern = MetricPattern | StepPattern | PhasePattern

MOST_SLOW = 10
"""Lines that a pattern may fail to search in its time, until it is searched no more: others wait meanwhile."""


class PatternSearch:
    """Searches lines for patterns; one that takes too long is given up at last."""

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._slow: dict[AnyPattern, int] = {}

    def read(self, pattern: AnyPattern, line: str) -> AnyReport | None:
        """Return the report that a pattern finds in a line, or None."""
        slow = self._slow.get(pattern, 0)
        if slow >= MOST_SLOW:
            return None
        try:
            return pattern.read(line)
        except SlowPattern:
            self._slow[pattern] = slow + 1
            if slow in (0, MOST_SLOW - 1):
                what = "a line is skipped" if slow == 0 else "it is searched no more"
                self._warn(f"the pattern {pattern.regex.pattern!r} takes too long: {what}; make it simpler")
            return None


@dataclass(frozen=True, slots=True)
class FoundPhase:
    """A phase, and how long ago it began."""

    name: str
    age_s: float


class PatternFollower:
    """The steps and phases in the lines of a program. One process stands for all, since ranks print the same."""

    def __init__(
        self, lines: PrintedLines, search: PatternSearch, steps: StepPattern, phases: PhasePattern | None = None
    ) -> None:
        self._lines, self._search = lines, search
        # The step comes first: the phase that a line begins follows the step that it ends.
        self._patterns = (steps,) if phases is None else (steps, phases)
        self._process = OneProcess()
        self._counts: dict[int, StepCount] = {}
        self.matched = False
        """Whether a step was found in any line."""

    def take(self, *, ended: bool = False) -> tuple[NewSteps | FoundPhase, ...]:
        """Return what is new, in order; of a program that has ended also that in lines without an end."""
        new = self._lines.new()
        if ended:
            for pid, lines in self._lines.rest().items():
                new.setdefault(pid, []).extend(lines)
        found = {pid: reports for pid, lines in new.items() if (reports := tuple(self._reports(lines)))}
        followed = self._process.among(tuple(found))
        return () if followed is None else tuple(self._counted(followed, found[followed]))

    def close(self) -> None:
        self._lines.close()

    def _reports(self, lines: list[PrintedLine]) -> Iterator[tuple[AnyReport, float]]:
        for line in lines:
            for pattern in self._patterns:
                report = self._search.read(pattern, line.text)
                if report is not None:
                    yield report, line.age_s

    def _counted(self, pid: int, reports: tuple[tuple[AnyReport, float], ...]) -> Iterator[NewSteps | FoundPhase]:
        """Count steps; those that were written at once, as by a program that buffers its output, count as one mark."""
        waiting: NewSteps | None = None
        for report, age_s in reports:
            more = self._more(pid, report) if isinstance(report, StepReport) else 0
            if waiting is not None and (not more or age_s != waiting.age_s):
                yield waiting
                waiting = None
            if more:
                waiting = NewSteps(more + (0 if waiting is None else waiting.count), age_s)
            elif isinstance(report, PhaseReport):
                yield FoundPhase(report.name, age_s)
        if waiting is not None:
            yield waiting

    def _more(self, pid: int, report: StepReport) -> int:
        """Return how many steps are new; one at first, since a program may go on from the number of a checkpoint."""
        self.matched = True
        before = self._counts.get(pid)
        self._counts[pid], more = (before or StepCount()).stepped(report)
        return 1 if before is None else more
