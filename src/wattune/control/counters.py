"""What the counters of a program's GPUs say of it while it runs: read from outside, where the parts have such counters.

Counters tell two things: what a program uses (models that predict clocks want that), and how fast it works where
neither steps nor a period show it (`progress_rates`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from wattune.control.observation import Pace
from wattune.control.window_totals import NO_SUM, working_mhz
from wattune.control.work_rates import COUNTER_ERROR, WorkDone, busiest_pipe, counter_rate
from wattune.core.errors import DeviceError
from wattune.core.reading import Reading
from wattune.devices.gpu import Gpu

COUNTERS = "counters"
APART_S = 1.0
"""Between two looks at counters: a window has several, and they cost more than a reading."""
_KEPT = 300
"""Looks that are remembered: the longest window."""


class CounterReader(Protocol):
    """Reads the counters of one GPU."""

    def read(self) -> Mapping[str, float] | None:
        """Shares from 0 to 1 by name since the last call that told some; None where that is too short ago."""
        ...


@dataclass(frozen=True, slots=True)
class Counted:
    """What counters told of a stretch."""

    start_s: float
    end_s: float
    shares: Mapping[str, float]


class CounterWatch:
    """The counters of the GPUs of one program, as one."""

    def __init__(self, readers: Sequence[CounterReader] = (), *, top_mhz: float = 0.0) -> None:
        """`top_mhz` is the highest core clock of the part."""
        self._readers, self._top_mhz = tuple(readers), top_mhz
        self._seen: deque[Counted] = deque(maxlen=_KEPT)
        self._last_s: float | None = None
        self._clocks = NO_SUM
        self._pipe: str | None = None
        self._work = WorkDone(COUNTERS, COUNTER_ERROR)

    @property
    def there(self) -> bool:
        """Whether there are counters to read."""
        return bool(self._readers)

    def look(self, readings: Sequence[Reading]) -> str | None:
        """What went wrong, where counters that were read before are no more; otherwise they were looked at if due.

        `readings` are those of the GPUs since the last call.
        """
        for reading in readings:
            self._clocks = self._clocks.add(working_mhz(reading))
        if not self._readers or not readings:
            return None
        now_s = readings[-1].time_s
        if self._last_s is not None and now_s - self._last_s < APART_S:
            return None
        try:
            told = [reader.read() for reader in self._readers]
        except DeviceError as error:
            self._readers = ()
            return f"counters are not read any more: {error.message}"
        since_s, self._last_s = self._last_s, now_s
        sm_mhz, self._clocks = self._clocks.mean, NO_SUM
        known = [one for one in told if one is not None]
        if since_s is not None and len(known) == len(told):
            self._note(Counted(since_s, now_s, _means(known)), sm_mhz)
        return None

    def between(self, start_s: float, end_s: float) -> Mapping[str, float]:
        """Mean shares of the looks that lie between two instants; empty where none does."""
        inside = [one for one in self._seen if start_s <= one.start_s and one.end_s <= end_s]
        total_s = sum(one.end_s - one.start_s for one in inside)
        if not total_s:
            return {}
        names = frozenset.intersection(*(frozenset(one.shares) for one in inside))
        return {
            name: sum((one.end_s - one.start_s) * one.shares[name] for one in inside) / total_s
            for name in sorted(names)
        }

    def pace(self, start_s: float, end_s: float) -> Pace | None:
        """Seconds for a unit of counted work between two instants; None where counters do not tell."""
        return self._work.between(start_s, end_s)

    def keep(self, places: Sequence[int]) -> None:
        """Nothing; from now on only the GPUs at these places are looked at."""
        self._readers = tuple(reader for place, reader in enumerate(self._readers) if place in places)

    def forget(self) -> None:
        """Nothing; what comes from now on is another program, whose work may show elsewhere."""
        self._pipe, self._work = None, WorkDone(COUNTERS, COUNTER_ERROR)

    def _note(self, counted: Counted, sm_mhz: float | None) -> None:
        self._seen.append(counted)
        if self._pipe is None:
            self._pipe = busiest_pipe(counted.shares)
        if self._pipe is not None:
            rate = counter_rate(counted.shares, sm_mhz, pipe=self._pipe, top_mhz=self._top_mhz)
            self._work = self._work.add(counted.start_s, counted.end_s, rate)


def _means(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over GPUs of what all of them tell."""
    names = frozenset.intersection(*(frozenset(one) for one in told))
    return {name: sum(one[name] for one in told) / len(told) for name in names}


@contextmanager
def counters_of(gpus: Sequence[Gpu]) -> Iterator[tuple[CounterReader, ...]]:
    """Readers of the counters of these GPUs until the end of the block; none where one of them has no counters."""
    from wattune.devices.nvml.gpm import opened_counters

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
