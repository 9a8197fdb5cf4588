"""Progress where a program shows neither steps nor a period: what its GPU gets done, by utilisation or by counters.

Utilisation: busy share × core clock. Exact where kernels take as many cycles at every clock. Kernels that wait for
memory take fewer at a lower clock, and then the slowdown comes out larger than it is: a promise is kept, a saving
missed. A memory clock it cannot judge at all, since a kernel that waits longer for memory is busy all the same.

Counters: share of cycles in which the busiest pipe worked × core clock, which is operations per second. A program does
the same operations at every clock, so that this judges all knobs; programs whose work varies by itself show that as
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot

from wattune.core.reading import Reading
from wattune.tuning.run_pace import steps_pace
from wattune.tuning.run_sight import Pace

UTIL_ERROR = 0.02
"""Relative, at 95 %; estimated: shares are told in whole percents and count kernels that run, not how much of them."""
COUNTER_ERROR = 0.01
"""Relative, at 95 %; estimated."""
UTIL_KNOBS = frozenset(("sm_clock", "power_limit"))
"""A power limit acts through the core clock that is read."""
PIPES = ("tensor", "fp16", "fp32", "fp64", "integer")
_LEAST_SHARE = 0.01
_KEPT, _APART_S = 2_000, 0.2
"""Instants that are kept, and how far apart: the last seven minutes."""
_LONGEST_GAP_S = 5.0
"""Over a longer gap between readings nothing is assumed: the work of that time is unknown."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Work added up over time: at each time how much was done since the beginning."""

    source: str
    floor: float
    """What the pace may be off beyond its scatter, relative."""
    times_s: tuple[float, ...] = ()
    done: tuple[float, ...] = ()
    rate: float | None = None

    def add(self, time_s: float, rate: float | None) -> WorkDone:
        """With the rate at one more instant; the work up to there is at the mean of this rate and the one before."""
        if rate is None or (self.times_s and time_s <= self.times_s[-1]):
            return self
        if not self.times_s or self.rate is None:
            return replace(self, times_s=(time_s,), done=(0.0,), rate=rate)
        passed_s = time_s - self.times_s[-1]
        if passed_s > _LONGEST_GAP_S:
            return replace(self, times_s=(time_s,), done=(0.0,), rate=rate)
        done = self.done[-1] + passed_s * (rate + self.rate) / 2
        crowded = len(self.times_s) > 1 and self.times_s[-1] - self.times_s[-2] < _APART_S
        times_s, so_far = (self.times_s[:-1], self.done[:-1]) if crowded else (self.times_s, self.done)
        return replace(self, times_s=(*times_s, time_s)[-_KEPT:], done=(*so_far, done)[-_KEPT:], rate=rate)

    def between(self, start_s: float, end_s: float) -> Pace | None:
        """Seconds for a unit of work between two instants; None where too little was done or seen."""
        inside = [place for place, time_s in enumerate(self.times_s) if start_s <= time_s <= end_s]
        if len(inside) < 2:
            return None
        times_s = [self.times_s[place] for place in inside]
        done = [self.done[place] for place in inside]
        if done[-1] - done[0] < _LEAST_SHARE * (times_s[-1] - times_s[0]):
            return None
        pace = steps_pace(times_s, done)
        if pace is None:
            return None
        error_s = None if pace.error_s is None else hypot(pace.error_s, self.floor * pace.pace_s)
        return Pace(pace.pace_s, error_s, self.source)


def busy_rate(reading: Reading, *, top_mhz: float) -> float | None:
    """Work per second by utilisation, in seconds of a busy GPU at its highest clock; None where a part is not told."""
    if reading.sm_util is None or reading.sm_mhz is None or top_mhz <= 0:
        return None
    return reading.sm_util * reading.sm_mhz / top_mhz


def busiest_pipe(counters: Mapping[str, float]) -> str | None:
    """The pipe whose work stands for the program's: chosen once a run, since paces of two pipes do not compare."""
    told = {name: counters[name] for name in PIPES if counters.get(name, 0.0) >= _LEAST_SHARE}
    return max(told, key=lambda name: told[name]) if told else None


def counter_rate(counters: Mapping[str, float], reading: Reading, *, pipe: str, top_mhz: float) -> float | None:
    """Work per second by one pipe, in seconds of that pipe at the highest clock; None where a part is not told."""
    share = counters.get(pipe)
    if share is None or reading.sm_mhz is None or top_mhz <= 0:
        return None
    return share * reading.sm_mhz / top_mhz
