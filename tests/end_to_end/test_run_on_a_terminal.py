"""`wattune run` on a real terminal: steps that are only printed, the screen, and the program's output beside it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from command import Command
from processes import wait_until
from wattune.cli.run.screen import ENTER, LEAVE

PRINTED = """
import os, sys, time
assert sys.stderr.isatty()
number = 0
while number < 1500 and not os.path.exists("enough"):
    number += 1
    bar = "#" * (number % 10)
    sys.stderr.write(f"\\r{number % 100:3d}%|{bar:<10}| {number}/100000 [00:01<00:09, 20.0it/s]")
    sys.stderr.flush()
    time.sleep(0.02)
"""
LINES = """
import os, sys, time
number = 0
while not os.path.exists("enough"):
    number += 1
    print("line", number)
    time.sleep(0.05)
print("that was all", file=sys.stderr)
sys.exit(5)
"""


class Terminal:
    """A program on a terminal whose other end a test holds."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = pty.openpty()
        self.folder, self.shown = folder, b""
        self.environment = Command(folder).environment | {"TERM": "xterm-256color", "TMPDIR": str(folder)}
        self.child: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "wattune", *arguments],
            stdin=self.theirs,
            stdout=self.theirs if stdout is None else stdout,
            stderr=self.theirs,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )
        return self.child

    def read_until(self, wanted: bytes) -> None:
        assert self.child is not None
        while wanted not in self.shown:
            if select.select([self.ours], [], [], 0.5)[0]:
                self.shown += os.read(self.ours, 65536)
            else:
                assert self.child.poll() is None, self.shown.decode()

    def read_rest(self) -> None:
        """Read until the program has ended and nothing is left."""
        assert self.child is not None
        while self.child.poll() is None or select.select([self.ours], [], [], 0)[0]:
            if select.select([self.ours], [], [], 0.2)[0]:
                self.shown += os.read(self.ours, 65536)

    def log(self) -> str:
        (log,) = self.folder.glob("wattune-output-*.log")
        return log.read_text()

    def close(self) -> None:
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_steps_that_a_program_prints_to_a_terminal_are_counted(terminal: Terminal) -> None:
    program = ("--", sys.executable, "-c", PRINTED)
    with (terminal.folder / "found.json").open("wb") as found:
        # Beside a GPU that is known to be simulated only optimizer steps are used: this one is not known to be.
        node = ("simulate", "--gpu", "a100", "--", "env", "-u", "WATTUNE_FOLLOW", sys.executable, "-m", "wattune")
        child = terminal.start(*node, "run", "--json", "--no-store", "--no-screen", *program, stdout=found.fileno())
        terminal.read_until(b"steps are counted from now on")
        (terminal.folder / "enough").touch()
        terminal.read_rest()
    assert child.returncode == 0
    assert json.loads((terminal.folder / "found.json").read_text())["step_source"] == "output"


SCREEN = ("run", "--device", "sim:a100", "--no-store", "--screen", "--", sys.executable, "-c", LINES)


def test_the_screen_has_the_programs_lines_and_the_terminal_all_of_them_afterwards(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.theirs)
    child = terminal.start(*SCREEN)
    terminal.read_until(b"line 20")
    assert b"output of the program" in terminal.shown
    (terminal.folder / "enough").touch()
    terminal.read_rest()
    assert child.returncode == 5
    assert termios.tcgetattr(terminal.theirs) == before
    after = terminal.shown.split(b"\x1b[?1049l")[1].decode()
    lines = [line for line in after.splitlines() if line.startswith("line ")]
    assert lines[:20] == [f"line {n}" for n in range(1, 21)]
    assert "that was all" in after
    assert [line for line in terminal.log().splitlines() if line.startswith("line ")] == lines


def test_q_leaves_the_screen_and_the_program_runs_on(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.theirs)
    child = terminal.start(*SCREEN)
    terminal.read_until(b"q: leave")
    os.write(terminal.ours, b"q")
    terminal.read_until(b"\x1b[?1049l")
    left = len(terminal.shown)
    (program,) = psutil.Process(child.pid).children()
    assert program.is_running()
    seen = terminal.log().count("\n")
    terminal.read_until(b"line %d\r\n" % (seen + 20))
    assert termios.tcgetattr(terminal.theirs) == before
    (terminal.folder / "enough").touch()
    terminal.read_rest()
    assert child.returncode == 5
    assert b"\x1b[?1049h" not in terminal.shown[left:]
    assert b"that was all" in terminal.shown[left:]


def test_ctrl_z_gives_the_terminal_back_and_the_screen_returns(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.theirs)
    child = terminal.start(*SCREEN)
    terminal.read_until(b"line 3")
    assert termios.tcgetattr(terminal.theirs) != before
    # Nobody would continue a process of this session, so the system does not stop it: the screen returns at once.
    child.send_signal(signal.SIGTSTP)
    terminal.read_until(LEAVE + ENTER)
    shown = len(terminal.shown)
    fcntl.ioctl(terminal.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 60, 0, 0))
    terminal.read_until("─── output of the program ".ljust(61, "─")[1:].encode())
    (terminal.folder / "enough").touch()
    terminal.read_rest()
    assert child.returncode == 5
    assert b"line 4" in terminal.shown[shown:]
    assert termios.tcgetattr(terminal.theirs) == before


PATTERN = ("run", "--device", "sim:a100", "--no-store", "--no-screen", "--step-pattern", "line", "--")


@pytest.mark.parametrize("options", [(), ("-I",)], ids=["copied", "relayed"])
def test_a_program_that_is_searched_for_a_pattern_keeps_its_terminal_without_wattune(
    terminal: Terminal, options: tuple[str, ...]
) -> None:
    child = terminal.start(*PATTERN, sys.executable, *options, "-c", f"import sys\nassert sys.stdout.isatty()\n{LINES}")
    terminal.read_until(b"line 5")
    child.kill()
    child.wait()
    terminal.shown = b""
    (terminal.folder / "enough").touch()
    while b"that was all" not in terminal.shown:
        assert select.select([terminal.ours], [], [], 30)[0]
        terminal.shown += os.read(terminal.ours, 65536)


def test_the_program_outlives_a_wattune_that_is_killed_and_writes_on(terminal: Terminal) -> None:
    child = terminal.start(*SCREEN)
    terminal.read_until(b"line 5")
    (program,) = psutil.Process(child.pid).children()
    child.kill()
    child.wait()
    seen = terminal.log().count("\n")
    wait_until(lambda: terminal.log().count("\n") > seen + 10)
    assert program.is_running()
    (terminal.folder / "enough").touch()
    wait_until(lambda: "that was all" in terminal.log())
