"""Run a program of the user, with its own output, signals and exit code.

    end = Program(command=("python", "train.py")).run()

A signal that was ignored when wattune started, as under nohup, stays ignored here and in the program. Every other
signal that would stop wattune goes to the program; so do SIGUSR1, SIGUSR2 and job control. After SIGTERM the program
has a grace period to end, and is killed then with all that it started. Where wattune ends, the program goes on.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from wattune.core.errors import InputError
from wattune.process.standard_streams import forgive_output
from wattune.process.user import CallingUser

if TYPE_CHECKING:
    import psutil

HANDLED_S = 0.5
"""Longest time until a signal that did not interrupt the wait for a program is handled."""
Waits = Callable[[], float]
"""Returns how long to wait next, in seconds."""
GRACE_S = 25.0
"""From SIGTERM to SIGKILL. Kubernetes and Slurm wait for 30 s: GPUs are to be restored before."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
"""Warnings of schedulers, and the end of a stop."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""The keys that a terminal sends to all processes in its foreground."""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of a program."""

    exit_code: int
    """Its own, or 128 + n where signal n ended it or made wattune end it."""
    signal: int | None = None
    """The first signal that asked wattune to stop meanwhile."""
    asked: bool = False
    """True if wattune ended it."""
    tail: str = ""
    """The end of its output, where that was relayed."""

    @property
    def interrupted(self) -> bool:
        return self.signal is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run."""

    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    """None for that of this process."""
    places: tuple[int, int] | None = None
    """Descriptors for its standard output and standard error; None where it simply has ours, which may be closed."""
    user: CallingUser | None = None
    """The user as whom it runs; None for that of this process."""
    grace_s: float = GRACE_S
    """From SIGTERM to SIGKILL."""
    on_start: Callable[[int], None] | None = None
    """Called with the process id as soon as there is one."""
    on_stop: Callable[[], None] | None = None
    """Called before Ctrl-Z stops this process and the program."""

    @property
    def uid(self) -> int | None:
        """The number of its user, where that is not the user of this process."""
        return None if self.user is None else self.user.uid

    @property
    def variables(self) -> Mapping[str, str]:
        """Its environment."""
        return os.environ if self.environment is None else self.environment

    def unbuffered(self) -> Program:
        """Let Python print at once: it buffers what goes into a pipe or a file, and late lines are useless."""
        printing = self.variables.get("PYTHONUNBUFFERED") or "1"
        return replace(self, environment={**self.variables, "PYTHONUNBUFFERED": printing})

    def run(self, meanwhile: Callable[[], None] | None = None, *, wait_s: Waits = lambda: HANDLED_S) -> ProgramEnd:
        """Run it, call `meanwhile` after each `wait_s`, and return how it ended."""
        with self.started() as running:
            running.wait(meanwhile, wait_s=wait_s)
            return running.end()

    @contextmanager
    def started(self) -> Iterator[Running]:
        """Start it; until the block ends, signals that would stop wattune go to it."""
        with Running(grace_s=self.grace_s, on_stop=self.on_stop) as running:
            running.forward_to(self._started())
            if self.on_start is not None:
                self.on_start(running.process.pid)
            yield running

    def _started(self) -> subprocess.Popen[bytes]:
        """Start it as its user, or raise an error of one line where it cannot be run."""
        variables, user = self.variables, self.user
        out, err = (None, None) if self.places is None else self.places
        try:
            process = subprocess.Popen(
                list(self.command),
                env=dict(variables) if user is None else user.environment(variables),
                stdout=out,
                stderr=err,
                user=None if user is None else user.uid,
                group=None if user is None else user.gid,
                extra_groups=None if user is None else user.groups,
            )
        except FileNotFoundError:
            raise _no_command(self.command[0]) from None
        except (OSError, ValueError) as error:  # ValueError: a null character
            reason = getattr(error, "strerror", None) or str(error)
            hint = "is it an executable file?"
            if user is not None:
                hint = f"may {user.name} run it? --as-root runs it as root"
            raise InputError(f"cannot run {self.command[0]!r}: {reason}", hint=hint) from None
        forgive_output()
        return process


def check_command(command: Sequence[str]) -> None:
    """Raise where there is no such command; other failures show when it is run."""
    if shutil.which(command[0]) is None and not os.path.exists(command[0]):
        raise _no_command(command[0])


def _no_command(name: str) -> InputError:
    return InputError(f"there is no command {name!r}", hint="check its spelling, or give its path")


