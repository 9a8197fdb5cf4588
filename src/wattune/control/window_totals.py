"""Totals of a window, updated reading by reading, and the polling of the energy counter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import hypot, sqrt

from wattune.core.codec import to_json
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Throttle
from wattune.core.setting import Setting

POLL_S = 0.02
"""Longest delay until an update of the counter is read; the error at both ends of a window is 0.8 of it."""
_REST = 0.95
"""Share of the refresh period without polling. Less than 1, because polls come late: they drift towards the update,
until one comes too early and the next one is right after the update."""
_FORGET = 1.02
"""Growth of the estimated refresh period from update to update, so that a slower counter is followed."""


@dataclass(frozen=True, slots=True)
class Polling:
    """The refresh period of a counter, known or estimated, and whether the last poll was an update."""

    known_s: float | None = None
    """The refresh period, where it is known for the GPU model."""
    estimated_s: float | None = None
    moved_s: float | None = None
    moved: bool = False

    def polled(self, time_s: float, *, moved: bool) -> Polling:
        if not moved:
            return replace(self, moved=False)
        estimated_s = self.estimated_s
        if self.moved_s is not None:
            gap_s = time_s - self.moved_s
            estimated_s = gap_s if estimated_s is None else min(gap_s, _FORGET * estimated_s)
        return replace(self, estimated_s=estimated_s, moved_s=time_s, moved=True)

    @property
    def wait_s(self) -> float:
        """Return the time until the next poll: after an update the counter stays until its next refresh."""
        refresh_s = self.estimated_s if self.known_s is None else self.known_s
        if not self.moved or refresh_s is None:
            return POLL_S
        return max(POLL_S, _REST * refresh_s)


CLOCK_SLACK = 0.02
"""Relative tolerance of a clock: drivers round to steps of 15 MHz and read it during changes."""
LIMIT_SLACK_W = 2.0
"""Firmware rounds limits to whole watts."""

_EXCUSES = Throttle.IDLE | Throttle.POWER_CAP | Throttle.THERMAL | Throttle.HARDWARE | Throttle.OTHER


def disagreement(setting: Setting, reading: Reading) -> str | None:
    """Return how a reading disagrees with a setting, in words; None where it agrees or lacks the values."""
    found = (
        _clock("core clock", setting.sm_mhz, reading.sm_mhz, reading.throttle),
        _clock("memory clock", setting.mem_mhz, reading.mem_mhz, reading.throttle),
        _limit(setting.power_limit_w, reading.power_limit_w),
    )
    return "; ".join(filter(None, found)) or None


def _clock(name: str, asked_mhz: int | None, read_mhz: int | None, throttle: Throttle | None) -> str | None:
    if asked_mhz is None or read_mhz is None:
        return None
    if abs(read_mhz - asked_mhz) <= CLOCK_SLACK * asked_mhz:
        return None
    if read_mhz < asked_mhz and (throttle is None or throttle & _EXCUSES):
        return None
    reason = f" ({', '.join(to_json(throttle))})" if throttle else ""
    return f"{name} of {asked_mhz} MHz was asked for and {read_mhz} MHz holds{reason}"


def _limit(asked_w: float | None, read_w: float | None) -> str | None:
    if asked_w is None or read_w is None or abs(read_w - asked_w) <= LIMIT_SLACK_W:
        return None
    return f"power limit of {asked_w:g} W was asked for and {read_w:g} W holds"


T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18)
"""Student's 97.5 % quantiles for 1 to 12 degrees of freedom."""


