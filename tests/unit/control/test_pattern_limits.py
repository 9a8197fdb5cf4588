"""Patterns of users: numbers, lines and search times have bounds."""

import os
import re
import signal
import sys

import pytest

from wattune.cli.training_child import ReportWatch, run_watched
from wattune.control.reports import report
from wattune.control.reports.file import LineForm, read_object
from wattune.control.reports.pattern import MOST_SLOW
from wattune.control.reports.report import (
    LONGEST_SEARCHED,
    Answer,
    MetricPattern,
    PhasePattern,
    Report,
    SlowPattern,
    StepPattern,
    StepReport,
    Unreadable,
)

CATASTROPHE, LINE = r"((a+)+)+(?P<{}>b)", "a" * 60
DIGITS = "9" * 400


@pytest.mark.parametrize(("kind", "name"), [(MetricPattern, "metric"), (StepPattern, "step"), (PhasePattern, "phase")])
def test_a_search_that_would_take_years_is_given_up(kind, name):
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(SlowPattern):
        kind.parse(CATASTROPHE.format(name)).read(LINE)
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_only_the_end_of_a_long_line_is_searched():
    pattern = MetricPattern.parse("acc ([0-9.]+)")
    assert pattern.read("x" * 100_000 + "acc 0.5") == Report(0.5)
    assert pattern.read("acc 0.5" + "x" * LONGEST_SEARCHED) is None


def test_a_program_with_a_slow_pattern_goes_on_and_is_told_twice(capfd, monkeypatch):
    monkeypatch.setattr(report, "SEARCH_LIMIT_S", 0.01)
    pattern = MetricPattern(re.compile(r"acc (?P<metric>\S+)|((a+)+)+b"))
    lines = 3 * MOST_SLOW
    reports = []

    def take(found):
        reports.append(found)
        return Answer()

    command = (sys.executable, "-c", f"print('acc 0.5'); [print('a' * 60) for _ in range({lines})]")
    watch = ReportWatch(pattern=pattern)
    ending = run_watched(command, watch, take, environment=os.environ, quiet=False, grace_s=1.0)
    out, errors = capfd.readouterr()
    assert ending.exit_code == 0
    assert reports == [Report(0.5)]
    assert out.count("a" * 60) == lines
    assert errors.count("takes too long") == 2
    assert "searched no more" in errors


def test_integers_of_400_digits_are_no_epochs_and_no_steps():
    assert MetricPattern.parse(r"(?P<epoch>\d+) (?P<metric>\S+)").read(f"{DIGITS} 0.5") == Report(0.5, None)
    assert MetricPattern.parse(r"(?P<epoch>\d+) (?P<metric>\S+)").read(f"{'9' * 300} 0.5") == Report(0.5, None)
    assert StepPattern.parse(r"step (\d+)").read(f"step {'9' * 300}") is None
    assert isinstance(read_object(f'{{"step": {DIGITS}}}'), Unreadable)
    assert isinstance(read_object(f'{{"metric": 0.5, "epoch": {DIGITS}}}'), Unreadable)
    assert isinstance(LineForm().read(f"{'9' * 300},0.5")[1], Unreadable)
    assert read_object('{"step": 9007199254740992}') == StepReport(1 << 53)
