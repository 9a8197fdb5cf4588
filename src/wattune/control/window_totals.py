"""What the readings of a window add up to, one at a time, so that none of them need be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt

from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Throttle
from wattune.core.setting import Setting

POLL_S = 0.02
"""A move of the counter is seen so late at most; what that leaves open at both ends of a window is 0.8 of it."""
_REST = 0.95
"""Share of a refresh in which nobody looks. Less than 1, because a look comes late by what computers are late by: so
looks creep towards the move, until one comes too early and the next sees it fresh."""
_FORGET = 1.02
"""By so much what was learned of a refresh grows from move to move: one that slows down is followed."""


@dataclass(frozen=True, slots=True)
class Polling:
    """How often a counter moves, as the part tells or as was seen, and whether it just did."""

    told_s: float | None = None
    """The refresh of the counter, where the part is known to have one."""
    learned_s: float | None = None
    moved_s: float | None = None
    moved: bool = False

    def looked(self, time_s: float, *, moved: bool) -> Polling:
        """After one more look."""
        if not moved:
            return replace(self, moved=False)
        learned_s = self.learned_s
        if self.moved_s is not None:
            gap_s = time_s - self.moved_s
            learned_s = gap_s if learned_s is None else min(gap_s, _FORGET * learned_s)
        return replace(self, learned_s=learned_s, moved_s=time_s, moved=True)

    @property
    def wait_s(self) -> float:
        """How long to wait until the next look: a counter that moved does not move again before its next refresh."""
        refresh_s = self.learned_s if self.told_s is None else self.told_s
        if not self.moved or refresh_s is None:
            return POLL_S
        return max(POLL_S, _REST * refresh_s)


CLOCK_SLACK = 0.02
"""Share by which a clock that holds may read otherwise: drivers round to steps of 15 MHz and read it on the way."""
LIMIT_SLACK_W = 2.0
"""Firmware rounds limits to whole watts."""

_EXCUSES = Throttle.IDLE | Throttle.POWER_CAP | Throttle.THERMAL | Throttle.HARDWARE | Throttle.OTHER


def is_held(setting: Setting, reading: Reading) -> bool:
    """Whether a reading agrees with a setting; what the GPU does not tell agrees."""
    return complaint(setting, reading) is None


def complaint(setting: Setting, reading: Reading) -> str | None:
    """What a reading says against a setting, in words; None where it agrees."""
    parts = (
        _clock("core clock", setting.sm_mhz, reading.sm_mhz, reading.throttle),
        _clock("memory clock", setting.mem_mhz, reading.mem_mhz, reading.throttle),
        _limit(setting.power_limit_w, reading.power_limit_w),
    )
    told = [part for part in parts if part is not None]
    return "; ".join(told) or None


def _clock(name: str, asked_mhz: int | None, seen_mhz: int | None, throttle: Throttle | None) -> str | None:
    if asked_mhz is None or seen_mhz is None:
        return None
    if abs(seen_mhz - asked_mhz) <= CLOCK_SLACK * asked_mhz:
        return None
    if seen_mhz < asked_mhz and (throttle is None or throttle & _EXCUSES):
        return None
    reason = "" if throttle is None or not throttle.words else f" ({', '.join(throttle.words)})"
    return f"{name} of {asked_mhz} MHz was asked for and {seen_mhz} MHz holds{reason}"


def _limit(asked_w: float | None, seen_w: float | None) -> str | None:
    if asked_w is None or seen_w is None or abs(seen_w - asked_w) <= LIMIT_SLACK_W:
        return None
    return f"power limit of {asked_w:g} W was asked for and {seen_w:g} W holds"


T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18)
"""Student's 97.5 % quantiles for 1 to 12 degrees of freedom."""


