from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

STOPPED = {"q": 0, "interrupt": 0, "terminate": 128 + signal.SIGTERM}
"""The exit code by the way to leave."""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal: the one that the test holds, and the one for a program."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def read_until(terminal: int, wanted: bytes, child: subprocess.Popen[bytes], shown: bytes = b"") -> bytes:
    """Read what the terminal shows up to and with the wanted bytes, after those that it has shown."""
    while wanted not in shown:
        if select.select([terminal], [], [], 0.5)[0]:
            shown += os.read(terminal, 65536)
        else:
            assert child.poll() is None, shown.decode()
    return shown


@pytest.mark.parametrize("leave", STOPPED)
def test_leaving_the_monitor_restores_the_terminal(leave: str, terminal: tuple[int, int], tmp_path: Path) -> None:
    ours, theirs = terminal
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "TERM": "xterm-256color", "WATTUNE_STATE": str(tmp_path), "COLUMNS": "120"}
    line = [sys.executable, "-m", "wattune", "monitor", "--device", "sim:a100", "--interval", "0.05"]
    with subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as child:
        shown = read_until(ours, b"0 A100", child)
        match leave:
            case "q":
                os.write(ours, b"q")
            case "interrupt":
                child.send_signal(signal.SIGINT)
            case "terminate":
                child.send_signal(signal.SIGTERM)
        shown = read_until(ours, b"\x1b[?1049l", child, shown)
    assert child.returncode == STOPPED[leave]
    assert termios.tcgetattr(theirs) == before
    assert shown.count(b"\x1b[?1049h") == 1
    assert b"Traceback" not in shown
