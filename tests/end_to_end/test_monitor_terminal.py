from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest


def read_until(terminal: int, wanted: bytes, seen: bytes = b"") -> bytes:
    """What the terminal showed up to and with the wanted bytes."""
    while wanted not in seen:
        seen += os.read(terminal, 65536)
    return seen


@pytest.mark.parametrize("leave", ["q", "interrupt", "terminate"])
def test_leaving_the_monitor_gives_the_terminal_back(leave: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "TERM": "xterm-256color", "WATTUNE_STATE": str(tmp_path), "COLUMNS": "120"}
    line = [sys.executable, "-m", "wattune", "monitor", "--device", "sim:a100", "--interval", "0.05"]
    child = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True)
    seen = read_until(ours, b"0 A100")
    match leave:
        case "q":
            os.write(ours, b"q")
        case "interrupt":
            child.send_signal(signal.SIGINT)
        case "terminate":
            child.send_signal(signal.SIGTERM)
    seen = read_until(ours, b"\x1b[?1049l", seen)
    assert child.wait(timeout=30) == (128 + signal.SIGTERM if leave == "terminate" else 0)
    assert termios.tcgetattr(theirs) == before
    assert seen.count(b"\x1b[?1049h") == 1
    assert b"Traceback" not in seen
    os.close(ours)
    os.close(theirs)
