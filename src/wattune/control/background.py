"""The thread in which a control loop runs beside the program that is tuned."""

from __future__ import annotations

import threading
import time
from typing import Self

from wattune.control.loop import PATIENCE_S, ControlLoop

MOST_SHARE = 0.006
"""Share of one core that ordinary ticks may take; the rest of one percent is for ticks with a long decision.
Where a tick costs more, as with many GPUs or a slow driver, the GPUs are read less often. Polls close to a move of the
counter are never delayed, but what they took is saved afterwards."""
COSTLIEST_S = 0.002
"""A decision that costs more counts as this much; readings count in full."""


class Background:
    """A thread that ticks a loop until the block ends, and measures its own CPU time."""

    def __init__(self, loop: ControlLoop) -> None:
        self.loop = loop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wattune-run", daemon=True)
        self.cpu_s = 0.0
        """CPU time of the thread so far."""
        self.wall_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        if not self._thread.is_alive():
            self.loop.close()
            return
        self.loop.abandon()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        start_s, begun_s = time.monotonic(), time.thread_time()
        while not self._ended.wait(self.loop.wait_s):
            self.loop.tick()
            self._count(time.thread_time() - begun_s, time.monotonic() - start_s)

    def _count(self, cpu_s: float, wall_s: float) -> None:
        """Let the loop rest for what a tick cost; the time that passes counts."""
        reading_s = self.loop.readings.take_cpu_s()
        cost_s = reading_s + min(max(cpu_s - self.cpu_s - reading_s, 0.0), COSTLIEST_S)
        self.loop.rest_s = max(self.loop.rest_s - (wall_s - self.wall_s), 0.0) + cost_s / MOST_SHARE
        self.cpu_s, self.wall_s = cpu_s, wall_s
