"""Whether a program began to do something else, what changed, and by how much: pure, one look at a time.

A *look* is what was seen of one period of a program (or of one step that it reported, or of one second where nothing
repeats): how long it took, its mean power, its mean utilisation. `ChangeWatch` learns what is usual from the first
twenty looks, then adds up what looks are off, upward and downward (Page's cumulative sums). What moves slowly, as
power does while a GPU warms up, is followed and not called a change; how far it went since is among the `drifts`.

A pause is no look at the program: nothing ran. It is passed over, with the look after it, in which work began again.
Whether a pause is a rest is asked elsewhere (`idle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp

from wattune.core.measurement import SIGMAS_95
from wattune.signals.change_channel import KEPT, LEARN, Channel
from wattune.signals.change_threshold import LEAST_SHIFT

PERIOD, POWER, UTIL = "period", "power", "util"
_QUANTITIES = (PERIOD, POWER, UTIL)
_FOLLOW_S = 20.0
"""How fast the reference follows: a GPU warms up with time constants of 20 to 60 s in air."""
_FOLLOW_LOOKS = (20.0, 300.0)
"""Never so fast that ten looks could take a change with them, and never so slow that drift adds up."""
_PER_KELVIN, _MOST_KELVIN = 0.0027, 100.0
"""Share by which total power rises per kelvin: 0.2 to 0.35 % on A100 and H100, by public sweeps."""
_NOTHING_RAN = 0.005
"""Utilisation is told in whole percents, so that less is none."""
_STAGES = 6
"""Earlier stretches that are remembered, to know them again: training, evaluation, a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSample:
    """What was seen of one period, step or second; None for what was not."""

    time_s: float
    period_s: float | None = None
    power_w: float | None = None
    util: float | None = None
    """Share of time in which the GPU was busy, 0 to 1."""
    temperature_c: float | None = None
    """Where it is told, power is compared as it would be at one temperature: a part that warms up draws more."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How far one quantity is off what was usual."""

    change: float
    """A ratio less one for period and power, a difference of shares for utilisation."""
    error: float
    """Half-width of its 95 % interval."""
    certain: bool
    """Whether this quantity changed; otherwise it is given to say that it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A program began to do something else."""

    time_s: float
    """When that was certain."""
    since_s: float
    """When it began, by the same looks."""
    looks: int
    """How many looks it took to be certain."""
    shifts: Mapping[str, Shift]
    """By quantity: period, power, util."""
    back_to_s: float | None = None
    """When a stretch began that looked as it does now, where there was one: what was found then holds again."""

    @property
    def what(self) -> tuple[str, ...]:
        """The quantities that changed."""
        return tuple(name for name, shift in self.shifts.items() if shift.certain)

    @property
    def words(self) -> str:
        """One line for people."""
        parts = [f"{name} {_percent(name, self.shifts[name])}" for name in self.what]
        known = "" if self.back_to_s is None else f", as it was from {self.back_to_s:.1f} s on"
        return f"{', '.join(parts)} since {self.since_s:.1f} s{known}"


