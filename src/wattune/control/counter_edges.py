"""When an energy counter moves, found by polling it: a reading is exact at the moment of its last move, and not later.

A counter stands still between two refreshes. Near a move that somebody needs, such as an end of a window, it is polled
every millisecond, so that the move is known to about as much; in between, the known period (`core.refresh`) shows how
old a value is, and one poll for each refresh is enough. A poll that comes late, on a busy machine, has a wider error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import ceil

from wattune.core.reading import Count, CountedReading, Reading
from wattune.core.refresh import READ_S, UNKNOWN_PERIOD_S, Refresh
from wattune.devices.gpu import Gpu

FINE_S = 0.001
"""Between two polls near a move; the scheduler of a quiet machine adds a tenth of it."""
SHARP_S = 0.002
"""Error of a move that is known well enough for the end of a window."""
POLL_S = 0.02
"""Between two polls of a counter whose refresh is not known yet, and that is not needed exactly."""
FAST_S = 0.005
"""A counter that moves this often is always fresh."""
STILL = 5.0
"""A counter that has not moved for so many refreshes is not polled closely any more: it may have stopped."""
DOUBT_S = 2 * SHARP_S
"""Error of the age of a value from which the counter is watched again. Two moves far apart give a more exact period, so
that this is ever less often."""


@dataclass(frozen=True, slots=True)
class CounterEdges:
    """The polls of one counter so far, and the time at which its present value was exact."""

    nominal_s: float | None = None
    """The refresh period of the GPU model, where it is known."""
    refresh: Refresh | None = None
    last: Count | None = None
    edge_s: float = 0.0
    """When the present value was exact."""
    error_s: float = float("inf")
    """Half-width of the interval in which that lies."""
    moved: bool = False
    """True where the last poll found another value than the one before."""
    is_fast: bool = False
    """True for a counter that moves at every poll."""

    @classmethod
    def of(cls, gpu: Gpu) -> CounterEdges:
        """Begin with what is known of the counter of a GPU."""
        refresh = gpu.refresh
        is_known = refresh is not None and refresh.period_s > FAST_S
        return cls(gpu.spec.sensors.counter_period_s, refresh if is_known else None)

    def polled(self, count: Count) -> CounterEdges:
        """Return the state after one more poll."""
        before = self.last
        if before is None:
            return replace(self, last=count, edge_s=count.time_s, error_s=self.period_s)
        if count.energy_j == before.energy_j:
            return replace(self, last=count, moved=False)
        gap_s = count.time_s - before.time_s
        half_s = min(gap_s + READ_S, self.period_s) / 2
        seen = replace(self, last=count, moved=True, edge_s=count.time_s - half_s, error_s=half_s)
        if self.moved and gap_s <= FAST_S:
            return replace(seen, is_fast=True)
        if self.is_fast:
            return seen
        return seen._learned(self) if self.refresh is None else seen._placed(gap_s, self.refresh)

    def _learned(self, before: CounterEdges) -> CounterEdges:
        """Take the refresh from two moves in a row that were both seen closely."""
        if max(self.error_s, before.error_s) > SHARP_S or self.edge_s - before.edge_s <= FAST_S:
            return self
        apart_s, error_s = self.edge_s - before.edge_s, self.error_s + before.error_s
        refreshes = max(round(apart_s / self.nominal_s), 1) if self.nominal_s else 1
        refresh = Refresh(apart_s / refreshes, self.edge_s, error_s / refreshes, self.error_s)
        return replace(self, refresh=refresh)

    def _placed(self, gap_s: float, refresh: Refresh) -> CounterEdges:
        """Take the time of the move from the refresh where that is surer, and the refresh from the move."""
        assert self.last is not None
        age_s, error_s = refresh.age_s(self.last.time_s), refresh.age_error_s(self.last.time_s)
        expected = gap_s > refresh.period_s or age_s <= gap_s + error_s
        if gap_s < refresh.period_s and (self.error_s <= SHARP_S or not expected):
            return replace(self, refresh=refresh.observed(self.edge_s, self.error_s))
        if refresh.is_blind(self.last.time_s) or error_s >= self.error_s:
            return self
        return replace(self, edge_s=self.last.time_s - age_s, error_s=error_s)

    def exact(self, reading: Reading) -> Reading:
        """Return a reading with the counter's value of the last poll, at the time at which that was exact."""
        if self.last is None or reading.energy_j is None:
            return reading
        still = self._stands_still
        values = {field.name: getattr(reading, field.name) for field in fields(reading)}
        return CountedReading(
            **values | {"energy_j": self.last.energy_j},
            exact_s=reading.time_s if still else self.edge_s,
            exact_error_s=0.0 if still else self.error_s,
        )

    @property
    def period_s(self) -> float:
        return self.refresh.period_s if self.refresh else self.nominal_s or UNKNOWN_PERIOD_S

    @property
    def is_sharp(self) -> bool:
        """Whether the last poll found a move, at a time that is known well."""
        return self.moved and self.error_s <= SHARP_S

    @property
    def is_doubtful(self) -> bool:
        """Whether the counter has to be watched closely, since the age of its values is not known."""
        if self.last is None or self.is_fast or self._stands_still:
            return False
        if self.refresh is None:
            return True
        return self.refresh.age_error_s(self.last.time_s) > min(DOUBT_S, self.refresh.period_s / 4)

    @property
    def _stands_still(self) -> bool:
        return self.last is not None and self.last.time_s - self.edge_s > STILL * max(self.period_s, POLL_S)

    def wait_s(self, *, closely: bool, rest_s: float = 0.0) -> float:
        """Return the time until the next poll: close to the next move, or else after it and `rest_s` at least."""
        if self._stands_still:
            return max(POLL_S, rest_s)
        if self.is_fast:
            return FINE_S if closely else max(self.period_s, rest_s)
        if self.refresh is None or self.last is None:
            return FINE_S if closely else max(POLL_S, rest_s)
        age_s, error_s = self.refresh.age_s(self.last.time_s), self.refresh.age_error_s(self.last.time_s)
        left_s, doubt_s = self.refresh.period_s - age_s, error_s + FINE_S
        if closely:
            # A move that is due at about now has not come yet.
            return FINE_S if age_s <= doubt_s and not self.moved else max(left_s - doubt_s, FINE_S)
        return left_s + doubt_s + self.refresh.period_s * max(ceil((rest_s - left_s) / self.refresh.period_s), 0)


