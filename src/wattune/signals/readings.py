"""Checks of a stream of readings, one at a time: impossible values, and whether the program works or is idle.

An impossible value becomes unknown; no other value takes its place. A problem is reported when it first occurs, and
counted.

| problem | how it is detected |
|---|---|
| invalid | not finite, or negative; a share above 1; a power of zero, which no running GPU draws |
| jump | more power than twice the limit in force or the GPU's highest; an energy counter that rises faster than that |
| reset | a counter lower than before, as after a driver was reloaded: counting continues from there |
| frozen | constant power while counter, utilisation or clock change; a constant counter while power is drawn |
| missing | a sensor that reported before and has not for ten seconds |
| time | a reading older than the one before is dropped |

Work resumes after a pause, and is slow until lowered clocks are raised again. So a pause counts as idle only once it is
several times as long as the longest pause of the program so far, and never before ten seconds; a pause that ended in
work is remembered. Work counts from the first reading that shows it.

While a program is idle, the clocks are given back to the driver, which lowers them by itself and raises them within
milliseconds. A locked low clock would slow down the work after a pause until it is unlocked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import exp, isfinite

from wattune.core.reading import Reading

_JUMP = 2.0
"""Times the highest limit: a GPU can exceed its limit for milliseconds, but not twofold over a whole refresh."""
_COUNTER_SLACK_J = 50.0
"""A counter moves in steps of up to a second on some GPUs."""
_FROZEN_S = 3.0
"""Sensors refresh ten times a second, the slowest show a mean over one second."""
_MISSING_S = 10.0
_LEAST_MOVE = 0.1
"""The least move of counter, utilisation or clock that shows that power cannot have stayed the same."""


@dataclass(frozen=True, slots=True)
class Sanity:
    """The state of one GPU's sensors: `sanity, reading = sanity.add(reading)`; None drops a reading."""

    highest_w: float | None = None
    """The GPU's highest power limit, where it is known."""
    last: Reading | None = None
    """The last reading, cleaned."""
    since: Reading | None = None
    """The first reading with the present power."""
    counted: Reading | None = None
    """The first reading with the present energy counter."""
    counter: Reading | None = None
    """The last reading with an energy counter, cleaned."""
    offset_j: float = 0.0
    """Value of the counter before it was reset."""
    reported_s: Mapping[str, float] = field(default_factory=dict)
    """Time of the last report of each sensor."""
    wrong: Mapping[str, int] = field(default_factory=dict)
    """Number of occurrences of each problem."""
    news: tuple[str, ...] = ()
    """Problems that first occurred in the latest reading."""

    @property
    def words(self) -> tuple[str, ...]:
        """All that was wrong so far, for a report."""
        return tuple(f"{what} ({'once' if n == 1 else f'{n} times'})" for what, n in self.wrong.items())

    def add(self, reading: Reading) -> tuple[Sanity, Reading | None]:
        """Return the state after one more reading, and the reading without impossible values."""
        state = replace(self, news=())
        if not isfinite(reading.time_s) or (self.last is not None and reading.time_s < self.last.time_s):
            return state._note("a reading was older than the one before and is ignored"), None
        state, clean = state._numbers(reading)
        state, clean = state._power_jump(clean)
        state, clean = state._counter(clean)
        state, clean = state._frozen_power(clean)
        state, clean = state._frozen_counter(clean)
        state = state._missing(clean)
        return replace(state, last=clean), clean

    def _note(self, what: str) -> Sanity:
        count = self.wrong.get(what, 0)
        news = self.news if count else (*self.news, what)
        return replace(self, wrong={**self.wrong, what: count + 1}, news=news)

    def _numbers(self, reading: Reading) -> tuple[Sanity, Reading]:
        state, clean = self, reading
        for name, (least, most) in _RANGES.items():
            value = getattr(reading, name)
            if value is not None and not (isfinite(value) and least <= value <= most):
                state = state._note(f"{_WORDS[name]} was impossible and is ignored")
                clean = _without(clean, name)
        return state, clean

    def _most_w(self, reading: Reading) -> float | None:
        known = [limit for limit in (reading.power_limit_w, self.highest_w) if limit]
        return _JUMP * max(known) if known else None

    def _power_jump(self, reading: Reading) -> tuple[Sanity, Reading]:
        most_w = self._most_w(reading)
        if reading.power_w is None or most_w is None or reading.power_w <= most_w:
            return self, reading
        return self._note("a power of more than twice the limit is ignored"), _without(reading, "power_w")

    def _counter(self, reading: Reading) -> tuple[Sanity, Reading]:
        if reading.energy_j is None:
            return self, reading
        energy_j, before = reading.energy_j + self.offset_j, self.counter
        wrong = None if before is None else self._wrong_counter(before, reading, energy_j)
        if wrong is None or before is None or before.energy_j is None:
            clean = replace(reading, energy_j=energy_j)
            return replace(self, counter=clean), clean
        clean = replace(reading, energy_j=before.energy_j)
        moved = replace(self, offset_j=before.energy_j - reading.energy_j, counter=clean)
        return moved._note(wrong), clean

    def _wrong_counter(self, before: Reading, reading: Reading, energy_j: float) -> str | None:
        """Return the problem of a counter after an earlier one, if any."""
        risen_j = energy_j - (before.energy_j or 0.0)
        if risen_j < 0:
            return "the energy counter was reset; counting continues from there"
        most_w = self._most_w(reading)
        # A counter that stood still catches up with the energy since it last moved.
        still_s = before.time_s if self.counted is None else min(self.counted.time_s, before.time_s)
        if most_w is not None and risen_j > most_w * (reading.time_s - still_s) + _COUNTER_SLACK_J:
            return "the energy counter jumped; the jump is ignored"
        return None

    def _frozen_power(self, reading: Reading) -> tuple[Sanity, Reading]:
        if reading.power_w is None:
            return self, reading
        if self.since is None or self.since.power_w != reading.power_w:
            return replace(self, since=reading), reading
        if reading.time_s - self.since.time_s < _FROZEN_S or not _contradicted(self.since, reading):
            return self, reading
        return self._note("the power sensor is frozen: other sensors moved"), _without(reading, "power_w")

    def _frozen_counter(self, reading: Reading) -> tuple[Sanity, Reading]:
        if reading.energy_j is None:
            return self, reading
        if self.counted is None or self.counted.energy_j != reading.energy_j:
            return replace(self, counted=reading), reading
        if reading.time_s - self.counted.time_s < _FROZEN_S or not reading.power_w:
            return self, reading
        return self._note("the energy counter is frozen while power is drawn"), _without(reading, "energy_j")

    def _missing(self, reading: Reading) -> Sanity:
        state = self
        times_s = dict(self.reported_s)
        for name in ("power_w", "energy_j", "sm_util", "sm_mhz"):
            if getattr(reading, name) is not None:
                times_s[name] = reading.time_s
            elif name in times_s and reading.time_s - times_s[name] > _MISSING_S:
                state = state._note(f"{_WORDS[name]} has been missing for more than {_MISSING_S:.0f} s")
        return replace(state, reported_s=times_s)