@dataclass(frozen=True, slots=True)
class WatchPhase:
    """What a stretch of a run looked like."""

    start_s: float
    levels: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ChangeWatch:
    """What is usual for a program, and what speaks against its still being so."""

    channels: Mapping[str, Channel] = field(default_factory=lambda: _channels(LEAST_SHIFT))
    start_s: float | None = None
    times_s: tuple[float, ...] = ()
    """Of the latest looks."""
    stages: tuple[WatchPhase, ...] = ()
    """Earlier stretches, latest last."""
    change: Change | None = None
    """What the latest look made certain."""
    reference_c: float | None = None
    """The temperature at which power is compared: that of the first look that told one."""
    paused: bool = False
    """Whether nothing ran at the latest look."""

    @classmethod
    def of(cls, *, least_shift: float = LEAST_SHIFT) -> ChangeWatch:
        """A watch that has seen nothing, for shifts of this size and more."""
        return cls(_channels(least_shift))

    @property
    def ready(self) -> bool:
        """Whether it knows what is usual, of one quantity at least."""
        return any(channel.usual is not None for channel in self.channels.values())

    @property
    def levels(self) -> Mapping[str, float]:
        """What is usual, by quantity, as far as it was learned."""
        return {name: channel.level for name, channel in self.channels.items() if channel.level is not None}

    @property
    def drifts(self) -> Mapping[str, float]:
        """How far each quantity drifted since it was learned: no change, but a reason to look again once large."""
        return {name: channel.drift for name, channel in self.channels.items() if channel.drift is not None}

    @property
    def slowdown_limits(self) -> Mapping[str, float]:
        """The least shift of each quantity that is found in ten looks on average, at the noise seen so far."""
        return {
            name: channel.usual.threshold.shift for name, channel in self.channels.items() if channel.usual is not None
        }

    def add(self, look: ProgramSample) -> ChangeWatch:
        """The watch after one more look; `change` tells where that made a change certain."""
        pauses = look.util is not None and 0 <= look.util < _NOTHING_RAN
        if pauses or self.paused:
            return replace(self, change=None, paused=pauses)
        return self._added(look)

    def _added(self, look: ProgramSample) -> ChangeWatch:
        times_s = (*self.times_s[1 - KEPT :], look.time_s)
        horizon = _horizon(times_s)
        reference_c = look.temperature_c if self.reference_c is None else self.reference_c
        values = (look.period_s, _at(look, reference_c), look.util)
        channels = {
            name: self.channels[name].add(value, horizon=horizon)
            for name, value in zip(_QUANTITIES, values, strict=True)
        }
        start_s = look.time_s if self.start_s is None else self.start_s
        seen = ChangeWatch(channels, start_s, times_s, self.stages, reference_c=reference_c)
        alarms = [alarm.values for channel in channels.values() if (alarm := channel.alarm) is not None]
        return seen._changed(max(alarms)) if alarms else seen

    def resumed(self) -> ChangeWatch:
        """The watch as it goes on after an interruption: what is usual stays, nothing speaks against it.

        For one setting, left and come back to: what was seen in between is not this watch's.
        """
        channels = {name: channel.resumed() for name, channel in self.channels.items()}
        return replace(self, channels=channels, times_s=(), change=None)

    def _changed(self, looks: int) -> ChangeWatch:
        looks = min(looks, len(self.times_s), LEARN - 1)
        shifts = {
            name: shift for name, channel in self.channels.items() if (shift := _shift(channel, looks)) is not None
        }
        since_s = self.times_s[-looks]
        stages = (*self.stages, WatchPhase(self.start_s or 0.0, self.levels))[-_STAGES:]
        change = Change(
            time_s=self.times_s[-1],
            since_s=since_s,
            looks=looks,
            shifts=shifts,
            back_to_s=self._known(shifts),
        )
        channels = {name: channel.relearn(looks) for name, channel in self.channels.items()}
        return ChangeWatch(channels, since_s, self.times_s[-looks:], stages, change, self.reference_c)

    def _known(self, shifts: Mapping[str, Shift]) -> float | None:
        """When the latest of the earlier stretches began that looked as it does now."""
        now = {name: self._moved(name, shift) for name, shift in shifts.items()}
        for stage in reversed(self.stages):
            if all(self._alike(name, now[name], stage, shifts[name].error) for name in now):
                return stage.start_s
        return None

    def _moved(self, name: str, shift: Shift) -> float:
        level = self.levels[name]
        return level + shift.change if name == UTIL else level * (1 + shift.change)

    def _alike(self, name: str, level: float, stage: WatchPhase, error: float) -> bool:
        earlier = stage.levels.get(name)
        if earlier is None:
            return False
        off = level - earlier if name == UTIL else level / earlier - 1
        return abs(off) < max(self.channels[name].least_shift / 2, error)


def add(watch: ChangeWatch, look: ProgramSample) -> ChangeWatch:
    """The watch after one more look: the same as `watch.add(look)`."""
    return watch.add(look)


def _at(look: ProgramSample, reference_c: float | None) -> float | None:
    """The power of a look as it would be at the reference temperature, as far as that is known."""
    if look.power_w is None or look.temperature_c is None or reference_c is None:
        return look.power_w
    warmer_c = look.temperature_c - reference_c
    return look.power_w * exp(-_PER_KELVIN * warmer_c) if abs(warmer_c) < _MOST_KELVIN else look.power_w


def _channels(least_shift: float) -> Mapping[str, Channel]:
    return {name: Channel(least_shift, name == UTIL) for name in _QUANTITIES}


def _horizon(times_s: tuple[float, ...]) -> float:
    """How many looks the reference remembers."""
    low, high = _FOLLOW_LOOKS
    if len(times_s) < 2:
        return low
    step_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1)
    return min(max(_FOLLOW_S / step_s, low), high) if step_s > 0 else high


def _shift(channel: Channel, looks: int) -> Shift | None:
    found = channel.since(looks)
    if found is None or channel.usual is None:
        return None
    off, error = found
    certain = channel.alarm is not None or abs(off) > max(channel.usual.threshold.slack, 3 * error)
    return Shift(channel.gap(off), SIGMAS_95 * error, certain)


def _percent(name: str, shift: Shift) -> str:
    unit = " points" if name == UTIL else " %"
    return f"{100 * shift.change:+.1f}{unit}"
