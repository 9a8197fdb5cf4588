"""Setting a GPU from a thread of its own, so that training never waits for the driver."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from wattune.core.errors import WattuneError
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.devices.guarded import held_signals

MOST_BEHIND = 8
"""Settings that may wait for the driver; the oldest beyond that are passed over, since their moment is gone."""

POLL_S = 0.001
"""Between two looks whether the GPU got there; a clock takes ten times as long to change."""

Reached = Callable[[], bool]


class ClockQueue:
    """Settings for one GPU, applied in the order of `put` by a thread that ends with the `with` block.

    Use it inside the block of `open_gpu`: when this one ends, nothing sets the GPU any more, and it can be restored.
    """

    def __init__(self, gpu: Gpu, *, most_behind: int = MOST_BEHIND) -> None:
        self.passed_over = 0
        self._gpu = gpu
        self._most_behind = most_behind
        self._waiting: deque[tuple[Setting, Reached | None]] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._closing = False
        self._error: WattuneError | None = None
        self._thread = threading.Thread(target=self._work, name="wattune clocks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with held_signals():
            with self._changed:
                self._closing = True
                self._waiting.clear()
                self._changed.notify_all()
            self._thread.join()

    def put(self, setting: Setting, *, reached: Reached | None = None) -> None:
        """Nothing; the GPU gets this setting after those put before, and not before `reached` says so.

        What the driver refused of an earlier one is raised here, once.
        """
        with self._changed:
            self._raise_failure()
            if len(self._waiting) >= self._most_behind:
                self._waiting.popleft()
                self.passed_over += 1
            self._waiting.append((setting, reached))
            self._changed.notify_all()

    def settle(self) -> None:
        """Nothing; everything that was put has been applied. What the driver refused is raised here."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or not (self._waiting or self._busy))
            self._raise_failure()

    def _raise_failure(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while (item := self._next()) is not None:
            setting, reached = item
            try:
                if self._comes_to_pass(reached):
                    self._gpu.apply(setting)
            except WattuneError as error:
                self._fail(error)
            self._done()

    def _next(self) -> tuple[Setting, Reached | None] | None:
        """What to apply next; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            self._busy = True
            return self._waiting.popleft()

    def _comes_to_pass(self, reached: Reached | None) -> bool:
        """Whether the GPU got to where the setting is wanted before the queue was closed."""
        while reached is not None and not reached():
            if self._closing:
                return False
            time.sleep(POLL_S)
        return not self._closing

    def _fail(self, error: WattuneError) -> None:
        with self._changed:
            self._error = error
            self._waiting.clear()

    def _done(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
