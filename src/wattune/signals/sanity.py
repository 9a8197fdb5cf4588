"""Remove impossible values from readings and report the problems, one reading at a time.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from wattune.core.reading import Reading

_JUMP = 2.0
"""Times the highest limit: a GPU can exceed its limit for milliseconds, but not twofold over a whole refresh."""
_COUNTER_SLACK_J = 50.0
"""A counter moves in steps of up to a second on some GPUs."""
_FROZEN_S = 3.0
"""Sensors refresh ten times a second, the slowest show a mean over one second."""
_MISSING_S = 10.0
_LEAST_MOVE = 0.1
"""How far the counter, utilisation or clock must move to show that power cannot have stayed the same."""


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
    """What the counter had reached before it was reset."""
    reported_s: Mapping[str, float] = field(default_factory=dict)
    """When each sensor last reported."""
    wrong: Mapping[str, int] = field(default_factory=dict)
    """How often each problem occurred."""
    news: tuple[str, ...] = ()
    """Problems that first occurred in the latest reading."""

    @property
    def words(self) -> tuple[str, ...]:
        """All that was wrong so far, for a report."""
        return tuple(f"{what} ({_times(count)})" for what, count in self.wrong.items())

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


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
