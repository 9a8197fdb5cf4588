"""A command that wattune runs: signals reach it whenever they arrive."""

import os
import pty
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import psutil
import pytest

from processes import wait_until
from wattune.process.program import Program, ProgramEnd
from wattune.process.watched import run_printed

ENDLESS = Program(command=("sleep", "3600"))


def test_a_signal_that_does_not_interrupt_the_wait_is_forwarded():
    """Another thread receives it, so that no system call of the main thread ends."""

    def end_soon(_pid):
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()

    assert replace(ENDLESS, on_start=end_soon).run() == ProgramEnd(128 + signal.SIGTERM, signal.SIGTERM)


@pytest.mark.parametrize("error", [AttributeError, PermissionError])
def test_without_process_descriptors_the_exit_code_is_the_same(error, monkeypatch):
    def refuse(_pid):
        raise error

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert Program(command=("sh", "-c", "exit 7")).run() == ProgramEnd(7)


def test_lines_for_a_terminal_are_printed_elsewhere_and_other_output_stays_where_it_was(capfd):
    lines = []
    text = "import sys; print('out', flush=True); print('one\\ntwo', file=sys.stderr); sys.exit(3)"
    terminal, place = pty.openpty()
    for out in (1, place):
        program = Program(command=[sys.executable, "-c", text], places=(out, place))
        assert run_printed(program, lines.append).exit_code == 3
    assert not select.select([terminal], [], [], 0.0)[0]
    os.close(place)
    os.close(terminal)
    assert (lines, capfd.readouterr().out) == (["one", "two", "out", "one", "two"], "out\n")


RUN = """
import sys
from wattune.process.program import Program
end = Program(command=sys.argv[2:], grace_s=float(sys.argv[1])).run()
print("signal", end.signal, flush=True)
sys.exit(end.exit_code)
"""

TALKS = """
import os, signal, sys
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _frame: print(signal.Signals(number).name, flush=True))
{}
print("pid", os.getpid(), flush=True)
while True:
    signal.pause()
"""


@contextmanager
def running(script, *, grace_s=1000.0, ignored=()):
    """Run a Python script as the child of a process of ours; yield that process and the id of the child."""

    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    command = [sys.executable, "-c", RUN, str(grace_s), sys.executable, "-c", TALKS.format(script)]
    # A group of its own in this session: an orphaned group would not be stopped.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0, preexec_fn=ignore) as process:
        try:
            yield process, int(process.stdout.readline().split()[1])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_an_ignored_signal_stays_ignored_by_us_and_by_the_child():
    with running("pass", ignored=[signal.SIGHUP, signal.SIGINT]) as (process, child):
        for number in (signal.SIGHUP, signal.SIGINT):
            os.killpg(process.pid, number)
        os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout.readline() == "SIGUSR1\n"  # both live on
        os.kill(child, signal.SIGUSR2)
        assert process.stdout.readline() == "SIGUSR2\n"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_warnings_of_schedulers_are_passed_on(number):
    with running("pass") as (process, _):
        os.kill(process.pid, number)
        assert process.stdout.readline() == f"{number.name}\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_both_stop_and_both_continue():
    with running("pass") as (process, child):
        pair = [psutil.Process(pid) for pid in (process.pid, child)]
        for _ in range(2):
            os.kill(process.pid, signal.SIGTSTP)
            wait_until(lambda: [one.status() for one in pair] == ["stopped"] * 2)
            os.kill(process.pid, signal.SIGCONT)
            wait_until(lambda: "stopped" not in [one.status() for one in pair])


DEAF = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause(); signal.pause()"])
"""


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace_period_with_its_own_children():
    with running(DEAF, grace_s=0.1) as (process, child):
        family = psutil.Process(child).children()
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.read() == f"signal {signal.SIGTERM.value}\n"
        assert process.wait() == 128 + signal.SIGTERM
        assert len(family) == 1
        wait_until(lambda: not family[0].is_running() or family[0].status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_child_that_ends_in_good_order_keeps_its_exit_code(number):
    script = f"signal.signal({number.value}, lambda *_: sys.exit(7))"
    with running(script) as (process, _):
        os.kill(process.pid, number)
        assert process.stdout.read() == f"signal {number.value}\n"
        assert process.wait() == 7