def mean_error(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the mean of independent values; None of fewer than two."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / (len(values) - 1)
    return T_95[min(len(values) - 1, len(T_95)) - 1] * sqrt(variance / len(values))


COUNTER_ERROR = 0.002
"""Share by which the energy of a window is off beyond the refresh of its counter, at 95 %: how far two counters of one
part disagree on public record is up to ten times that, but it is the same at every setting."""
MOSTLY = 0.9
"""Share of the readings of a window that must agree with its setting."""


IDLE = 0.005
"""Utilisation up to which a GPU is idle: it is told in whole percents."""
BLOCKS = 16
"""Stretches of a window whose means tell how far its own may be off: enough for an error, and long enough to be
independent of each other."""
BLOCK_S = 0.5
"""How long they are at first; they double as the window grows."""


@dataclass(frozen=True, slots=True)
class RunningSum:
    """Values that are sometimes missing."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> RunningSum:
        """With one more value."""
        return self if value is None else RunningSum(self.total + value, self.count + 1)

    def joined(self, other: RunningSum) -> RunningSum:
        """With all values of another."""
        return RunningSum(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> float | None:
        """Their mean; None where there was none."""
        return self.total / self.count if self.count else None


NO_SUM = RunningSum()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Values over time, added up in a few stretches of equal length: what varies slowly is seen to vary."""

    width_s: float = BLOCK_S
    sums: tuple[RunningSum, ...] = ()

    def add(self, age_s: float, value: float | None) -> Blocks:
        """With one more value, so long after the beginning."""
        place = int(age_s / self.width_s)
        if place >= BLOCKS:
            return self._coarser().add(age_s, value)
        sums = (*self.sums, *[NO_SUM] * (place + 1 - len(self.sums)))
        return replace(self, sums=(*sums[:place], sums[place].add(value), *sums[place + 1 :]))

    @property
    def mean(self) -> float | None:
        """The mean of all values; None where there was none."""
        total = NO_SUM
        for one in self.sums:
            total = total.joined(one)
        return total.mean

    @property
    def error(self) -> float | None:
        """Half-width of the 95 % interval of the mean, by the means of the stretches; None where these are few."""
        return mean_error([mean for one in self.sums if (mean := one.mean) is not None])

    def _coarser(self) -> Blocks:
        sums = (*self.sums, NO_SUM) if len(self.sums) % 2 else self.sums
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return Blocks(2 * self.width_s, tuple(first.joined(second) for first, second in pairs))


NO_BLOCKS = Blocks()


def _is_idle(reading: Reading) -> bool:
    """Whether nothing has run for as long as a driver's utilisation covers."""
    return reading.sm_util is not None and reading.sm_util <= IDLE


def working_mhz(reading: Reading) -> int | None:
    """The core clock at which a program works; None where it is not told, or where nothing ran when it was read.

    A GPU that is held by its power limit shows another clock in the pauses between steps.
    """
    idle = reading.throttle is not None and Throttle.IDLE in reading.throttle
    return None if idle else reading.sm_mhz


@dataclass(frozen=True, slots=True)
class Tally:
    """A window so far: it begins with a reading, whose counter it starts from.

    Pauses of the program are left out: they take as long at every setting, and how many a window has is chance.
    """

    first: Reading
    last: Reading | None = None
    readings: int = 0
    agreeing: int = 0
    sm_mhz_sum: RunningSum = NO_SUM
    sm_utils: Blocks = NO_BLOCKS
    mem_utils: Blocks = NO_BLOCKS
    power_j: float = 0.0
    """Power added up over time, for GPUs whose counter fails."""
    paused_s: float = 0.0
    paused_j: float = 0.0
    """By the counter, where there is one."""

    def add(self, reading: Reading, setting: Setting) -> Tally:
        """With one more reading, at a setting."""
        before = self.last or self.first
        watts = [part.power_w for part in (before, reading) if part.power_w is not None]
        passed_s = max(reading.time_s - before.time_s, 0.0)
        if _is_idle(before) and _is_idle(reading):
            counted_j = max((reading.energy_j or 0.0) - (before.energy_j or 0.0), 0.0)
            return replace(self, last=reading, paused_s=self.paused_s + passed_s, paused_j=self.paused_j + counted_j)
        age_s = max(reading.time_s - self.first.time_s - self.paused_s, 0.0)
        return replace(
            self,
            last=reading,
            readings=self.readings + 1,
            agreeing=self.agreeing + is_held(setting, reading),
            sm_mhz_sum=self.sm_mhz_sum.add(working_mhz(reading)),
            sm_utils=self.sm_utils.add(age_s, reading.sm_util),
            mem_utils=self.mem_utils.add(age_s, reading.mem_util),
            power_j=self.power_j + (passed_s * sum(watts) / len(watts) if watts else 0.0),
        )

    @property
    def cost(self) -> Measurement:
        """Time and energy so far, with the error of the energy."""
        last = self.last or self.first
        time_s = max(last.time_s - self.first.time_s - self.paused_s, 0.0)
        energy_j = self._counted_j(last)
        ends_j = 0.8 * POLL_S * energy_j / time_s if time_s > 0 else 0.0
        return Measurement(time_s, energy_j, None, hypot(ends_j, COUNTER_ERROR * energy_j))

    @property
    def held(self) -> bool:
        """Whether the setting held."""
        return self.readings == 0 or self.agreeing >= MOSTLY * self.readings

    @property
    def sm_mhz(self) -> float | None:
        """Mean core clock."""
        return self.sm_mhz_sum.mean

    @property
    def sm_util(self) -> float | None:
        """Mean share of time in which the GPU was busy."""
        return self.sm_utils.mean

    @property
    def mem_util(self) -> float | None:
        """Mean share of time in which its memory was busy."""
        return self.mem_utils.mean

    def _counted_j(self, last: Reading) -> float:
        """By the counter; by power where there is no counter, or where it stands still or went back."""
        if self.first.energy_j is None or last.energy_j is None:
            return self.power_j
        counted_j = last.energy_j - self.first.energy_j - self.paused_j
        return counted_j if counted_j > 0 else self.power_j
