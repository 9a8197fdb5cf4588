"""Metrics and steps in the output of a program, found by regular expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wattune.control.reports.report import Report, StepReport, number_of
from wattune.core.errors import InputError

_METRIC_EXAMPLE = "accuracy: ([0-9.]+)"
_STEP_EXAMPLE = r"step (?P<step>\d+)"


@dataclass(frozen=True, slots=True)
class MetricPattern:
    """A regular expression that finds the metric in a line, and the epoch and the step where it has groups for them."""

    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> MetricPattern:
        """Compile a pattern, or raise an error with an example."""
        regex = _compiled(text, _METRIC_EXAMPLE)
        if regex.groups == 0:
            raise InputError(
                f"the pattern {text!r} has no group for the metric",
                hint=f"put the number into parentheses: {_METRIC_EXAMPLE!r}",
            )
        if regex.groups > 1 and "metric" not in regex.groupindex:
            raise InputError(
                f"the pattern {text!r} has {regex.groups} groups and none is called metric",
                hint=r"name them: 'epoch (?P<epoch>\d+) accuracy (?P<metric>[0-9.]+)'",
            )
        return cls(regex)

    def read(self, line: str) -> Report | None:
        """Return the metric in a line, or None without one; a group that is no number gives a metric of None."""
        match = self.regex.search(line)
        if match is None:
            return None
        metric = match["metric"] if "metric" in self.regex.groupindex else match[1]
        if metric is None:
            return None
        epoch = number_of(_group(match, "epoch") or "")
        return Report(number_of(metric), None if epoch is None else int(epoch))


@dataclass(frozen=True, slots=True)
class StepPattern:
    """A regular expression that finds ended iterations: one per match, or up to the number in its group."""

    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> StepPattern:
        """Compile a pattern, or raise an error with an example."""
        regex = _compiled(text, _STEP_EXAMPLE)
        if regex.groups > 1 and "step" not in regex.groupindex:
            raise InputError(
                f"the pattern {text!r} has {regex.groups} groups and none is called step",
                hint=f"name it: {_STEP_EXAMPLE!r}",
            )
        return cls(regex)

    def read(self, line: str) -> StepReport | None:
        match = self.regex.search(line)
        if match is None:
            return None
        if self.regex.groups == 0:
            return StepReport()
        number = number_of(_group(match, "step") or match[1] or "")
        return None if number is None or number < 0 else StepReport(int(number))


def _compiled(text: str, example: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{text!r} is no regular expression: {error}", hint=f"for example {example!r}") from None


def _group(match: re.Match[str], name: str) -> str | None:
    return match[name] if name in match.re.groupindex else None
