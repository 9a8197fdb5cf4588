"""An energy counter made of power samples, for parts that have none."""

from __future__ import annotations

import threading
from collections.abc import Callable

from wattune.core.errors import DeviceError
from wattune.core.reading import Count


class IntegratedPower:
    """Adds up power in a background thread, from the first count on; between samples the last power is held."""

    def __init__(self, watts: Callable[[], float], clock: Callable[[], float], *, period_s: float) -> None:
        self._watts = watts
        self._clock = clock
        self._period_s = period_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: tuple[float, float, float] | None = None  # time_s, energy_j, power_w
        self._failure: DeviceError | None = None

    def count(self) -> Count:
        """The energy so far, counted from the first call."""
        with self._lock:
            if self._thread is None:
                self._start()
            if self._failure is not None:
                raise self._failure
            time_s, energy_j, power_w = self._step(self._clock(), None)
            self._last = (time_s, energy_j, power_w)
            return Count(time_s, energy_j)

    def stop(self) -> None:
        """Nothing; the thread has ended."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        self._last = (self._clock(), 0.0, self._watts())
        self._thread = threading.Thread(target=self._sample, name="wattune-integrator", daemon=True)
        self._thread.start()

    def _step(self, now_s: float, power_w: float | None) -> tuple[float, float, float]:
        """The sum carried to `now_s`: by the mean of old and new power, or by the old alone where no new is given."""
        if self._last is None:
            raise RuntimeError("the integrator was not started")
        time_s, energy_j, before_w = self._last
        mean_w = before_w if power_w is None else (before_w + power_w) / 2
        return now_s, energy_j + max(now_s - time_s, 0.0) * mean_w, before_w if power_w is None else power_w

    def _sample(self) -> None:
        while not self._ended.wait(self._period_s):
            try:
                power_w = self._watts()
            except DeviceError as error:
                with self._lock:
                    self._failure = error
                return
            with self._lock:
                self._last = self._step(self._clock(), power_w)
