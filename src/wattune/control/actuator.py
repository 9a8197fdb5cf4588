"""The one place from which running programs set clocks and power limits.

No request blocks the training thread and none raises. When the driver refuses a setting, the GPUs go back to what was
found, the failure is kept for the caller to report, and training goes on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from wattune.core.setting import Setting
from wattune.devices.fork import disarm_in_children
from wattune.devices.gpu import Gpu, time_of
from wattune.devices.guarded import held_signals
from wattune.devices.in_turn import in_turn

MAX_PENDING = 8
"""Settings that may wait for the driver. Older ones are dropped: the work they were meant for has passed."""

POLL_S = 0.001
"""Between two checks whether the GPU has reached an instruction; a clock takes ten times as long to change."""

END_S = 5.0
"""Longest wait for a thread that restores GPUs at the end of a program. A driver that takes longer must not keep the
program from ending; the journal has what is left to undo."""

OVERDUE_S = 0.25
"""After the end of a program, GPUs whose last reading takes longer are restored meanwhile."""

Reached = Callable[[], bool]


class Actuator:
    """Sets the GPUs of this process alike, at once in the calling thread: for GPUs whose time is virtual.

    The GPUs are restored at the end of the `with` block.
    """

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = tuple(gpus)
        self.skipped = 0
        """Settings that were dropped because the driver was too slow."""
        self.disabled: str | None = None
        """The reason why nothing is set any more, or None."""
        self.stuck: tuple[tuple[Gpu, Exception], ...] = ()
        """GPUs that could not be restored, and why; the next `restore` tries again, since the reason may be gone."""
        self._failure: Exception | None = None
        self._setting = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def close(self) -> None:
        """Restore the GPUs, and set nothing any more; callable from any thread.

        A setting that is on its way ends after the present call of the driver; what it still sets is undone too.
        """
        self._closed = True
        self._restore()
        with self._setting:
            self._restore()

    def put(self, setting: Setting, *, reached: Reached | None = None) -> None:
        """Request a setting, to be applied after earlier requests and once `reached` returns true."""
        del reached  # in virtual time, work is done when the call that does it returns
        if self.disabled is None:
            self._apply(setting)

    def disable(self, why: str) -> None:
        """Drop all requests, restore the GPUs and set nothing any more."""
        if self.disabled is None:
            self.disabled = why
            self.restore()

    def take_failure(self) -> Exception | None:
        """Return what went wrong since the last call, once."""
        failure, self._failure = self._failure, None
        return failure

    def _apply(self, setting: Setting) -> None:
        try:
            with self._setting:
                for gpu in self.gpus:
                    if not self._closed:
                        gpu.apply(setting)
        except Exception as error:  # whatever the driver raises, training must not see it
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._failure = error
        self.restore()

    def restore(self) -> None:
        """Give the GPUs back what was found; a failure is kept for `take_failure`."""
        with self._setting:
            self._restore()

    def _restore(self) -> None:
        outcomes = in_turn([gpu.restore for gpu in self.gpus])
        # The journal entry of a GPU that could not be restored stays, and the next call tries again.
        self.stuck = tuple(
            (gpu, error) for gpu, error in zip(self.gpus, outcomes, strict=True) if isinstance(error, Exception)
        )
        if self.stuck:
            self._failure = self._failure or self.stuck[0][1]


class ActuatorThread(Actuator):
    """Sets the GPUs of this process from a thread, so that training never waits for the driver.

    At the end of the `with` block the thread restores the GPUs and ends; nothing is set afterwards.
    """

    def __init__(self, gpus: Sequence[Gpu], *, max_pending: int = MAX_PENDING) -> None:
        super().__init__(gpus)
        self._max_pending = max_pending
        self._pending: deque[tuple[Setting, Reached | None]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="wattune clocks", daemon=True)
        disarm_in_children(self)

    def disarm(self) -> None:
        """In a forked child, which has no such thread: set nothing, and wait for nobody."""
        self._changed = threading.Condition()  # the thread may have held the other one
        self._pending.clear()
        self.disabled = self.disabled or "this is a forked child of the process that tunes"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with held_signals():
            with self._changed:
                self._closing = True
                self._pending.clear()
                self._changed.notify_all()
            self._thread.join(END_S)

    def put(self, setting: Setting, *, reached: Reached | None = None) -> None:
        with self._changed:
            if self.disabled is not None:
                return
            if len(self._pending) >= self._max_pending:
                self._pending.popleft()
                self.skipped += 1
            self._pending.append((setting, reached))
            self._changed.notify_all()

    def disable(self, why: str) -> None:
        with self._changed:
            if self.disabled is None:
                self.disabled = why
                self._pending.clear()
                self._changed.notify_all()

    def _work(self) -> None:
        while (request := self._next()) is not None:
            setting, reached = request
            try:
                if self._is_reached(reached):
                    self._apply(setting)
            except Exception as error:  # from `reached`, such as an error of CUDA
                self._failed(error)
        self.restore()

    def _next(self) -> tuple[Setting, Reached | None] | None:
        """Wait for the next request; None where nothing is to be set any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._pending)
            return None if self._is_over else self._pending.popleft()

    @property
    def _is_over(self) -> bool:
        return self._closing or self.disabled is not None

    def _is_reached(self, reached: Reached | None) -> bool:
        while reached is not None and not reached():
            if self._is_over:
                return False
            time.sleep(POLL_S)
        return not self._is_over

    def _failed(self, error: Exception) -> None:
        with self._changed:
            self._pending.clear()
        super()._failed(error)


@contextmanager
def restored_if_slow(gpus: Sequence[Gpu]) -> Iterator[None]:
    """Restore the GPUs beside the block where it takes long, as with a slow driver: schedulers wait for 30 s."""
    overdue = threading.Timer(OVERDUE_S, lambda: in_turn([gpu.restore for gpu in gpus]))
    overdue.daemon = True
    overdue.start()
    try:
        yield
    finally:
        overdue.cancel()


def passes_by_itself(gpu: Gpu) -> bool:
    """Return True where the time of a GPU passes with the wall's, and not only when work is run on it."""
    now_s = time_of(gpu)
    before_s = now_s()
    time.sleep(0.002)
    return now_s() != before_s


def actuator_for(gpus: Sequence[Gpu]) -> Actuator:
    """Return an actuator for GPUs of one process: with a thread, unless their time is virtual."""
    return ActuatorThread(gpus) if passes_by_itself(gpus[0]) else Actuator(gpus)
