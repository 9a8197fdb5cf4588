"""A policy of the user's beside a program: whatever its code does, the program runs and keeps its exit code."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from command import Command

POLICY = """
import os, sys, time
from pathlib import Path

def asked():
    Path("asked").write_text(str(os.getpid()))

class Vanishes:
    def __init__(self, objective): ...
    def step(self, windows, spec):
        asked()
        os._exit(3)

class Exits(Vanishes):
    def step(self, windows, spec):
        asked()
        sys.exit(3)

class Hangs(Vanishes):
    def step(self, windows, spec):
        asked()
        while True:
            time.sleep(0.1)
"""
PROGRAM = """
import time
from pathlib import Path
while not Path("asked").exists():
    time.sleep(0.05)
time.sleep(1)
print("trained")
raise SystemExit(7)
"""


@pytest.fixture
def wattune(tmp_path: Path) -> Command:
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "program.py").write_text(PROGRAM)
    return Command(tmp_path)


@pytest.mark.parametrize(
    ("policy", "words"),
    [("Vanishes", "the process of the policy mine:Vanishes ended with exit code 3"), ("Exits", "SystemExit: 3")],
)
def test_a_policy_that_exits_ends_neither_the_program_nor_its_exit_code(
    wattune: Command, policy: str, words: str
) -> None:
    done = wattune("run", "--device", "sim:a100", "--policy", f"mine:{policy}", "--", sys.executable, "program.py")
    assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_policy_that_hangs_ends_with_a_killed_wattune(wattune: Command, tmp_path: Path) -> None:
    line = ("run", "--device", "sim:a100", "--policy", "mine:Hangs", "--", sys.executable, "program.py")
    with wattune.start(*line) as process:
        asked = tmp_path / "asked"
        wait_for(lambda: asked.exists() and asked.read_text() != "")
        policy = int(asked.read_text())
        process.kill()
    wait_for(lambda: not lives(policy))
    assert process.returncode == -signal.SIGKILL


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]


def wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
