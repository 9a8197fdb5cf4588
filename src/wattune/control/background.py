"""The thread in which a program is tuned, and its overhead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from wattune.control.loop import ControlLoop
from wattune.control.ranks import error_text

MOST_SHARE = 0.006
"""Share of one core that ordinary ticks may take; the rest of one percent is for ticks with a long decision.
Where a tick costs more, as with many GPUs or a slow driver, the GPUs are read less often."""
COSTLIEST_S = 0.002
"""A tick that costs more counts as this much."""
MEMORY = 50.0
"""Ticks over which the cost of a tick is averaged."""


class Background:
    """A thread that ticks a loop until the block ends, and measures its own CPU time."""

    def __init__(self, loop: ControlLoop) -> None:
        self.loop = loop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wattune-run", daemon=True)
        self.cpu_s = 0.0
        """CPU time of the thread so far."""
        self.wall_s = 0.0
        self._tick_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._guarded(self.loop.close)

    @property
    def cpu_share(self) -> float | None:
        """Share of one core that the loop takes."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else None

    @property
    def wait_s(self) -> float:
        """How long to wait until the next tick: as the loop asks, or longer where ticks are expensive."""
        return max(self.loop.wait_s, self._tick_s / MOST_SHARE)

    def _run(self) -> None:
        start_s, begun_s = time.monotonic(), time.thread_time()
        while not self._ended.wait(self.wait_s):
            succeeded = self._guarded(self.loop.tick)
            self._count(time.thread_time() - begun_s, time.monotonic() - start_s)
            if not succeeded:
                return

    def _guarded(self, call: Callable[[], None]) -> bool:
        """Call a part of the loop; where it raises, disable tuning and restore the GPUs."""
        try:
            call()
        except Exception as error:  # whatever it is, the program that is tuned must not suffer from it
            self.loop.progress = self.loop.controller.disabled(self.loop.progress, error_text(error))
            self.loop.restore()
            return False
        return True

    def _count(self, cpu_s: float, wall_s: float) -> None:
        self._tick_s += (min(cpu_s - self.cpu_s, COSTLIEST_S) - self._tick_s) / MEMORY
        self.cpu_s, self.wall_s = cpu_s, wall_s
