"""Reports of a training program, whichever way they arrive, and patterns that find them in its output."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from types import FrameType

from wattune.core.errors import InputError


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
class PhaseReport:
    """A phase of an iteration begins."""

    name: str


@dataclass(frozen=True, slots=True)
class NoMemory:
    """The batch size does not fit."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A report that could not be parsed, with one line that describes the problem."""

    complaint: str


AnyReport = Report | StepReport | PhaseReport | NoMemory | Unreadable


def finite(value: float) -> float | None:
    """Return the value, or None where it is not finite."""
    return value if isfinite(value) else None


def number_of(text: str) -> float | None:
    """Parse a number; None where the text is none or not finite."""
    try:
        return finite(float(text))
    except ValueError:
        return None


LARGEST_NUMBER = 1 << 53
"""Largest epoch or step: up to here a float holds every whole number."""


def whole_of(text: str) -> int | None:
    """Parse the number of an epoch or step; None where the text is none."""
    number = number_of(text)
    return None if number is None or abs(number) > LARGEST_NUMBER else int(number)


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


# Quoted for a shell; repr would double the backslashes.
_METRIC_EXAMPLE = "'accuracy: ([0-9.]+)'"
_NAMED_EXAMPLE = r"'epoch (?P<epoch>\d+) accuracy (?P<metric>[0-9.]+)'"
_STEP_EXAMPLE = r"'step (?P<step>\d+)'"
_PHASE_EXAMPLE = r"'phase (?P<phase>\w+)'"


@dataclass(frozen=True, slots=True)
class MetricPattern:
    """A regular expression that finds the metric in a line, and the epoch and the step where it has groups for them."""

    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> MetricPattern:
        """Compile a pattern, or raise an error with an example."""
        regex = _compiled(text, "metric", example=_METRIC_EXAMPLE, hint=f"name them: {_NAMED_EXAMPLE}")
        if regex.groups == 0:
            raise InputError(
                f"the pattern {text!r} has no group for the metric",
                hint=f"put the number into parentheses: {_METRIC_EXAMPLE}",
            )
        return cls(regex)

    def read(self, line: str) -> Report | None:
        """Return the metric in a line, or None without one; a group that is no number gives a metric of None."""
        match = search(self.regex, line)
        if match is None:
            return None
        metric = match["metric"] if "metric" in self.regex.groupindex else match[1]
        if metric is None:
            return None
        return Report(number_of(metric), whole_of(_group(match, "epoch") or ""))


@dataclass(frozen=True, slots=True)
class StepPattern:
    """A regular expression that finds ended iterations: one per match, or up to the number in its group."""

    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> StepPattern:
        """Compile a pattern, or raise an error with an example."""
        return cls(_compiled(text, "step", example=_STEP_EXAMPLE, hint=f"name it: {_STEP_EXAMPLE}"))

    def read(self, line: str) -> StepReport | None:
        match = search(self.regex, line)
        if match is None:
            return None
        if self.regex.groups == 0:
            return StepReport()
        number = whole_of(_group(match, "step") or match[1] or "")
        return None if number is None or number < 0 else StepReport(number)


@dataclass(frozen=True, slots=True)
class PhasePattern:
    """A regular expression that finds the beginnings of phases: the name is in its group."""

    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> PhasePattern:
        """Compile a pattern, or raise an error with an example."""
        regex = _compiled(text, "phase", example=_PHASE_EXAMPLE, hint=f"name it: {_PHASE_EXAMPLE}")
        if regex.groups == 0:
            raise InputError(
                f"the pattern {text!r} has no group for the name of the phase",
                hint=f"put the name into parentheses: {_PHASE_EXAMPLE}",
            )
        return cls(regex)

    def read(self, line: str) -> PhaseReport | None:
        match = search(self.regex, line)
        name = None if match is None else _group(match, "phase") or match[1]
        return PhaseReport(name) if name else None


LONGEST_SEARCHED = 8192
"""Characters of a line, from its end, in which patterns are searched."""
SEARCH_LIMIT_S = 0.1
"""CPU time after which the search of one line is given up: some patterns take years on a line of 40 characters."""


class SlowPattern(Exception):
    """A pattern was not searched through in its time."""


def search(regex: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Search a line for a pattern of the user; SlowPattern where that takes too long.

    The regular expressions of Python look for signals while they search, in the main thread. Elsewhere only the length
    of the line is bounded.
    """
    line = line[-LONGEST_SEARCHED:]
    if threading.current_thread() is not threading.main_thread():
        return regex.search(line)
    before = signal.signal(signal.SIGVTALRM, _give_up)
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_LIMIT_S)
            return regex.search(line)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise SlowPattern


def _compiled(text: str, name: str, *, example: str, hint: str) -> re.Pattern[str]:
    """Compile a pattern; where it has several groups, one of them must have this name."""
    if not text:
        raise InputError("an empty pattern matches every line", hint=f"for example {example}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of a syntax that may change one day
            regex = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{text!r} is no regular expression: {reason}", hint=f"for example {example}") from None
    if regex.groups > 1 and name not in regex.groupindex:
        raise InputError(f"the pattern {text!r} has {regex.groups} groups and none is called {name}", hint=hint)
    return regex


def _group(match: re.Match[str], name: str) -> str | None:
    return match[name] if name in match.re.groupindex else None


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