def mean_error(values: Sequence[float]) -> float | None:
    """Return the half-width of the 95 % interval of the mean of independent values; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((one - mean) ** 2 for one in values) / (len(values) - 1)
    return T_95[min(len(values) - 1, len(T_95)) - 1] * sqrt(variance / len(values))


COUNTER_ERROR = 0.002
"""Relative error of the energy of a window beyond the refresh of its counter, at 95 %. Published differences of two
counters of one GPU model are up to ten times larger, but equal at every setting."""
MOSTLY = 0.9
"""Share of the readings of a window that must agree with its setting."""


IDLE = 0.005
"""Utilisation up to which a GPU is idle; drivers report whole percents."""
BLOCKS = 16
"""Intervals of a window whose means give the error of its mean: enough for an error, and long enough to be
independent."""
BLOCK_S = 0.5
"""Their first length; it doubles as the window grows."""


@dataclass(frozen=True, slots=True)
class RunningSum:
    """Sum and count of values, some of which may be missing."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> RunningSum:
        return self if value is None else RunningSum(self.total + value, self.count + 1)

    def joined(self, other: RunningSum) -> RunningSum:
        return RunningSum(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


NO_SUM = RunningSum()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Values over time, summed in a few intervals of equal length, so that slow variation counts as error."""

    width_s: float = BLOCK_S
    sums: tuple[RunningSum, ...] = ()

    def add(self, age_s: float, value: float | None) -> Blocks:
        place = int(age_s / self.width_s)
        if place >= BLOCKS:
            return self._coarser().add(age_s, value)
        sums = (*self.sums, *[NO_SUM] * (place + 1 - len(self.sums)))
        return replace(self, sums=(*sums[:place], sums[place].add(value), *sums[place + 1 :]))

    @property
    def mean(self) -> float | None:
        return reduce(RunningSum.joined, self.sums, NO_SUM).mean

    @property
    def error(self) -> float | None:
        """Return the half-width of the 95 % interval of the mean, from the intervals; None where there are too few."""
        return mean_error([mean for one in self.sums if (mean := one.mean) is not None])

    def _coarser(self) -> Blocks:
        sums = (*self.sums, NO_SUM) if len(self.sums) % 2 else self.sums
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return Blocks(2 * self.width_s, tuple(first.joined(second) for first, second in pairs))


NO_BLOCKS = Blocks()


def _is_idle(reading: Reading) -> bool:
    return reading.sm_util is not None and reading.sm_util <= IDLE


def working_mhz(reading: Reading) -> int | None:
    """Return the core clock at which a program works; None where it is unknown or was read in a pause.

    A GPU at its power limit has another clock in the pauses between steps.
    """
    idle = reading.throttle is not None and Throttle.IDLE in reading.throttle
    return None if idle else reading.sm_mhz


@dataclass(frozen=True, slots=True)
class Tally:
    """The totals of a window so far, from its first reading on.

    Pauses of the program are left out: their length does not depend on the setting, and their number is random.
    """

    first: Reading
    last: Reading | None = None
    readings: int = 0
    agreeing: int = 0
    sm_mhz: RunningSum = NO_SUM
    sm_utils: Blocks = NO_BLOCKS
    mem_utils: Blocks = NO_BLOCKS
    powers_w: Blocks = NO_BLOCKS
    power_j: float = 0.0
    """Power added up over time, for GPUs whose counter fails."""
    paused_s: float = 0.0
    paused_j: float = 0.0
    """By the counter, where there is one."""

    def add(self, reading: Reading, setting: Setting) -> Tally:
        before = self.last or self.first
        watts = [one.power_w for one in (before, reading) if one.power_w is not None]
        passed_s = max(reading.time_s - before.time_s, 0.0)
        if _is_idle(before) and _is_idle(reading):
            counted_j = max((reading.energy_j or 0.0) - (before.energy_j or 0.0), 0.0)
            return replace(self, last=reading, paused_s=self.paused_s + passed_s, paused_j=self.paused_j + counted_j)
        age_s = max(reading.time_s - self.first.time_s - self.paused_s, 0.0)
        power_w = sum(watts) / len(watts) if watts else None
        return replace(
            self,
            last=reading,
            readings=self.readings + 1,
            agreeing=self.agreeing + (disagreement(setting, reading) is None),
            sm_mhz=self.sm_mhz.add(working_mhz(reading)),
            sm_utils=self.sm_utils.add(age_s, reading.sm_util),
            mem_utils=self.mem_utils.add(age_s, reading.mem_util),
            powers_w=self.powers_w.add(age_s, power_w),
            power_j=self.power_j + passed_s * (power_w or 0.0),
        )

    @property
    def cost(self) -> Measurement:
        last = self.last or self.first
        time_s = max(last.time_s - self.first.time_s - self.paused_s, 0.0)
        energy_j = self._counted_j(last)
        ends_j = 0.8 * POLL_S * energy_j / time_s if time_s > 0 else 0.0
        varies_j = (self.powers_w.error or 0.0) * time_s
        return Measurement(time_s, energy_j, None, hypot(ends_j, COUNTER_ERROR * energy_j, varies_j))

    @property
    def held(self) -> bool:
        return self.readings == 0 or self.agreeing >= MOSTLY * self.readings

    def _counted_j(self, last: Reading) -> float:
        """Return the energy by the counter, or by power where the counter is missing, stuck or went back."""
        if self.first.energy_j is None or last.energy_j is None:
            return self.power_j
        counted_j = last.energy_j - self.first.energy_j - self.paused_j
        return counted_j if counted_j > 0 else self.power_j
