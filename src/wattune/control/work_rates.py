"""Progress where a program shows neither steps nor a period: what its GPU gets done, by its counters.

Share of cycles in which the busiest pipe worked × core clock, which is operations per second. A program does the same
operations at every clock, so that this judges all knobs; programs whose work varies by itself show that as error.
Where there are no counters either, a policy has utilisation, which it weighs by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot

from wattune.control.observation import Pace
from wattune.control.step_time import steps_pace

COUNTER_ERROR = 0.01
"""Relative, at 95 %; estimated."""
PIPES = ("tensor", "fp16", "fp32", "fp64", "integer")
_LEAST_SHARE = 0.01
_KEPT = 600
"""Stretches that are kept: ten minutes of one a second."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Work added up over time: at each time how much was done since the beginning."""

    source: str
    floor: float
    """What the pace may be off beyond its scatter, relative."""
    times_s: tuple[float, ...] = ()
    done: tuple[float, ...] = ()

    def add(self, start_s: float, end_s: float, rate: float | None) -> WorkDone:
        """With one more stretch, in which so much was done a second; what is not next to the last begins anew."""
        if rate is None or end_s <= start_s:
            return self
        if not self.times_s or start_s > self.times_s[-1]:
            begun = replace(self, times_s=(start_s,), done=(0.0,))
            return begun.add(start_s, end_s, rate)
        if end_s <= self.times_s[-1]:
            return self
        done = self.done[-1] + (end_s - self.times_s[-1]) * rate
        return replace(self, times_s=(*self.times_s, end_s)[-_KEPT:], done=(*self.done, done)[-_KEPT:])

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


def busiest_pipe(counters: Mapping[str, float]) -> str | None:
    """The pipe whose work stands for the program's: chosen once a run, since paces of two pipes do not compare."""
    told = {name: counters[name] for name in PIPES if counters.get(name, 0.0) >= _LEAST_SHARE}
    return max(told, key=lambda name: told[name]) if told else None


def counter_rate(counters: Mapping[str, float], sm_mhz: float | None, *, pipe: str, top_mhz: float) -> float | None:
    """Work per second by one pipe, in seconds of that pipe at the highest clock; None where a part is not told."""
    share = counters.get(pipe)
    if share is None or sm_mhz is None or top_mhz <= 0:
        return None
    return share * sm_mhz / top_mhz
