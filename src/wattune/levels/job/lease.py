"""A thread that tells the store now and then that a run is still alive, however long its epochs are."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

PULSES = 3
"""Renewals within one lease: two may fail, and the run is still not taken for lost."""


class LeaseKeeper:
    """Renews a lease in the background until it is stopped or `renew` says that there is none any more."""

    def __init__(self, renew: Callable[[], bool], *, lease_s: float) -> None:
        self._renew, self._pause_s = renew, lease_s / PULSES
        self._ended = Event()
        self._thread = Thread(target=self._keep, name="wattune-lease", daemon=True)

    def start(self) -> None:
        """Nothing; the lease is being kept."""
        self._thread.start()

    def stop(self) -> None:
        """Nothing; the lease is not renewed any more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        while not self._ended.wait(self._pause_s):
            if not self._renew():
                return
