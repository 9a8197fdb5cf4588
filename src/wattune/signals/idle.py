"""Decide whether a program works, works in bursts, or is idle, one reading at a time.

Work resumes after a pause, and is slow until lowered clocks are raised again. So a pause counts as idle only once it is
several times as long as the longest pause of the program so far, and never before ten seconds; a pause that ended in
work is remembered. Work counts from the first reading that shows it.

While a program is idle, the clocks are given back to the driver, which lowers them by itself and raises them within
milliseconds. A locked low clock would slow down the work after a pause until it is unlocked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, isfinite

from wattune.core.reading import Reading

LEAST_IDLE_S = 10.0
"""The least idle time: loading an epoch's data or writing a checkpoint takes seconds."""
_TIMES = 4.0
"""A pause this many times the longest one so far counts as idle."""
_FORGET_S = 1800.0
"""Time constant with which the memory of pauses fades."""
_LEAST_PAUSE_S = 0.5
"""Shorter gaps are part of a step: a driver's utilisation covers up to a second."""
_BURSTS = 3
"""Pauses after which a program counts as bursty."""
_BUSY_UTIL = 0.005
"""Utilisation is reported in whole percents."""
_BUSY_POWER = 0.15
"""Share of the way from the least to the most power above which something runs, where utilisation is unknown."""
_LEAST_CONTRAST = 1.3
"""Most over least power below which power does not distinguish work from idle."""


class Activity(StrEnum):
    """What a program does."""

    UNKNOWN = "unknown"
    WORKING = "working"
    BURSTY = "bursty"
    """It works and pauses in turn; its clocks are not given back in the pauses."""
    IDLE = "idle"
    """It pauses for longer than its own pauses explain."""


@dataclass(frozen=True, slots=True)
class IdleWatch:
    """The pauses of a program so far."""

    last_s: float | None = None
    busy_since_s: float | None = None
    paused_since_s: float | None = None
    longest_s: float = 0.0
    """The longest pause, faded by the time since."""
    pauses: float = 0.0
    """How many there were, faded in the same way."""
    worked: bool = False
    low_w: float | None = None
    high_w: float | None = None

    @property
    def idle_after_s(self) -> float:
        """How long a pause has to last to count as idle."""
        return max(LEAST_IDLE_S, _TIMES * self.longest_s)

    @property
    def pause_s(self) -> float:
        """Length of the present pause."""
        if self.paused_since_s is None or self.last_s is None:
            return 0.0
        return self.last_s - self.paused_since_s

    @property
    def activity(self) -> Activity:
        if self.last_s is None or (self.busy_since_s is None and self.paused_since_s is None):
            return Activity.UNKNOWN
        if self.paused_since_s is not None and (self.pause_s >= self.idle_after_s):
            return Activity.IDLE
        if self.pauses >= _BURSTS:
            return Activity.BURSTY
        return Activity.WORKING if self.worked else Activity.UNKNOWN

    def add(self, reading: Reading) -> IdleWatch:
        """Take in one more reading; one without utilisation and power changes nothing."""
        watch = self._powers(reading.power_w)
        busy = watch._is_busy(reading)
        if busy is None or not isfinite(reading.time_s) or (self.last_s is not None and reading.time_s < self.last_s):
            return watch
        watch = watch._faded(reading.time_s)
        return watch._worked(reading.time_s) if busy else watch._paused(reading.time_s)

    def _powers(self, power_w: float | None) -> IdleWatch:
        if power_w is None or not isfinite(power_w) or power_w <= 0:
            return self
        low_w = power_w if self.low_w is None else min(self.low_w, power_w)
        high_w = power_w if self.high_w is None else max(self.high_w, power_w)
        return replace(self, low_w=low_w, high_w=high_w)

    def _is_busy(self, reading: Reading) -> bool | None:
        if reading.sm_util is not None and 0 <= reading.sm_util <= 1:
            return reading.sm_util > _BUSY_UTIL
        if reading.power_w is None or self.low_w is None or self.high_w is None:
            return None
        if self.high_w < _LEAST_CONTRAST * self.low_w:
            return None
        return reading.power_w > self.low_w + _BUSY_POWER * (self.high_w - self.low_w)

    def _faded(self, now_s: float) -> IdleWatch:
        if self.last_s is None:
            return replace(self, last_s=now_s)
        kept = exp(-(now_s - self.last_s) / _FORGET_S)
        return replace(self, last_s=now_s, longest_s=kept * self.longest_s, pauses=kept * self.pauses)

    def _worked(self, now_s: float) -> IdleWatch:
        if self.paused_since_s is None:
            return replace(self, worked=True, busy_since_s=now_s if self.busy_since_s is None else self.busy_since_s)
        pause_s = now_s - self.paused_since_s
        back = replace(self, worked=True, busy_since_s=now_s, paused_since_s=None)
        # Time before the first work is start-up and no pause.
        if pause_s < _LEAST_PAUSE_S or not self.worked:
            return back
        return replace(back, longest_s=max(self.longest_s, pause_s), pauses=self.pauses + 1)

    def _paused(self, now_s: float) -> IdleWatch:
        if self.paused_since_s is not None:
            return self
        return replace(self, paused_since_s=now_s, busy_since_s=None)
