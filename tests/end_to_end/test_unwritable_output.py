"""Standard error or standard output that cannot be written: programs run, keep their exit code, and are stored."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from command import Command
from processes import wait_until
from wattune.store.sql_store import open_store

SIM = ("--device", "sim:a100")
JOB = ("--batch-sizes", "8", "--default", "8", "--target", "0.9", "--metric-pattern", r"metric (\S+)")
COMMANDS = {
    "run": ("run", *SIM),
    "measure": ("measure", *SIM),
    "hold": ("hold", *SIM, "900MHz"),
    "job": ("job", "run", "nightly", *SIM, *JOB),
    "simulate": ("simulate",),
}
PROGRAM = ("--", "sh", "-c", "echo metric 0.5; touch ran; exit 7")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@contextmanager
def full() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@contextmanager
def pipe_without_reader() -> Iterator[int]:
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@contextmanager
def terminal_that_is_gone() -> Iterator[int]:
    ours, theirs = pty.openpty()
    os.close(ours)
    yield theirs
    os.close(theirs)


@contextmanager
def closed() -> Iterator[None]:
    yield None


def started(command: Command, *arguments: str, out: int | None, err: int | None) -> subprocess.Popen[str]:
    """Start a command; a stream that is None is closed."""
    closing = "".join(f"{number}>&- " for number, place in ((1, out), (2, err)) if place is None)
    line = ["sh", "-c", f'exec "$@" {closing}', "sh", *command.line(*arguments)]
    return subprocess.Popen(
        line, stdout=out, stderr=err, env=command.environment, cwd=command.folder, text=True, start_new_session=True
    )


def stored(command: Command) -> int:
    """Return how many runs the history has, of jobs too."""
    store = open_store(f"sqlite:///{command.environment['WATTUNE_STORE']}")
    return len(store.runs()) + sum(job.runs for job in store.jobs.jobs())


WAYS = (full, closed, pipe_without_reader, terminal_that_is_gone)


@pytest.mark.parametrize("way", WAYS)
def test_a_program_runs_whatever_standard_error_takes(command: Command, way: object) -> None:
    for count, (name, arguments) in enumerate(COMMANDS.items(), start=1):
        with way() as err, started(command, *arguments, *PROGRAM, out=subprocess.PIPE, err=err) as process:  # type: ignore[operator]
            out = process.stdout.read()  # type: ignore[union-attr]
        assert (name, process.returncode, out) == (name, 7, "metric 0.5\n")
        assert (command.folder / "ran").exists()
        (command.folder / "ran").unlink()
        assert stored(command) == min(count, 4)  # a simulation stores nothing


@pytest.mark.parametrize("way", [full, closed])
def test_a_result_that_cannot_be_written_changes_nothing_else(command: Command, way: object) -> None:
    for count, (name, arguments) in enumerate(COMMANDS.items(), start=1):
        first, *rest = PROGRAM
        line = (*arguments, "--json", first, *rest)
        with way() as out, started(command, *line, out=out, err=subprocess.PIPE) as process:  # type: ignore[operator]
            err = process.stderr.read()  # type: ignore[union-attr]
        assert (name, process.returncode) == (name, 7)
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        assert ("warning: cannot write to standard output" in err) == (way is full)
        assert stored(command) == min(count, 4)


STEPS = """
import os, sys, time
print("begun", file=sys.stderr, flush=True)
while not os.path.exists("enough"):
    time.sleep(0.05)
    print("metric 0.5", flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_of_standard_error_may_go_away(command: Command, name: str) -> None:
    program = ("--", sys.executable, "-c", STEPS)
    with started(command, *COMMANDS[name], *program, out=subprocess.DEVNULL, err=subprocess.PIPE) as process:
        assert process.stderr is not None
        wait_until(lambda: "begun" in process.stderr.readline(), process)
        process.stderr.close()
        (command.folder / "enough").touch()
        assert process.wait() == 7
    assert stored(command) == (name != "simulate")


def test_a_sweep_is_stored_and_ends_in_good_order(command: Command) -> None:
    line = command.line("sweep", "--setting", "900MHz", "--", "true")
    with full() as place, started(command, "simulate", "--", *line, out=place, err=place) as process:
        assert process.wait() == 0
    assert stored(command) == 1


def test_a_command_without_a_program_fails_where_its_output_cannot_be_written(command: Command) -> None:
    with full() as out, started(command, "devices", "--json", out=out, err=subprocess.PIPE) as process:
        assert process.stderr is not None
        err = process.stderr.read()
    assert process.returncode == 1
    assert err.splitlines()[-2:] == [
        "error: cannot write to standard output: No space left on device",
        "hint: what is missing there was not written",
    ]
