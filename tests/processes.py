"""Rules for tests that start processes: signals, time limits, and no process left behind.

Tests run the same in a terminal, in the background (`nohup make test &`, where SIGINT, SIGQUIT and SIGHUP are
ignored and children inherit that) and on a busy machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

PATIENCE_S = 400.0
"""The time that a test waits for another process. It ends a hang and is not a statement about speed."""

_MARK = "STARTED_BY_TESTS_OF"
"""The variable by which a process is found again after its parent has ended."""

_STAMP_ERROR_S = 2.0
"""Error of the time at which a process was started: the system gives the time of its own start in whole seconds."""


def shared_folder() -> Path:
    """Return the folder of files that are made once for all test processes, such as compiled ones."""
    return Path(tempfile.gettempdir()) / f"wattune-tests-{os.getuid()}"


@pytest.fixture(scope="session", autouse=True)
def _process_rules() -> Iterator[None]:
    """Set what the programs that tests start inherit, and fail if one of them outlives the tests."""
    stopping = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # The tests go on after a hang-up, as `nohup` asks, but a handler is not inherited as an ignored signal is.
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    os.environ[_MARK] = str(os.getpid())
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # hundreds of processes would each compile the package
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared_folder() / "bytecode")
    yield
    _, alive = psutil.wait_procs(_started(), timeout=30)
    if alive:
        names = [f"{process.pid} {' '.join(process.cmdline())!r} of {_test_of(process)}" for process in alive]
        _kill(alive)
        pytest.fail(f"processes outlived the tests: {'; '.join(names)}")


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> Generator[None, object, object]:
    """Kill what a test started once its time is up, since leaving a `with` block waits for the process.

    Servers that several tests share were started before and go on.
    """
    since_s = time.time()
    done = yield
    report = signal.getsignal(signal.SIGALRM)

    def kill_and_report(number: int, frame: FrameType | None) -> None:
        _kill(_started(), since_s=since_s - _STAMP_ERROR_S)
        if callable(report):
            report(number, frame)

    if callable(report):
        signal.signal(signal.SIGALRM, kill_and_report)
    return done


def wait_until(condition: Callable[[], object], *running: subprocess.Popen[Any]) -> None:
    """Wait until the condition holds, which needs these processes to go on."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert [process.poll() for process in running] == [None] * len(running), "a process has ended"
        assert time.monotonic() < end_s, "the condition did not come true"
        time.sleep(0.005)


def _started() -> list[psutil.Process]:
    """The processes that tests of this process started, children of children too."""
    mine = psutil.Process()
    found = {process.pid: process for process in mine.children(recursive=True)}
    found |= {process.pid: process for process in psutil.process_iter() if _has_mark(process)}
    found.pop(mine.pid, None)
    return [process for process in found.values() if not _is_python_helper(process)]


def _has_mark(process: psutil.Process) -> bool:
    try:
        return process.environ().get(_MARK) == str(os.getpid())
    except psutil.Error:
        return False


def _is_python_helper(process: psutil.Process) -> bool:
    """Return whether it is a process of `multiprocessing`, which ends with its parent."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _test_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("PYTEST_CURRENT_TEST", "a test")
    except psutil.Error:
        return "a test"


def _kill(processes: list[psutil.Process], *, since_s: float = 0.0) -> None:
    """Kill those of the processes that were started after a time."""
    for process in processes:
        try:
            if process.create_time() >= since_s:
                process.kill()
        except psutil.NoSuchProcess:
            continue
