"""What the readings of a window add up to, one at a time, so that none of them need be kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot

from wattune.control.polling import POLL_S
from wattune.control.readback import is_held
from wattune.control.scatter import mean_error
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Throttle
from wattune.core.setting import Setting

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
class Sum:
    """Values that are sometimes missing."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> Sum:
        """With one more value."""
        return self if value is None else Sum(self.total + value, self.count + 1)

    def joined(self, other: Sum) -> Sum:
        """With all values of another."""
        return Sum(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> float | None:
        """Their mean; None where there was none."""
        return self.total / self.count if self.count else None


NO_SUM = Sum()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Values over time, added up in a few stretches of equal length: what varies slowly is seen to vary."""

    width_s: float = BLOCK_S
    sums: tuple[Sum, ...] = ()

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
    sm_mhz_sum: Sum = NO_SUM
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