_LEAST_W = 1e-3
"""A running GPU draws power: some drivers report 0 where they could not measure, in steps of a mW."""
_RANGES = {
    "power_w": (_LEAST_W, 1e5),
    "energy_j": (0.0, 1e15),
    "temperature_c": (0.0, 200.0),
    "sm_mhz": (0, 1e4),
    "mem_mhz": (0, 1e5),
    "sm_util": (0.0, 1.0),
    "mem_util": (0.0, 1.0),
    "power_limit_w": (0.0, 1e5),
}
_WORDS = {
    "power_w": "a power",
    "energy_j": "an energy",
    "temperature_c": "a temperature",
    "sm_mhz": "a core clock",
    "mem_mhz": "a memory clock",
    "sm_util": "a utilisation",
    "mem_util": "a memory utilisation",
    "power_limit_w": "a power limit",
}


def _contradicted(first: Reading, now: Reading) -> bool:
    """Return whether other sensors show that power cannot have stayed the same."""
    if first.energy_j is not None and now.energy_j is not None and first.power_w:
        mean_w = (now.energy_j - first.energy_j) / (now.time_s - first.time_s)
        # If the counter stands still, the counter is what is frozen.
        return mean_w > 0 and abs(mean_w / first.power_w - 1) > 2 * _LEAST_MOVE
    if first.sm_util is not None and now.sm_util is not None and abs(first.sm_util - now.sm_util) > 2 * _LEAST_MOVE:
        return True
    return bool(first.sm_mhz and now.sm_mhz and abs(now.sm_mhz / first.sm_mhz - 1) > _LEAST_MOVE)


def _without(reading: Reading, name: str) -> Reading:
    changes: dict[str, None] = {name: None}
    return replace(reading, **changes)  # type: ignore[arg-type]


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
    """The activity of a program."""

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
    """Number of pauses, faded in the same way."""
    worked: bool = False
    low_w: float | None = None
    high_w: float | None = None

    @property
    def idle_after_s(self) -> float:
        """Least length of a pause that counts as idle."""
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
