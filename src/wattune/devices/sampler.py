"""A background thread that records a trace of each GPU."""

from __future__ import annotations

import threading
import time

from wattune.core.errors import DeviceError
from wattune.core.reading import Count, Reading, Trace
from wattune.core.refresh import Refresh
from wattune.devices.gpu import Gpu

DEFAULT_INTERVAL_S = 0.02
PATIENCE_S = 0.25
"""Neither the beginning nor the end of a program waits longer for a sample, whatever the driver takes."""


MOST_SHARE = 0.01
"""Share of one core that sampling may take: with a driver that computes for long, samples are taken less often."""
MEMORY = 50
"""Samples over which their cost is averaged; fewer at the beginning."""


class Sampler:
    """Reads every GPU at an interval and keeps new readings: `with Sampler(gpus) as sampler: ...; sampler.traces`.

    While the energy counter stands still the sensors repeat their old values, which are not read. Counters whose
    next move is known are left alone until then.
    """

    def __init__(self, gpus: tuple[Gpu, ...], *, interval_s: float = DEFAULT_INTERVAL_S) -> None:
        self._gpus = gpus
        self._interval_s = interval_s
        self._readings: list[list[Reading]] = [[] for _ in gpus]
        self._last: list[Count | None] = [None for _ in gpus]
        self._failures: list[DeviceError | None] = [None for _ in gpus]
        self._sample_s = 0.0
        self._begun, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="wattune-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        self._begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        if not self._thread.is_alive() and self._sample_s < PATIENCE_S:
            self._sample()

    @property
    def traces(self) -> tuple[Trace, ...]:
        return tuple(
            Trace(gpu.spec.label, tuple(readings[:])) for gpu, readings in zip(self._gpus, self._readings, strict=True)
        )

    @property
    def failures(self) -> tuple[DeviceError | None, ...]:
        """The error that ended the sampling of each GPU, if any."""
        return tuple(self._failures)

    def _run(self) -> None:
        self._sample()
        self._begun.set()
        # Ticks are counted from the start, so that the cost of reading does not lengthen the interval.
        start_s, ticks, samples, cost_s, cpu_s = time.monotonic(), 0, 0, 0.0, time.thread_time()
        while True:
            ticks = max(ticks + 1, int((time.monotonic() - start_s) / self._interval_s))
            rest_s = cost_s / MOST_SHARE if cost_s > MOST_SHARE * self._interval_s else 0.0
            if self._ended.wait(max(start_s + ticks * self._interval_s - time.monotonic(), rest_s, self._still_s)):
                return
            self._sample()
            samples, before_s, cpu_s = samples + 1, cpu_s, time.thread_time()
            cost_s += (cpu_s - before_s - cost_s) / min(samples, MEMORY)

    @property
    def _still_s(self) -> float:
        """Seconds in which no counter moves; 0 where that is not known of one."""
        pairs = [(gpu.refresh, last) for gpu, last in zip(self._gpus, self._last, strict=True)]
        return min(0.0 if known is None or last is None else known.still_s(last.time_s) for known, last in pairs)

    def _sample(self) -> None:
        begun_s = time.monotonic()
        self._sample_all()
        self._sample_s = time.monotonic() - begun_s

    def _sample_all(self) -> None:
        for index, gpu in enumerate(self._gpus):
            if self._failures[index] is None:
                try:
                    self._read(index, gpu)
                except DeviceError as error:
                    self._failures[index] = error

    def _read(self, index: int, gpu: Gpu) -> None:
        """Add a reading if the counter has moved; reading the counter costs a tenth of a full reading."""
        before, now = self._last[index], gpu.count()
        self._last[index] = now
        if before is not None and now.energy_j == before.energy_j:
            return
        if before is not None:
            gpu.refresh = _renewed(gpu.refresh, before.time_s, now.time_s)
        self._readings[index].append(gpu.read())


def _renewed(refresh: Refresh | None, before_s: float, now_s: float) -> Refresh | None:
    """Return the refresh of a counter that moved between two reads, which show the moment where it was lost since."""
    error_s = (now_s - before_s) / 2
    if refresh is None or refresh.edge_error_s >= refresh.period_s:
        return refresh  # it never was known
    if refresh.is_known(now_s) or error_s >= refresh.period_s / 4:
        return refresh
    return refresh.observed(before_s + error_s, error_s)
