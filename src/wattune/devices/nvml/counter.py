"""The energy counter of a GPU: the driver's own, which may restart, or power that is added up."""

from __future__ import annotations

import threading
from collections.abc import Callable

from wattune.core.errors import DeviceError
from wattune.core.reading import Count, Restart

JOIN_S = 1.0
"""Longest wait for a thread that may be inside a driver call at the end of a program."""


class EnergyCounter:
    """The driver's counter as one that only rises.

    The driver's counter starts from zero after a reset of the GPU and when the driver is loaded again. Counting then
    continues from the last value; what was spent between the last count and the restart is missing. A restart is seen
    by the first count below the last one, so one that overtakes the last count meanwhile goes unnoticed.
    """

    def __init__(self, millijoules: Callable[[], int], clock: Callable[[], float]) -> None:
        self._millijoules, self._clock = millijoules, clock
        self._lock = threading.Lock()
        self.restarts: tuple[Restart, ...] = ()
        self.on_restart: Callable[[Restart], None] = lambda _: None
        self.count = self._counting()

    def _counting(self) -> Callable[[], Count]:
        """Return the function that counts: a closure, since spans call it on the hot path of user code."""
        millijoules, clock, new = self._millijoules, self._clock, tuple.__new__
        last_mj, last_s, offset_j = 0, clock(), 0.0

        def count() -> Count:
            nonlocal last_mj, last_s
            now_mj = millijoules()
            if now_mj < last_mj:
                now_mj = again()
            last_mj, last_s = now_mj, clock()
            return new(Count, (last_s, now_mj / 1000 + offset_j))

        def again() -> int:
            """Read once more, since another thread may have counted after this one; a lower value is a restart."""
            nonlocal last_mj, offset_j
            with self._lock:
                before_mj, now_mj = last_mj, millijoules()
                if now_mj < before_mj:
                    offset_j += before_mj / 1000
                    last_mj = now_mj
                    self._note(Restart(last_s, clock()))
                return now_mj

        return count

    def _note(self, restart: Restart) -> None:
        self.restarts = (*self.restarts, restart)
        self.on_restart(restart)


class IntegratedPower:
    """Integrates power in a background thread, from the first count on; between samples the last power is assumed."""

    def __init__(self, watts: Callable[[], float], clock: Callable[[], float], *, period_s: float) -> None:
        self._watts = watts
        self._clock = clock
        self._period_s = period_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._time_s = self._energy_j = self._power_w = 0.0
        self._failure: DeviceError | None = None

    def count(self) -> Count:
        """Return the energy since the first call."""
        with self._lock:
            if self._thread is None:
                self._time_s, self._power_w = self._clock(), self._watts()
                self._thread = threading.Thread(target=self._sample, name="wattune-integrator", daemon=True)
                self._thread.start()
            if self._failure is not None:
                raise self._failure
            self._extend(self._power_w)
            return Count(self._time_s, self._energy_j)

    def fail(self, error: DeviceError) -> None:
        """Let every later count raise an error."""
        self._lock = threading.Lock()  # in a forked child, the thread that may hold the other one is gone
        self._failure = error

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _extend(self, power_w: float) -> None:
        """Extend the integral to now with the mean of old and new power."""
        now_s = self._clock()
        self._energy_j += max(now_s - self._time_s, 0.0) * (self._power_w + power_w) / 2
        self._time_s, self._power_w = now_s, power_w

    def _sample(self) -> None:
        while not self._ended.wait(self._period_s):
            try:
                power_w = self._watts()
            except DeviceError as error:
                with self._lock:
                    self._failure = error
                return
            with self._lock:
                self._extend(power_w)
