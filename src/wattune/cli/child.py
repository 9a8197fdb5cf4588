"""Run the user's command, with its own output, signals and exit code."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from wattune.core.errors import InputError

HANDLED_MS = 500
"""Longest time until a signal that did not interrupt the wait for a child is handled."""


def run_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout_to_stderr: bool = False,
    on_start: Callable[[int], None] | None = None,
    on_wait: Callable[[], None] | None = None,
    on_line: Callable[[str], object] | None = None,
) -> int:
    """Run a command and return its exit code, 128 + n where signal n ended it.

    `on_start` is called with the process id as soon as there is one, `on_wait` every half second while it runs. With
    `on_line` it gets every line that the command would write to a terminal.
    """
    stdout = sys.stderr.fileno() if stdout_to_stderr else None
    stderr = None if on_line is None else subprocess.PIPE
    if on_line is not None and (stdout_to_stderr or sys.stdout.isatty()):
        stdout, stderr = subprocess.PIPE, subprocess.STDOUT
    with Forwarding() as forwarding:
        process = start_child(command, environment=environment, stdout=stdout, stderr=stderr)
        forwarding.to(process)
        if on_start is not None:
            on_start(process.pid)
        with _lines_read(process, on_line):
            return shell_code(wait_for(process, on_wait=on_wait))


@contextmanager
def _lines_read(process: subprocess.Popen[bytes], on_line: Callable[[str], object] | None) -> Iterator[None]:
    """Pass the lines of a pipe on from a thread; its end is not waited for where another process holds it open."""
    pipe = process.stdout or process.stderr
    if on_line is None or pipe is None:
        yield
        return

    def read() -> None:
        for line in pipe:
            on_line(line.decode(errors="replace").rstrip())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(timeout=HANDLED_MS / 1000)
        if not thread.is_alive():
            pipe.close()


def wait_for(process: subprocess.Popen[bytes], *, on_wait: Callable[[], None] | None = None) -> int:
    """Wait for the end of a process and return its exit code, while signals are handled and `on_wait` is called.

    `process.wait()` is not interrupted by a signal that arrives just before the system call or in another thread, and
    Python would run its handler only after the end of the process.
    """
    meanwhile = on_wait or (lambda: None)
    try:
        ended = os.fdopen(os.pidfd_open(process.pid))
    except (AttributeError, OSError):  # not on this system, or not allowed in this container
        return _polled(process, meanwhile)
    with ended:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        while not poll.poll(HANDLED_MS):
            meanwhile()
    return process.wait()


def _polled(process: subprocess.Popen[bytes], meanwhile: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(HANDLED_MS / 1000)
        except subprocess.TimeoutExpired:
            meanwhile()


def start_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command, or raise an error of one line where it cannot be run."""
    try:
        return subprocess.Popen(
            list(command), env=None if environment is None else dict(environment), stdout=stdout, stderr=stderr
        )
    except FileNotFoundError:
        raise _no_command(command[0]) from None
    except OSError as error:
        raise InputError(f"cannot run {command[0]!r}: {error.strerror}", hint="is it an executable file?") from None


def check_command(command: Sequence[str]) -> None:
    """Raise where there is no such command; other failures show when it is run."""
    if shutil.which(command[0]) is None and not os.path.exists(command[0]):
        raise _no_command(command[0])


def _no_command(name: str) -> InputError:
    return InputError(f"there is no command {name!r}", hint="check its spelling, or give its path")


def shell_code(code: int) -> int:
    """Return an exit code as a shell does: 128 + n where signal n ended the process."""
    return code if code >= 0 else 128 - code


class Forwarding:
    """While this is open, signals that would stop wattune go to the child instead.

    It is opened before the child starts; signals that arrive until then are forwarded afterwards. Ctrl-C at a terminal
    reaches a running child by itself, since both are in the foreground, and is not forwarded.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}
        self.came = False
        """True once any signal arrived."""

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._process is None:
            for number in self._early:
                signal.raise_signal(number)

    def to(self, process: subprocess.Popen[bytes]) -> None:
        """Forward signals to this process from now on, and those that arrived before."""
        self._process = process
        for number in self._early:
            process.send_signal(number)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self.came = True
        if self._process is None:
            self._early.append(number)
        elif number != signal.SIGINT or not _in_foreground():
            self._process.send_signal(number)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
