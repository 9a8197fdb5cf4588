"""Where threads leave what they were told until the one thread that decides has time for it."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from threading import Lock
from types import TracebackType
from typing import Self

from wattune.control.reports.http import Answer, Hear
from wattune.control.reports.report import Told

RUN_OVER = Answer(stop=True, why="the run is over", within_s=0.0)


class Desk:
    """Takes what is told in any thread; `descriptor` can be read as soon as something waits to be heard."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Told, Future[Answer]]] = deque()
        self._is_open = True
        self.descriptor, self._bell = os.pipe()

    def tell(self, told: Told) -> Answer:
        """The answer, once the deciding thread has given it; that the run is over where it has left."""
        future: Future[Answer] = Future()
        with self._lock:
            if not self._is_open:
                return RUN_OVER
            self._waiting.append((told, future))
            os.write(self._bell, b"\0")
        return future.result()

    def answer(self, hear: Hear) -> None:
        """Nothing; everything that waited was heard and answered, in the thread that calls this."""
        while self._waiting:
            told, future = self._waiting.popleft()
            os.read(self.descriptor, 1)
            answered = RUN_OVER  # for the caller, where hearing fails
            try:
                answered = hear(told)
            finally:
                future.set_result(answered)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_open = False
            for _, future in self._waiting:
                future.set_result(RUN_OVER)
            self._waiting.clear()
            os.close(self.descriptor)
            os.close(self._bell)
