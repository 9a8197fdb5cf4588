"""Opening something beside a program, which must not keep the program from starting: the GPUs of a slow driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, Self, TypeVar

from wattune.core.errors import WattuneError

T = TypeVar("T")

PATIENCE_S = 1.0
"""The program waits so long for its GPUs: an ordinary driver opens them in less, and what is wrong is known before."""
END_S = 0.25
"""Longest wait at the end of the program for a thread that is inside a call of the driver."""


class Opening(Generic[T]):
    """A thread that opens something; what is to happen with it begins once it is open and the program has started.

        with Opening(open_gpus, prepare, begin, say=print) as opening:
            opening.wait(required=False)
            start the program
            opening.started(pid)
            wait for the program

    At the end of the block what has begun ends, and what was opened is closed. A thread that still opens it is left to
    itself: nothing is set yet.
    """

    def __init__(
        self,
        open_: Callable[[], AbstractContextManager[T]],
        prepare: Callable[[T], None],
        begin: Callable[[int, float, ExitStack], None],
        *,
        say: Callable[[Exception], object],
    ) -> None:
        """`prepare` gets what was opened; `begin` the id of the program, seconds since its start, and a stack.

        `say` takes a failure after the start of the program.
        """
        self._open, self._prepare, self._begin, self._say = open_, prepare, begin, say
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._opened, self._done = threading.Event(), threading.Event()
        self._program: tuple[int, float] | None = None
        """The process id of the program, and when it was started."""
        self._ended = False
        self.is_ready = False
        """True once it is open and prepared."""
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="wattune-open", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if not self._lock.acquire(timeout=END_S):
            return  # the thread begins at this moment, and ends that by itself
        try:
            if self.is_ready:
                self._stack.close()
        finally:
            self._lock.release()

    def wait(self, *, required: bool) -> None:
        """Wait until it is open, for a while unless it is required, and raise what went wrong so far."""
        if self._opened.wait(None if required else PATIENCE_S):
            self._done.wait()
        if self.failure is not None:
            raise self.failure

    def end(self) -> bool:
        """Begin nothing any more, and return whether it is open and prepared."""
        self._ended = True
        if not self._lock.acquire(timeout=END_S):
            return False
        self._lock.release()
        return self.is_ready

    def join(self, seconds: float) -> None:
        """Wait so long at most until the thread has closed what it opened."""
        self._thread.join(seconds)

    def started(self, pid: int) -> None:
        """Begin now that the program has started, or as soon as it is open."""
        with self._lock:
            self._program = pid, time.monotonic()
            self._begin_if_due()

    def _run(self) -> None:
        try:
            found = self._stack.enter_context(self._open())
            self._opened.set()
            self._prepare(found)
            with self._lock:
                self.is_ready = not self._ended
                self._begin_if_due()
                if self._ended:  # by now, perhaps, and then the main thread has not waited for the lock
                    self.is_ready = False
                    self._stack.close()
        except Exception as error:
            with self._lock:
                self.failure = error
                self.is_ready = False
                self._begin_if_due()
                self._stack.close()
        finally:
            self._opened.set()
            self._done.set()

    def _begin_if_due(self) -> None:
        if self._program is None or self._ended:
            return
        pid, started_s = self._program
        if self.failure is not None:
            self._say(self.failure)
        elif self.is_ready:
            self._begin(pid, time.monotonic() - started_s, self._stack)


def failure_text(error: Exception) -> str:
    """Return what went wrong and what to do, in one line."""
    if not isinstance(error, WattuneError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message} ({error.hint})" if error.hint else error.message
