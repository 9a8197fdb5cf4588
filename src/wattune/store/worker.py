"""Calls to a store from a thread of their own, so that no program waits for a store that is locked or stopped.

A call that is not answered in time is abandoned: the thread may still finish it, so whatever it writes must be written
again without harm (a run is known by its id). The thread never keeps the process from ending.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, TypeVar

from wattune.core.errors import StoreError
from wattune.store.records import StoreTimeout
from wattune.store.url import redacted

if TYPE_CHECKING:
    from wattune.store.sql_store import Store

WAIT_S = 5.0
"""The longest wait for the store, before a program starts and after it has ended."""
PATIENCE_S = 0.02
"""The longest wait of a program that trains. A store on a local disk answers within it; with a slower one, decisions
are made with what was known before."""
RETRY_S = 30.0
"""After an outage, calls fail at once for so long: a command waits for its store once, not at every step."""
IDLE_S = 1.0
"""A thread without calls ends after so long; the next call starts another."""
AGAIN_S = 0.5
"""The wait for a store that failed a moment ago."""

T = TypeVar("T")


class StoreWorker:
    """Calls the store at a URL, one call after the other, in a thread that starts with the first."""

    def __init__(self, url: str, *, wait_s: float = WAIT_S) -> None:
        self.wait_s = wait_s
        self._url = url
        self._calls: queue.SimpleQueue[tuple[Callable[[Store], object], Future[object]]] = queue.SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()
        self._store: Store | None = None
        self._computing = False
        self._alive_s = 0.0
        """The time at which work of our own within a call last ended."""
        self._failed: tuple[float, StoreTimeout] | None = None
        """The time of the last outage, and its error."""

    @property
    def place(self) -> str | None:
        """The store's place, for people; None for a URL that cannot be read."""
        from wattune.store.engine import parse, place_of

        try:
            return place_of(parse(self._url))
        except StoreError:
            return None

    @property
    def rest_s(self) -> float:
        """The time to wait for a call that was posted: less soon after an outage, which was waited for already."""
        return min(AGAIN_S, self.wait_s) if self._is_out else self.wait_s

    @property
    def _is_out(self) -> bool:
        return self._failed is not None and time.monotonic() - self._failed[0] < RETRY_S

    def post(self, act: Callable[[Store], T]) -> Future[T]:
        """Call the store when its turn comes; the future has the result or the error."""
        future: Future[T] = Future()
        self._calls.put((act, future))  # type: ignore[arg-type]
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="wattune-store", daemon=True)
                self._thread.start()
        return future

    def call(self, act: Callable[[Store], T]) -> T:
        """Call the store and wait; `StoreTimeout` if it does not answer in time, and at once soon after an outage."""
        if self._failed is not None and self._is_out:
            raise self._failed[1]
        return self.result(self.post(act), wait_s=self.wait_s)

    def result(self, future: Future[T], *, wait_s: float) -> T:
        """Wait for a call that was posted; where it has not begun by then, it is cancelled."""
        started_s = time.monotonic()
        try:
            while True:
                rest_s = wait_s - (time.monotonic() - max(started_s, self._alive_s))
                with suppress(TimeoutError):
                    return future.result(max(0.01, rest_s))
                if not self._computing and time.monotonic() - max(started_s, self._alive_s) >= wait_s:
                    raise TimeoutError
        except TimeoutError:
            future.cancel()
            known = self._failed if self._is_out else None
            error = self._no_answer(wait_s) if known is None else known[1]
            self._failed = (time.monotonic(), error)
            raise error from None

    def _no_answer(self, wait_s: float) -> StoreTimeout:
        return StoreTimeout(
            f"the store {self.place or redacted(self._url)} did not answer within {wait_s:g} s",
            hint="check that it runs and that no other process keeps it locked",
        )

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Run a block of a call whose time is not the store's: it does not count as waiting for it."""
        self._computing = True
        try:
            yield
        finally:
            self._alive_s = time.monotonic()
            self._computing = False

    def _run(self) -> None:
        while True:
            try:
                act, future = self._calls.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._calls.empty():
                        self._thread = None
                        return
            else:
                self._answer(act, future)

    def _answer(self, act: Callable[[Store], object], future: Future[object]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = act(self._opened())
        except BaseException as error:
            if isinstance(error, StoreTimeout):
                self._failed = (time.monotonic(), error)
            future.set_exception(error)
        else:
            self._failed = None
            future.set_result(result)

    def _opened(self) -> Store:
        if self._store is None:
            with self.computing():  # a database library takes long to load on a busy machine
                from wattune.store.sql_store import open_store
            # A little less than the caller waits, so that the store's own error is the one that is shown.
            self._store = open_store(self._url, timeout_s=0.9 * self.wait_s)
        return self._store
