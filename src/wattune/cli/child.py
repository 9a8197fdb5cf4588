"""Running somebody's command: its output, signals and exit code are its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from wattune.core.errors import InputError


def run_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout_to_stderr: bool = False,
    on_start: Callable[[int], None] | None = None,
) -> int:
    """The exit code of the command, 128 + n where signal n ended it, as a shell would say.

    `on_start` is told its process number as soon as it has one.
    """
    try:
        process = subprocess.Popen(
            list(command),
            env=None if environment is None else dict(environment),
            stdout=sys.stderr.fileno() if stdout_to_stderr else None,
        )
    except FileNotFoundError:
        raise InputError(f"there is no command {command[0]!r}", hint="check its spelling, or give its path") from None
    except OSError as error:
        raise InputError(f"cannot run {command[0]!r}: {error.strerror}", hint="is it an executable file?") from None
    with _forwarding_to(process):
        if on_start is not None:
            on_start(process.pid)
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _forwarding_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A stretch in which signals meant to stop us go to the child, which decides.

    Ctrl-C at a terminal reaches the child by itself, since both are in the foreground; passing it on would hit twice.
    """

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        if number != signal.SIGINT or not _in_foreground():
            process.send_signal(number)

    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, forward) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
