"""Run the user's command, with its own output, signals and exit code.

A signal that was ignored when wattune started, as under nohup, stays ignored here and in the command. Every other
signal that would stop wattune goes to the command; so do SIGUSR1, SIGUSR2 and job control. After SIGTERM the command
has a grace period to end, and is killed then.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar

import click

from wattune.cli.calling_user import as_root_option, name_program_user, program_user
from wattune.cli.standard_streams import forgive_output
from wattune.core.errors import InputError

HANDLED_S = 0.5
"""Longest time until a signal that did not interrupt the wait for a child is handled."""
GRACE_S = 25.0
"""From SIGTERM to SIGKILL. Kubernetes and Slurm wait for 30 s: GPUs are to be restored before."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
"""Warnings of schedulers, and the end of a stop."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""The keys that a terminal sends to all processes in its foreground."""

F = TypeVar("F", bound=Callable[..., Any])


def program_options(function: F) -> F:
    """Add the options of every command that runs a program of the user."""
    return grace_option(as_root_option(function))


def grace_option(function: F) -> F:
    """Add the --grace option."""
    return click.option(
        "--grace",
        "grace_s",
        type=click.FloatRange(min=0),
        default=GRACE_S,
        show_default=True,
        help="Seconds between SIGTERM and SIGKILL.",
    )(function)


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a command."""

    exit_code: int
    """Its own, or 128 + n where signal n ended it or made wattune end it."""
    signal: int | None
    """The first signal that asked wattune to stop meanwhile."""


def run_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout_to_stderr: bool = False,
    places: tuple[int, int] | None = None,
    on_start: Callable[[int], None] | None = None,
    on_wait: Callable[[], None] | None = None,
    on_line: Callable[[str], object] | None = None,
    on_stop: Callable[[], None] | None = None,
    wait_s: Callable[[], float] = lambda: HANDLED_S,
    grace_s: float = GRACE_S,
) -> ChildEnd:
    """Run a command and return how it ended.

    `on_start` is called with the process id as soon as there is one, `on_wait` after each `wait_s`. `on_line`
    gets every line that the command would write to a terminal. `places` are descriptors that its standard output and
    standard error go to instead of to those of this process. `on_stop` is called before Ctrl-Z stops this process.
    """
    stdout = sys.stderr.fileno() if stdout_to_stderr else None
    stderr = None if on_line is None else subprocess.PIPE
    if places is not None:
        stdout, stderr = places
    if on_line is not None and (stdout_to_stderr or sys.stdout.isatty()):
        stdout, stderr = subprocess.PIPE, subprocess.STDOUT
    with Forwarding(grace_s=grace_s, on_stop=on_stop) as forwarding:
        process = start_child(command, environment=environment, stdout=stdout, stderr=stderr)
        forwarding.to(process)
        if on_start is not None:
            on_start(process.pid)

        def meanwhile() -> None:
            forwarding.kill_overdue()
            if on_wait is not None:
                on_wait()

        with _lines_read(process, on_line):
            wait_for(process, meanwhile=meanwhile, wait_s=wait_s)
        return forwarding.end()


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
        thread.join(timeout=HANDLED_S)
        if not thread.is_alive():
            pipe.close()


def wait_for(
    process: subprocess.Popen[bytes],
    *,
    meanwhile: Callable[[], None],
    wait_s: Callable[[], float] = lambda: HANDLED_S,
    wakes: Callable[[], Sequence[int]] = tuple,
) -> None:
    """Wait for the end of a process while signals are handled, and call `meanwhile` after each `wait_s`.

    `wakes` returns descriptors that can be read once `meanwhile` is to be called before.

    `process.wait()` is not interrupted by a signal that arrives just before the system call or in another thread, and
    Python would run its handler only after the end of the process.
    """
    try:
        ended = os.fdopen(os.pidfd_open(process.pid))
    except (AttributeError, OSError):  # not on this system, or not allowed in this container
        while process.poll() is None:
            meanwhile()
            time.sleep(0.02)
        return
    with ended:
        while ended.fileno() not in _readable((ended.fileno(), *wakes()), wait_s()):
            meanwhile()
    process.wait()


def _readable(descriptors: Sequence[int], wait_s: float) -> frozenset[int]:
    """Return those of the descriptors that can be read, after waiting so long for one."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return frozenset(descriptor for descriptor, _ in poll.poll(1000 * wait_s))


