"""Processes that wattune did not start, or that a program has started."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from wattune.core.errors import InputError


class HeldProcess:
    """A process that is known by a descriptor: its id may be used again by another process, its descriptor not.

    Where the system gives no descriptors, the time at which it was started tells it from others.
    """

    def __init__(self, pid: int, descriptor: int | None) -> None:
        import psutil

        self.pid = pid
        self._descriptor = descriptor
        self._process = psutil.Process(pid) if descriptor is None else None

    @classmethod
    @contextmanager
    def open(cls, pid: int) -> Iterator[HeldProcess]:
        """Hold a process during a block, or raise an error of one line where there is none."""
        import psutil

        descriptor = None
        try:
            descriptor = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError):
            raise no_process(pid) from None
        except (AttributeError, OSError):  # not on this system, or not allowed in this container
            pass
        try:
            yield cls(pid, descriptor)
        except psutil.NoSuchProcess:
            raise no_process(pid) from None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @property
    def runs(self) -> bool:
        return not self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process, for a time at most; return whether it has ended."""
        if self._descriptor is not None:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(1000 * seconds))
        assert self._process is not None
        if seconds:
            time.sleep(seconds)
        return not self._process.is_running() or status_of(self.pid) in (None, "zombie")


def no_process(pid: int) -> InputError:
    """Return the error for a process that does not exist."""
    return InputError(f"there is no process {pid}", hint="find its process id with `ps` or `nvidia-smi`")


def descendants(pid: int) -> frozenset[int]:
    """Return the process and all that it started, as far as they still run."""
    import psutil

    try:
        return frozenset({pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))})
    except psutil.Error:
        return frozenset({pid})


def all_stopped(pids: Collection[int]) -> bool:
    """Return whether there are such processes and all of them are stopped, as by Ctrl-Z."""
    return bool(pids) and all(status_of(pid) == "stopped" for pid in pids)


def status_of(pid: int) -> str | None:
    """Return the status of a process, as psutil names it; None where it does not exist."""
    import psutil

    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return None
