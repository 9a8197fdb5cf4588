"""Reads the GPUs of one program as one: where their counters move, and without impossible values.

A reading costs more than a poll of a counter. So the counter of the first GPU is polled, and all are read when it has
moved, or when it stands still for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from wattune.control.counter_edges import SHARP_S, CounterEdges
from wattune.control.state import NOTHING, as_one, between
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading
from wattune.devices.gpu import Gpu, restarts_within
from wattune.signals.readings import IdleWatch, Sanity

STILL_S = 1.0
"""The GPU is read after this long even if its counter has not moved."""
LATE_S = 0.15
"""A tick that comes so much later than it was asked for read the counter at an unknown time after its refresh, which
errs by a tenth of a second on most GPUs."""


class ProgramGpus:
    """The GPUs of one program, and their readings."""

    def __init__(self, gpus: Sequence[Gpu], *, on_late: Callable[[float], None]) -> None:
        """`on_late` is called with the GPU's time where a poll came late, since the host was busy."""
        self.gpus, self._on_late = tuple(gpus), on_late
        self.idle = IdleWatch()
        self.took_s = 0.0
        """How long the last reading took."""
        self.late_ticks = 0
        """Number of polls that came late."""
        self._edges = [CounterEdges.of(gpu) for gpu in self.gpus]
        self._sanities = [Sanity(_highest_w(gpu)) for gpu in self.gpus]
        self._restarts = [0 for _ in self.gpus]
        self._firsts: tuple[Reading, ...] = ()
        self._fresh: list[Reading] = []
        self._news: list[str] = []
        self._read_s, self._due_s = float("-inf"), float("inf")
        self._cpu_s = 0.0

    @property
    def latest(self) -> tuple[Reading, ...]:
        """The last valid reading of each GPU."""
        return tuple(sanity.last for sanity in self._sanities if sanity.last is not None)

    @property
    def newest(self) -> Reading | None:
        """The last reading that was not taken yet."""
        return self._fresh[-1] if self._fresh else None

    @property
    def is_at_edge(self) -> bool:
        """Whether the last reading is as exact as can be."""
        return self._edges[0].is_sharp and all(one.error_s <= SHARP_S for one in self._edges)

    def is_close(self, *, is_due: bool) -> bool:
        """Return whether the counters are polled closely now: where a move is due to be known, or their age is not."""
        return is_due or any(one.is_doubtful for one in self._edges)

    def wait_s(self, *, is_due: bool, rest_s: float) -> float:
        """Return the time until the next poll: `rest_s` at least, unless a move of a counter is needed exactly."""
        closely = self.is_close(is_due=is_due)
        waits_s = [one.wait_s(closely=closely, rest_s=rest_s) for one in self._edges]
        return min(waits_s) if closely else waits_s[0]

    def sample(self, *, is_due: bool, rest_s: float, always: bool = False) -> float:
        """Read what is new and return the GPU's time; DeviceError where a GPU does not answer."""
        begun_s, begun_cpu_s = time.monotonic(), time.thread_time()
        try:
            count = self._polled(is_due=is_due)
            if count.time_s > self._due_s + LATE_S:
                self.late_ticks += 1
                self._on_late(count.time_s)
            self._due_s = count.time_s + self.wait_s(is_due=is_due, rest_s=rest_s)
            if always or self._edges[0].moved or count.time_s - self._read_s >= STILL_S:
                self._read()
                self._read_s = count.time_s
                self.took_s = time.monotonic() - begun_s
        finally:
            self._cpu_s += time.thread_time() - begun_cpu_s
        return count.time_s

    def take(self) -> tuple[Reading, ...]:
        """Return the readings since the last call, of all GPUs as one."""
        readings, self._fresh = tuple(self._fresh), []
        return readings

    def take_news(self) -> tuple[str, ...]:
        """Return what went wrong with sensors since the last call, in words."""
        news, self._news = tuple(self._news), []
        return news

    def take_cpu_s(self) -> float:
        """Return the CPU time that readings took since the last call."""
        taken_s, self._cpu_s = self._cpu_s, 0.0
        return taken_s

    def spent(self, place: int) -> Measurement:
        """Return time and energy of one GPU up to its last reading."""
        last = self._sanities[place].last
        return NOTHING if not self._firsts or last is None else between(self._firsts[place], last)

    def span(self) -> tuple[Reading, Reading] | None:
        """Return the first and the last reading of all GPUs as one; None before they were read."""
        return (as_one(self._firsts), as_one(self.latest)) if self._firsts and self.latest else None

    def keep(self, places: Sequence[int]) -> None:
        """Read only the GPUs at these places from now on."""
        self.gpus = tuple(self.gpus[place] for place in places)
        self._sanities = [self._sanities[place] for place in places]
        self._restarts = [self._restarts[place] for place in places]
        self._firsts = tuple(self._firsts[place] for place in places if place < len(self._firsts))
        self._edges = [self._edges[place] for place in places]
        self._fresh = []

    def begin(self) -> None:
        """Begin again: what was read until now does not count."""
        self._firsts, self.idle = (), IdleWatch()

    def _polled(self, *, is_due: bool) -> Count:
        """Poll the counters and return that of the first GPU; those of the others only where they are needed."""
        first = self.gpus[0].count()
        self._edges[0] = self._edges[0].polled(first)
        if self._edges[0].moved or self.is_close(is_due=is_due):
            for place, gpu in enumerate(self.gpus[1:], start=1):
                self._edges[place] = self._edges[place].polled(gpu.count())
        return first

    def _read(self) -> None:
        """Read each GPU and drop impossible values; the energy is that of the counter at the time of its last move."""
        clean: list[Reading] = []
        for place, gpu in enumerate(self.gpus):
            self._sanities[place], reading = self._sanities[place].add(self._edges[place].exact(gpu.read()))
            self._news.extend(self._sanities[place].news)
            self._notice_restarts(place, gpu)
            if reading is not None:
                clean.append(reading)
        if len(clean) == len(self.gpus):
            self._firsts = self._firsts or tuple(clean)
            one = as_one(clean)
            self._fresh.append(one)
            self.idle = self.idle.add(one)

    def _notice_restarts(self, place: int, gpu: Gpu) -> None:
        """Note each restart of a counter; windows go on, since the GPU continues its count."""
        found = restarts_within(gpu, float("-inf"), float("inf"))
        for restart in found[self._restarts[place] :]:
            missing_s = restart.after_s - restart.before_s
            self._news.append(f"the energy counter started again from zero; up to {missing_s:.3g} s are missing")
        self._restarts[place] = len(found)


def _highest_w(gpu: Gpu) -> float | None:
    limits = gpu.spec.power_limits
    return None if limits is None else limits.max_w
