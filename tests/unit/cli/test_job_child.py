"""A watched program: its output is passed on unchanged, and it is ended when asked."""

import os
import signal
import sys

import psutil
import pytest

from wattune.cli import training_child
from wattune.cli.training_child import ReportWatch, run_watched
from wattune.control.reports.report import Answer, MetricPattern, Report, StepPattern, StepReport
from wattune.core.errors import InputError

METRIC = MetricPattern.parse(r"acc (\S+)")


class Answers:
    """Records every report, and answers stop from a metric of `until` on."""

    def __init__(self, until=2.0, within_s=0.0):
        self.reports = []
        self._until = until
        self._within_s = within_s

    def __call__(self, report):
        self.reports.append(report)
        if isinstance(report, Report) and report.metric is not None and report.metric >= self._until:
            return Answer(stop=True, within_s=self._within_s)
        return Answer()


def watched(script, watch, answers, *, quiet=False, grace_s=30.0, **variables):
    command = (sys.executable, "-c", script)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    return run_watched(command, watch, answers, environment=environment, quiet=quiet, grace_s=grace_s)


def test_output_goes_through_unchanged_and_is_searched(capfd):
    script = "import os; os.write(1, b'acc 0.5\\n\\xff\\x00acc 0.7'); os.write(2, b'step\\nacc 0.6\\n')"
    answers = Answers()
    ending = watched(script, ReportWatch(pattern=METRIC, steps=StepPattern.parse("^step")), answers)
    out, errors = capfd.readouterr()
    assert (ending.exit_code, ending.interrupted) == (0, False)
    assert out.encode("utf-8", "surrogateescape").startswith(b"acc 0.5\n")
    assert out.endswith("acc 0.7")
    assert errors == "step\nacc 0.6\n"
    assert sorted(map(str, answers.reports)) == sorted(map(str, [Report(0.5), Report(0.6), Report(0.7), StepReport()]))
    assert "acc 0.6" in ending.tail


def test_quietly_all_output_goes_to_standard_error(capfd, tmp_path):
    for watch in (ReportWatch(pattern=METRIC), ReportWatch(file=tmp_path / "metrics")):
        watched("print('acc 0.5')", watch, Answers(), quiet=True)
        assert capfd.readouterr() == ("", "acc 0.5\n")


def test_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "metrics"
    answers = Answers()
    watched(f"open({str(path)!r}, 'w').write('0.1\\n0.2')", ReportWatch(file=path), answers)
    assert answers.reports == [Report(0.1), Report(0.2)]


ENDLESS = "import signal, sys; {}; print('acc 0.9'); signal.pause()"


def test_a_program_is_asked_to_end_and_may_do_so_in_its_own_way():
    script = ENDLESS.format("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))")
    assert watched(script, ReportWatch(pattern=METRIC), Answers(until=0.5)).exit_code == 7
    assert watched(ENDLESS.format("pass"), ReportWatch(pattern=METRIC), Answers(until=0.5)).exit_code == 143


@pytest.mark.parametrize(("late_s", "answered"), [(0.0, 1), (1000.0, 40)])
def test_after_a_signal_slow_answers_do_not_keep_the_gpus_from_being_restored(monkeypatch, late_s, answered):
    monkeypatch.setattr(training_child, "LATE_S", late_s)
    reports = []

    def stopped(report):
        reports.append(report)
        if len(reports) == 1:
            signal.raise_signal(signal.SIGTERM)
        return Answer()

    script = "import os, signal; os.write(1, b'acc 0.5\\n' * 40); signal.pause()"
    ending = watched(script, ReportWatch(pattern=METRIC), stopped)
    assert (ending.exit_code, ending.signal, len(reports)) == (143, signal.SIGTERM, answered)


def test_a_program_that_does_not_listen_is_killed():
    script = ENDLESS.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)").replace("pause()", "pause(); " * 9)
    assert watched(script, ReportWatch(pattern=METRIC), Answers(until=0.5), grace_s=0.0).exit_code == 137


FAMILY = """
import subprocess, sys, signal
child = subprocess.Popen([sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"], stdout=-1)
child.stdout.readline()
print("child", child.pid)
print("acc 0.9")
signal.pause()
"""


def test_the_children_of_a_program_end_with_it(capfd):
    assert watched(FAMILY, ReportWatch(pattern=METRIC), Answers(until=0.5)).exit_code == 143
    child = int(capfd.readouterr().out.split()[1])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_child_that_holds_the_output_open_is_not_waited_for(capfd):
    script = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid); print('acc 0.5')"
    answers = Answers()
    assert watched(script, ReportWatch(pattern=METRIC), answers).exit_code == 0
    assert answers.reports == [Report(0.5)]
    os.kill(int(capfd.readouterr().out.split()[0]), 9)


def test_a_failure_of_ours_leaves_no_program_behind():
    pids = []

    def fail(report):
        pids.append(int(report.metric))
        raise InputError("no", hint="yes")

    with pytest.raises(InputError):
        watched("import os, signal; print('acc', os.getpid()); signal.pause()", ReportWatch(pattern=METRIC), fail)
    assert not psutil.pid_exists(pids[0])


def test_a_command_that_cannot_be_run_is_an_error():
    with pytest.raises(InputError, match="there is no command"):
        run_watched(("no-such",), ReportWatch(pattern=METRIC), Answers(), environment={}, quiet=False, grace_s=1.0)
