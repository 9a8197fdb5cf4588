"""Steps and phases that patterns of the user find in what a program prints."""

import os
import subprocess
import sys

import pytest

from wattune.control.progress_estimator import PATTERN, UNMATCHED, ProgressEstimator
from wattune.core.gpu_spec import Sensors
from wattune.process.output import PrintedLines
from wattune.process.patterns import PhasePattern, StepPattern
from wattune.process.python_command import loads_hook
from wattune.process.step_file import NewSteps, StepFile
from wattune.process.watched import FoundPhase, PrintedReports, ReportedSteps

STEP = r"step (\d+)"


class Follower:
    """The steps and phases in lines, as `wattune run` counts them."""

    def __init__(self, lines, step=STEP):
        patterns = (StepPattern.parse(step), PhasePattern.parse(r"phase (\w+)"))
        self._reports, self.steps = PrintedReports(lines, patterns, warn=pytest.fail), ReportedSteps()

    def take(self, *, ended=False):
        found = map(self.steps.of, self._reports.take(ended=ended))
        return tuple(one for one in found if one is not None)


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log").open("w") as out:
        yield out


def write(out, *lines):
    out.write("".join(f"{line}\n" for line in lines))
    out.flush()


def test_steps_that_were_written_at_once_are_one_mark(log):
    found = Follower(PrintedLines.beside((log.fileno(),)))
    write(log, "step 1000", "step 1010", "loss 3")
    assert found.take() == (NewSteps(11, 0.0),)  # it may go on from a checkpoint, so the first counts as one
    write(log, "step 1010", "step 1012")
    assert found.take() == (NewSteps(2, 0.0),)
    assert found.steps.matched


def test_a_line_that_ends_a_step_and_begins_a_phase_reports_the_step_first(log):
    found = Follower(PrintedLines.beside((log.fileno(),)))
    write(log, "step 1, phase forward", "phase backward", "step 2")
    forward, backward = FoundPhase("forward", 0.0), FoundPhase("backward", 0.0)
    assert found.take() == (NewSteps(1, 0.0), forward, backward, NewSteps(1, 0.0))


def test_a_last_line_without_an_end_counts_once_the_program_has_ended(log):
    found = Follower(PrintedLines.beside((log.fileno(),)))
    log.write("step 1")
    log.flush()
    assert found.take() == ()
    assert found.take(ended=True) == (NewSteps(1, 0.0),)


RANKS = "import os\nrank = 0 if os.fork() else 1\nfor n in range(1, 6): print('step', n)\nrank or os.wait()"


def run(file, *command):
    subprocess.run(command, env=file.environment(os.environ), stdout=subprocess.DEVNULL, check=True, timeout=60)


def test_one_of_several_ranks_counts_until_it_has_ended():
    with StepFile.made() as file:
        found = Follower(PrintedLines((), file))
        run(file, sys.executable, "-c", RANKS)
        assert sum(one.count for one in found.take()) == 5
        run(file, sys.executable, "-c", "print('step', 1); print('step', 2)")
        assert sum(one.count for one in found.take()) == 2


def test_a_pattern_wants_the_text_of_programs_that_count_steps_too(tmp_path):
    begin = "import sys\nsys.stdout.write.__self__.ring.steps.count(1)\n"
    source = begin + "print('step 1')\nprint('step 2')"
    with StepFile.made() as file:
        run(file, sys.executable, "-c", source)
        assert Follower(PrintedLines((), file)).take() == ()
    with StepFile.made() as file:
        file.want_all_text()
        run(file, sys.executable, "-c", source)
        assert sum(one.count for one in Follower(PrintedLines((), file)).take()) == 2


class Counted:
    """A hook that has counted so many steps at each call."""

    source, unit_changed = "optimizer", False

    def take(self):
        return NewSteps(UNMATCHED, 0.0)


def test_steps_of_a_pattern_that_matches_after_the_hook_took_over_are_not_mixed_with_the_hooks():
    estimator = ProgressEstimator(Sensors())
    estimator.reported_by, estimator.hook = PATTERN, Counted()
    estimator.follow(1.0)
    assert estimator.step_source == "hook"
    estimator.report(1.5, 100)
    assert estimator.marks.total == UNMATCHED


@pytest.mark.parametrize(
    ("words", "first_line", "expected"),
    [
        (["python3", "train.py"], None, True),
        (["python3", "-u", "-W", "ignore", "-X", "dev", "-m", "train", "-E"], None, True),
        (["python3", "-uE", "train.py"], None, False),
        (["python3", "-I", "train.py"], None, False),
        (["python3.12", "-S", "-c", "1"], None, False),
        (["./script"], "#!/usr/bin/env -S A=1 python3 -u", True),
        (["./script", "-I"], "#!/opt/venv/bin/python", True),
        (["./script"], "#!/opt/venv/bin/python -I", False),
        (["./script"], "#!/bin/sh", False),
        (["./script"], "\x7fELF", False),
        (["pythonish"], None, False),
        (["./python3", "-u", "train.py"], "#!/usr/bin/env bash", True),
    ],
)
def test_commands_that_load_the_hook(tmp_path, monkeypatch, words, first_line, expected):
    monkeypatch.chdir(tmp_path)
    if first_line is not None:
        (tmp_path / words[0]).write_text(f"{first_line}\nrest")
    assert loads_hook(words) is expected
