"""Whether a program works, works in bursts, or rests: pure, one reading at a time.

A pause ends in work in the end, and whoever lowers clocks in it pays then. So a pause counts as rest only once it is
several times as long as the longest pause that the program was seen to make, and never before ten seconds; a pause that
turned out to be one is remembered. Work counts from the first reading that shows it: nothing waits for a second one.

What to do in a rest: hand the clocks back to the driver, which lowers them by itself and raises them within
milliseconds. A low clock that is locked has to be undone by us, and the work after a pause pays until it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, isfinite

from wattune.core.reading import Reading

LEAST_REST_S = 10.0
"""No pause is a rest before: loading an epoch's data or writing a checkpoint takes seconds."""
_TIMES = 4.0
"""A pause this many times the longest one seen is of another kind."""
_FORGET_S = 1800.0
"""In half an hour without such a pause, what it taught fades to a third."""
_LEAST_PAUSE_S = 0.5
"""Shorter gaps are part of a step: a driver's utilisation covers up to a second."""
_BURSTS = 3
"""Pauses after which a program is one that works in bursts."""
_BUSY_UTIL = 0.005
"""Utilisation is told in whole percents."""
_BUSY_POWER = 0.15
"""Of the way from the least to the most power seen: above it something runs, where utilisation is not told."""
_TELLING_POWER = 1.3
"""Most over least power seen, below which power does not tell work from rest."""


class Activity(StrEnum):
    """What a program is doing."""

    UNKNOWN = "unknown"
    WORKING = "working"
    BURSTY = "bursty"
    """It works and pauses by turns; its clocks are not given back in the pauses."""
    IDLE = "idle"
    """It rests: longer than its own pauses explain."""


@dataclass(frozen=True, slots=True)
class IdleWatch:
    """What is known of a program's pauses."""

    last_s: float | None = None
    busy_since_s: float | None = None
    paused_since_s: float | None = None
    longest_s: float = 0.0
    """The longest pause seen, faded by the time since."""
    pauses: float = 0.0
    """How many there were, faded alike."""
    worked: bool = False
    low_w: float | None = None
    high_w: float | None = None

    @property
    def rest_after_s(self) -> float:
        """How long a pause has to last to count as rest."""
        return max(LEAST_REST_S, _TIMES * self.longest_s)

    @property
    def pause_s(self) -> float:
        """How long the present pause has lasted."""
        if self.paused_since_s is None or self.last_s is None:
            return 0.0
        return self.last_s - self.paused_since_s

    @property
    def activity(self) -> Activity:
        """What the program is doing now."""
        if self.last_s is None or (self.busy_since_s is None and self.paused_since_s is None):
            return Activity.UNKNOWN
        if self.paused_since_s is not None and (self.pause_s >= self.rest_after_s):
            return Activity.IDLE
        if self.pauses >= _BURSTS:
            return Activity.BURSTY
        return Activity.WORKING if self.worked else Activity.UNKNOWN

    def add(self, reading: Reading) -> IdleWatch:
        """The watch after one more reading; one that tells neither utilisation nor power leaves it as it is."""
        seen = self._powers(reading.power_w)
        busy = seen._is_busy(reading)
        if busy is None or not isfinite(reading.time_s) or (self.last_s is not None and reading.time_s < self.last_s):
            return seen
        seen = seen._faded(reading.time_s)
        return seen._worked(reading.time_s) if busy else seen._paused(reading.time_s)

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
        if self.high_w < _TELLING_POWER * self.low_w:
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
        # What came before the first work is start-up and no pause.
        if pause_s < _LEAST_PAUSE_S or not self.worked:
            return back
        return replace(back, longest_s=max(self.longest_s, pause_s), pauses=self.pauses + 1)

    def _paused(self, now_s: float) -> IdleWatch:
        if self.paused_since_s is not None:
            return self
        return replace(self, paused_since_s=now_s, busy_since_s=None)