def leave_by(number: int) -> NoReturn:
    """End this command with the exit code of a signal, so that `with` blocks end in order."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


class Running:
    """A program that runs; while this is open, signals that would stop wattune go to it instead.

    It is opened before the program starts; signals that arrive until then are forwarded afterwards. Ctrl-C at a
    terminal reaches a running program by itself, since both are in the foreground, and is not forwarded.
    """

    process: subprocess.Popen[bytes]

    def __init__(self, *, grace_s: float, on_stop: Callable[[], None] | None) -> None:
        self._grace_s, self._on_stop = grace_s, on_stop
        self._is_started = False
        self._early: list[int] = []
        self._before: dict[int, Any] = {}
        self._kill_at_s: float | None = None
        self._killed = False
        self._family: list[psutil.Process] = []
        self.asked = False
        """True once wattune has asked it to end."""
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
        if not self._is_started:
            for number in self._early:
                signal.raise_signal(number)

    def forward_to(self, process: subprocess.Popen[bytes]) -> None:
        """Forward signals to this process from now on, and those that arrived before."""
        self.process, self._is_started = process, True
        for number in self._early:
            process.send_signal(number)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, meanwhile: Callable[[], None] | None = None, *, wait_s: Waits = lambda: HANDLED_S) -> None:
        """Wait for its end while signals are handled, and call `meanwhile` after each `wait_s`.

        `process.wait()` is not interrupted by a signal that arrives just before the system call or in another thread,
        and Python would run its handler only after the end of the process.
        """
        for _ in _until_ended(self.process, wait_s):
            self._kill_overdue()
            if meanwhile is not None:
                meanwhile()
        family, self._family = self._family, []
        if family:
            _end_all(family, self._grace_s)

    def ask_to_end(self) -> None:
        """Ask it to end, with all that it has started by now; its grace period begins unless a SIGTERM began it."""
        import psutil

        self.asked = True
        try:  # before it ends, since orphans cannot be found later
            self._family = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            self._family = []
        self._begin_grace()
        self.process.terminate()

    def end(self) -> ProgramEnd:
        """Return how it ended, once it has."""
        code = self.process.wait()
        code = code if code >= 0 else 128 - code  # as a shell does
        return ProgramEnd(128 + self.received if self._killed and self.received else code, self.received, self.asked)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._stop()
            return
        if number in STOPPING:
            self.received = self.received or number
        if number == signal.SIGTERM:
            self._begin_grace()
        if not self._is_started:
            self._early.append(number)
        elif number not in _OF_TERMINAL or not _in_foreground():
            self.process.send_signal(number)

    def _begin_grace(self) -> None:
        if self._kill_at_s is None:
            self._kill_at_s = time.monotonic() + self._grace_s

    def _kill_overdue(self) -> None:
        """Kill it, and those that it started, once its time to end after SIGTERM is over."""
        if not self._killed and self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._killed = True
            _kill_family(self.process)

    def _stop(self) -> None:
        """Stop together with the program, until SIGCONT, which is passed on."""
        if self._is_started:
            self.process.send_signal(signal.SIGTSTP)
        if self._on_stop is not None:
            self._on_stop()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._handle)


def _until_ended(process: subprocess.Popen[bytes], wait_s: Waits) -> Iterator[None]:
    """Yield after each `wait_s` until a process has ended."""
    try:
        ended = os.fdopen(os.pidfd_open(process.pid))
    except (AttributeError, OSError):  # not on this system, or not allowed in this container
        while process.poll() is None:
            yield
            time.sleep(0.02)
        return
    poll = select.poll()
    with ended:
        poll.register(ended, select.POLLIN)
        while not poll.poll(1000 * wait_s()):
            yield
    process.wait()


def _kill_family(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started."""
    import psutil

    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    process.kill()
    _each(psutil.Process.kill, family)


def _end_all(family: Sequence[psutil.Process], grace_s: float) -> None:
    """End these processes, at last with SIGKILL."""
    import psutil

    alive = [process for process in family if process.is_running()]
    _each(psutil.Process.terminate, alive)
    _, alive = psutil.wait_procs(alive, timeout=grace_s)
    _each(psutil.Process.kill, alive)


def _each(act: Callable[[psutil.Process], None], processes: Sequence[psutil.Process]) -> None:
    import psutil

    for process in processes:
        try:
            act(process)
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