def start_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command as its user, or raise an error of one line where it cannot be run."""
    user = program_user()
    variables = os.environ if environment is None else environment
    try:
        process = subprocess.Popen(
            list(command),
            env=dict(variables) if user is None else user.environment(variables),
            stdout=stdout,
            stderr=stderr,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else user.groups,
        )
    except FileNotFoundError:
        raise _no_command(command[0]) from None
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or str(error)
        hint = "is it an executable file?"
        if user is not None:
            hint = f"may {user.name} run it? --as-root runs it as root"
        raise InputError(f"cannot run {command[0]!r}: {reason}", hint=hint) from None
    forgive_output()
    return process


def check_command(command: Sequence[str]) -> None:
    """Raise where there is no such command; other failures show when it is run. Under sudo, name its user."""
    if shutil.which(command[0]) is None and not os.path.exists(command[0]):
        raise _no_command(command[0])
    name_program_user()


def _no_command(name: str) -> InputError:
    return InputError(f"there is no command {name!r}", hint="check its spelling, or give its path")


def shell_code(code: int) -> int:
    """Return an exit code as a shell does: 128 + n where signal n ended the process."""
    return code if code >= 0 else 128 - code


def leave_by(number: int) -> NoReturn:
    """End this command with the exit code of a signal, so that `with` blocks end in order."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


class Forwarding:
    """While this is open, signals that would stop wattune go to the child instead.

    It is opened before the child starts; signals that arrive until then are forwarded afterwards. Ctrl-C at a terminal
    reaches a running child by itself, since both are in the foreground, and is not forwarded.
    """

    def __init__(self, *, grace_s: float = GRACE_S, on_stop: Callable[[], None] | None = None) -> None:
        self._grace_s, self._on_stop = grace_s, on_stop
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}
        self._kill_at_s: float | None = None
        self._killed = False
        self.received: int | None = None
        """The first signal that asked to stop."""

    def __enter__(self) -> Self:
        for number in (*STOPPING, *PASSED_ON, signal.SIGTSTP):
            # Ignored signals are left alone, and a child inherits that. Handlers that were not set from Python (None)
            # cannot be put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._handle)
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

    def ask_to_end(self) -> None:
        """Ask the process to end; its grace period begins, unless a SIGTERM began it before."""
        assert self._process is not None
        self._begin_grace()
        self._process.terminate()

    def kill_overdue(self) -> None:
        """Kill the process, and those that it started, once its time to end after SIGTERM is over."""
        if self._process is None or self._killed or self._kill_at_s is None or time.monotonic() < self._kill_at_s:
            return
        self._killed = True
        kill_family(self._process)

    def end(self) -> ChildEnd:
        """Return how the process ended, once it has."""
        assert self._process is not None
        code = shell_code(self._process.wait())
        return ChildEnd(128 + self.received if self._killed and self.received else code, self.received)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._stop()
            return
        if number in STOPPING:
            self.received = self.received or number
        if number == signal.SIGTERM:
            self._begin_grace()
        if self._process is None:
            self._early.append(number)
        elif number not in _OF_TERMINAL or not _in_foreground():
            self._process.send_signal(number)

    def _begin_grace(self) -> None:
        if self._kill_at_s is None:
            self._kill_at_s = time.monotonic() + self._grace_s

    def _stop(self) -> None:
        """Stop together with the process, until SIGCONT, which is passed on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTSTP)
        if self._on_stop is not None:
            self._on_stop()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._handle)


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started."""
    import psutil

    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    process.kill()
    for one in family:
        try:
            one.kill()
        except psutil.Error:
            continue


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal has gone
        return False
    finally:
        os.close(terminal)
