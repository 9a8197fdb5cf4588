"""A watched program: its output is passed on unchanged, and it is ended when asked."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from wattune.core.errors import InputError
from wattune.process.patterns import MetricPattern, Report, StepPattern, StepReport
from wattune.process.program import Program
from wattune.process.watched import Answer, Watch, run_watched

METRIC = MetricPattern.parse(r"acc (\S+)")


class Answers:
    """Records every report, and answers stop from a metric of `until` on."""

    def __init__(self, until=2.0, within_s=0.0):
        self.reports = []
        self._until = until
        self._within_s = within_s

    def __call__(self, reported):
        self.reports.extend(reported.reports)
        (report, *_) = reported.reports
        if isinstance(report, Report) and report.metric is not None and report.metric >= self._until:
            return Answer(stop=True, within_s=self._within_s)
        return Answer()


def watched(script, watch, answers, *, quiet=False, grace_s=30.0):
    program = Program(
        command=(sys.executable, "-c", script), places=(2, 2) if quiet else (1, 2), grace_s=grace_s
    ).unbuffered()
    return run_watched(program, watch, answers, warn=pytest.fail)


def searched(*patterns, late_s=1.0):
    return Watch(patterns=patterns, late_s=late_s)


def test_output_goes_through_unchanged_and_is_searched(capfd):
    script = "import os; os.write(1, b'acc 0.5\\n\\xff\\x00acc 0.7'); os.write(2, b'step\\nacc 0.6\\n')"
    answers = Answers()
    ending = watched(script, searched(StepPattern.parse("^step"), METRIC), answers)
    out, errors = capfd.readouterr()
    assert (ending.exit_code, ending.interrupted) == (0, False)
    assert out.encode("utf-8", "surrogateescape").startswith(b"acc 0.5\n")
    assert out.endswith("acc 0.7")
    assert errors == "step\nacc 0.6\n"
    assert sorted(map(str, answers.reports)) == sorted(map(str, [Report(0.5), Report(0.6), Report(0.7), StepReport()]))
    assert "acc 0.6" in ending.tail


def test_quietly_all_output_goes_to_standard_error(capfd, tmp_path):
    for watch in (searched(METRIC), Watch(file=tmp_path / "metrics")):
        watched("print('acc 0.5')", watch, Answers(), quiet=True)
        assert capfd.readouterr() == ("", "acc 0.5\n")


def test_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "metrics"
    answers = Answers()
    watched(f"open({str(path)!r}, 'w').write('0.1\\n0.2')", Watch(file=path), answers)
    assert answers.reports == [Report(0.1), Report(0.2)]


ENDLESS = "import signal, sys; {}; print('acc 0.9'); signal.pause()"


def test_a_program_is_asked_to_end_and_may_do_so_in_its_own_way():
    script = ENDLESS.format("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))")
    assert watched(script, searched(METRIC), Answers(until=0.5)).exit_code == 7
    assert watched(ENDLESS.format("pass"), searched(METRIC), Answers(until=0.5)).exit_code == 143


@pytest.mark.parametrize(("late_s", "answered"), [(0.0, 1), (1000.0, 40)])
def test_after_a_signal_slow_answers_do_not_keep_the_gpus_from_being_restored(late_s, answered):
    reports = []

    def stopped(report):
        reports.append(report)
        if len(reports) == 1:
            signal.raise_signal(signal.SIGTERM)
        return Answer()

    script = "import os, signal; os.write(1, b'acc 0.5\\n' * 40); signal.pause()"
    ending = watched(script, searched(METRIC, late_s=late_s), stopped)
    assert (ending.exit_code, ending.signal, len(reports)) == (143, signal.SIGTERM, answered)


def test_a_program_that_does_not_listen_is_killed():
    script = ENDLESS.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)").replace("pause()", "pause(); " * 9)
    assert watched(script, searched(METRIC), Answers(until=0.5), grace_s=0.0).exit_code == 137


FAMILY = """
import subprocess, sys, signal
child = subprocess.Popen([sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"], stdout=-1)
child.stdout.readline()
print("child", child.pid)
print("acc 0.9")
signal.pause()
"""


def test_the_children_of_a_program_end_with_it(capfd):
    assert watched(FAMILY, searched(METRIC), Answers(until=0.5)).exit_code == 143
    child = int(capfd.readouterr().out.split()[1])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_child_that_holds_the_output_open_is_not_waited_for(capfd):
    script = "import subprocess; print(subprocess.Popen(['sleep', '1000']).pid); print('acc 0.5')"
    answers = Answers()
    assert watched(script, searched(METRIC), answers).exit_code == 0
    assert answers.reports == [Report(0.5)]
    os.kill(int(capfd.readouterr().out.split()[0]), 9)


def test_a_failure_of_ours_leaves_no_program_behind():
    pids = []

    def fail(reported):
        pids.append(int(reported.reports[0].metric))
        raise InputError("no", hint="yes")

    with pytest.raises(InputError):
        watched("import os, signal; print('acc', os.getpid()); signal.pause()", searched(METRIC), fail)
    assert not psutil.pid_exists(pids[0])


OBSERVED = r"""
from wattune.process.patterns import MetricPattern
from wattune.process.program import Program
from wattune.process.watched import Watch, run_watched
def fail(reported):
    raise RuntimeError("no")
program = Program(command=("sh", "-c", "echo acc $$; read go <go; echo went on"))
run_watched(program, Watch(patterns=(MetricPattern.parse(r"acc (\S+)"),)), fail, warn=print)
"""


def test_a_program_that_is_only_observed_goes_on_where_we_fail(tmp_path):
    os.mkfifo(tmp_path / "go")
    with (tmp_path / "errors").open("w") as errors:
        ours = subprocess.Popen([sys.executable, "-c", OBSERVED], cwd=tmp_path, stdout=-1, stderr=errors, text=True)
    with ours:
        assert ours.wait(30) == 1
        (tmp_path / "go").write_text("go\n")
        assert ours.stdout.read().splitlines()[1:] == ["went on"]
    assert (tmp_path / "errors").read_text().endswith("RuntimeError: no\n")


def test_a_command_that_cannot_be_run_is_an_error():
    with pytest.raises(InputError, match="there is no command"):
        run_watched(Program(command=("no-such",)), searched(METRIC), Answers(), warn=pytest.fail)
