"""A command that wattune runs: signals reach it whenever they arrive."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from wattune.cli.child import run_child, wait_for

ENDLESS = ("sleep", "3600")


def test_a_signal_that_does_not_interrupt_the_wait_is_forwarded():
    """Another thread receives it, so that no system call of the main thread ends."""

    def end_soon(_pid):
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()

    assert run_child(ENDLESS, on_start=end_soon) == 128 + signal.SIGTERM


@pytest.mark.parametrize("error", [AttributeError, PermissionError])
def test_without_process_descriptors_the_exit_code_is_the_same(error, monkeypatch):
    def refuse(_pid):
        raise error

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with subprocess.Popen(("sh", "-c", "exit 7")) as process:
        assert wait_for(process) == 7


def test_lines_of_a_child_are_passed_on_and_its_output_stays_where_it_was(capfd):
    lines = []
    text = "import sys; print('out', flush=True); print('one\\ntwo', file=sys.stderr); sys.exit(3)"
    assert run_child([sys.executable, "-c", text], on_line=lines.append) == 3
    assert (lines, capfd.readouterr().out) == (["one", "two"], "out\n")
    lines.clear()
    assert run_child([sys.executable, "-c", text], stdout_to_stderr=True, on_line=lines.append) == 3
    assert (sorted(lines), capfd.readouterr().out) == (["one", "out", "two"], "")
