"""Hardware counters of the GPUs of a program, and how fast it works by them where nothing else shows that.

They are read from outside, and show which units a program uses: input of models that predict clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import hypot
from typing import Protocol

from wattune.control.state import StepTime
from wattune.control.step_time import counted_step_time
from wattune.control.window_totals import NO_SUM, working_mhz
from wattune.core.errors import DeviceError
from wattune.core.reading import Reading
from wattune.devices.gpu import Gpu, PlaysWorkloads

COUNTERS = "counters"
COUNTER_ERROR = 0.01
"""Relative, at 95 %; estimated."""
PIPES = ("tensor", "fp16", "fp32", "fp64", "integer")
_LEAST_SHARE = 0.01
_KEPT = 600
"""Most intervals in memory: ten minutes at one a second."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Cumulative work over time, by counters."""

    times_s: tuple[float, ...] = ()
    done: tuple[float, ...] = ()

    def add(self, start_s: float, end_s: float, rate: float | None) -> WorkDone:
        """Add an interval with its rate of work; after a gap the sum starts again."""
        if rate is None or end_s <= start_s:
            return self
        if not self.times_s or start_s > self.times_s[-1]:
            return WorkDone((start_s,), (0.0,)).add(start_s, end_s, rate)
        if end_s <= self.times_s[-1]:
            return self
        done = self.done[-1] + (end_s - self.times_s[-1]) * rate
        return WorkDone((*self.times_s, end_s)[-_KEPT:], (*self.done, done)[-_KEPT:])

    def between(self, start_s: float, end_s: float) -> StepTime | None:
        """Return the seconds for a unit of work between two instants; None where too little was done."""
        inside = [place for place, time_s in enumerate(self.times_s) if start_s <= time_s <= end_s]
        if len(inside) < 2:
            return None
        times_s = [self.times_s[place] for place in inside]
        done = [self.done[place] for place in inside]
        if done[-1] - done[0] < _LEAST_SHARE * (times_s[-1] - times_s[0]):
            return None
        step_time = counted_step_time(times_s, done)
        if step_time is None:
            return None
        error_s = hypot(step_time.error_s or 0.0, COUNTER_ERROR * step_time.step_time_s)
        return replace(step_time, error_s=error_s, source=COUNTERS)


def busiest_pipe(counters: Mapping[str, float]) -> str | None:
    """Return the pipe whose work stands for the program's: chosen once, since rates of two pipes do not compare."""
    found = {name: counters[name] for name in PIPES if counters.get(name, 0.0) >= _LEAST_SHARE}
    return max(found, key=lambda name: found[name]) if found else None


def counter_rate(counters: Mapping[str, float], sm_mhz: float | None, *, pipe: str, top_mhz: float) -> float | None:
    """Return the work per second of a pipe, in seconds of that pipe at the highest clock; None where unknown."""
    share = counters.get(pipe)
    if share is None or sm_mhz is None or top_mhz <= 0:
        return None
    return share * sm_mhz / top_mhz


BETWEEN_S = 1.0
"""Between two readings of counters: a window has several, and they cost more than other readings."""
_COUNTERS_KEPT = 300
"""Most samples in memory: enough for the longest window."""


class CounterReader(Protocol):
    """Reads the counters of one GPU."""

    def read(self) -> Mapping[str, float] | None:
        """Return shares from 0 to 1 by name since the last call that returned some; None where that is too recent."""


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Counters over an interval."""

    start_s: float
    end_s: float
    shares: Mapping[str, float]


class CounterWatch:
    """The counters of the GPUs of one program, as one."""

    def __init__(self, readers: Sequence[CounterReader] = (), *, top_mhz: float = 0.0) -> None:
        """`top_mhz` is the highest core clock of the GPU."""
        self._readers, self._top_mhz = tuple(readers), top_mhz
        self._samples: deque[CounterSample] = deque(maxlen=_COUNTERS_KEPT)
        self._last_s: float | None = None
        self._clocks = NO_SUM
        self._pipe: str | None = None
        self._work = WorkDone()

    def read(self, readings: Sequence[Reading]) -> str | None:
        """Read the counters if due; return the reason if they have failed and are no longer read.

        `readings` are those of the GPUs since the last call.
        """
        for reading in readings:
            self._clocks = self._clocks.add(working_mhz(reading))
        if not self._readers or not readings:
            return None
        now_s = readings[-1].time_s
        if self._last_s is not None and now_s - self._last_s < BETWEEN_S:
            return None
        try:
            found = [reader.read() for reader in self._readers]
        except DeviceError as error:
            self._readers = ()
            return f"counters are no longer read: {error.message}"
        since_s, self._last_s = self._last_s, now_s
        sm_mhz, self._clocks = self._clocks.mean, NO_SUM
        known = [one for one in found if one is not None]
        if since_s is not None and len(known) == len(found):
            self._note(CounterSample(since_s, now_s, _means(known)), sm_mhz)
        return None

    def between(self, start_s: float, end_s: float) -> Mapping[str, float]:
        """Average the shares of the samples between two instants; empty where there are none."""
        inside = [one for one in self._samples if start_s <= one.start_s and one.end_s <= end_s]
        total_s = sum(one.end_s - one.start_s for one in inside)
        if not total_s:
            return {}
        names = frozenset.intersection(*(frozenset(one.shares) for one in inside))
        return {
            name: sum((one.end_s - one.start_s) * one.shares[name] for one in inside) / total_s
            for name in sorted(names)
        }

    def step_time(self, start_s: float, end_s: float) -> StepTime | None:
        """Return the seconds for a unit of counted work between two instants; None where unknown."""
        return self._work.between(start_s, end_s)

    def keep(self, places: Sequence[int]) -> None:
        """Read only the GPUs at these places from now on."""
        self._readers = tuple(reader for place, reader in enumerate(self._readers) if place in places)

    def forget(self) -> None:
        """Start again, since the program has changed and may use another pipe."""
        self._pipe, self._work = None, WorkDone()

    def _note(self, sample: CounterSample, sm_mhz: float | None) -> None:
        self._samples.append(sample)
        if self._pipe is None:
            self._pipe = busiest_pipe(sample.shares)
        if self._pipe is not None:
            rate = counter_rate(sample.shares, sm_mhz, pipe=self._pipe, top_mhz=self._top_mhz)
            self._work = self._work.add(sample.start_s, sample.end_s, rate)


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average over GPUs what all of them report."""
    names = frozenset.intersection(*(frozenset(one) for one in found))
    return {name: sum(one[name] for one in found) / len(found) for name in names}


@contextmanager
def counters_of(gpus: Sequence[Gpu]) -> Iterator[tuple[CounterReader, ...]]:
    """Open the counters of these GPUs until the end of the block; none where one of them has no counters."""
    if any(isinstance(gpu, PlaysWorkloads) for gpu in gpus):
        yield ()  # simulated in this process, and unknown to the driver
        return
    from wattune.devices.nvml.open import opened_counters

    with ExitStack() as stack:
        readers: list[CounterReader] = []
        for gpu in gpus:
            try:
                reader = stack.enter_context(opened_counters(gpu.spec.uuid))
            except DeviceError:
                reader = None
            if reader is None:
                break
            readers.append(reader)
        yield tuple(readers) if len(readers) == len(gpus) else ()