class PolledCounters:
    """The energy counters of the GPUs of one process, each with the moment at which it moved last."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus = tuple(gpus)
        self._edges = [CounterEdges.of(gpu) for gpu in gpus]

    def poll(self) -> tuple[Count, ...]:
        """Poll each counter, and return the counts as they were read."""
        counts = tuple(gpu.count() for gpu in self._gpus)
        self._edges = [edges.polled(count) for edges, count in zip(self._edges, counts, strict=True)]
        return counts

    @property
    def moved(self) -> bool:
        """Whether the last poll found that the counter of the first GPU has moved."""
        return self._edges[0].moved

    @property
    def readings(self) -> tuple[CountedReading, ...]:
        """The values of the last poll, each at the moment at which it was exact; none before all have moved."""
        if any(one.error_s > one.period_s / 2 for one in self._edges):
            return ()
        return tuple(
            CountedReading(
                time_s=one.last.time_s, energy_j=one.last.energy_j, exact_s=one.edge_s, exact_error_s=one.error_s
            )
            for one in self._edges
            if one.last is not None
        )

    def wait_s(self, rest_s: float) -> float:
        """Return the time until the next poll: close to a move while these are not known well, or else after one."""
        closely = any(one.is_doubtful for one in self._edges)
        waits_s = [one.wait_s(closely=closely, rest_s=rest_s) for one in self._edges]
        return min(waits_s) if closely else waits_s[0]
