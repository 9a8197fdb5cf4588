"""A thread in which a program is tuned, and what that thread costs."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from wattune.tuning.run_loop import RunLoop


class Background:
    """A thread that ticks a loop until the block ends, and knows what that cost."""

    def __init__(self, loop: RunLoop) -> None:
        self.loop = loop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wattune-run", daemon=True)
        self.cpu_s = 0.0
        """CPU time of the thread so far."""
        self.wall_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.loop.close()

    @property
    def cpu_share(self) -> float | None:
        """Share of one core that the loop takes."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else None

    def _run(self) -> None:
        start_s, begun_s = time.monotonic(), time.thread_time()
        while not self._ended.wait(self.loop.wait_s):
            try:
                self.loop.tick()
            except Exception as error:  # whatever it is, the program that is tuned must not suffer from it
                self.loop.progress = self.loop.tuner.resigned(self.loop.progress, f"{type(error).__name__}: {error}")
                self.loop.restore()
                return
            finally:
                self.cpu_s, self.wall_s = time.thread_time() - begun_s, time.monotonic() - start_s
