"""What the readings of a window add up to, one at a time, so that none of them need be kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot

from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.setting import Setting
from wattune.tuning.run_verify import is_held

COUNTER_ERROR = 0.002
"""Share by which the energy of a window is off beyond the refresh of its counter, at 95 %: how far two counters of one
part disagree on public record is up to ten times that, but it is the same at every setting."""
POLL_S = 0.02
"""A refresh of the counter is seen so late at most; what that leaves open at both ends of a window is 0.8 of it."""
MOSTLY = 0.9
"""Share of the readings of a window that must agree with its setting."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Values that are sometimes missing."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float | None) -> Sum:
        """With one more value."""
        return self if value is None else Sum(self.total + value, self.count + 1)

    @property
    def mean(self) -> float | None:
        """Their mean; None where there was none."""
        return self.total / self.count if self.count else None


NO_SUM = Sum()


@dataclass(frozen=True, slots=True)
class Tally:
    """A window so far: it begins with a reading, whose counter it starts from."""

    first: Reading
    last: Reading | None = None
    readings: int = 0
    agreeing: int = 0
    sm_mhz_sum: Sum = NO_SUM
    sm_util_sum: Sum = NO_SUM
    mem_util_sum: Sum = NO_SUM
    power_j: float = 0.0
    """Power added up over time, for GPUs whose counter fails."""

    def add(self, reading: Reading, setting: Setting) -> Tally:
        """With one more reading, at a setting."""
        before = self.last or self.first
        watts = [part.power_w for part in (before, reading) if part.power_w is not None]
        passed_s = max(reading.time_s - before.time_s, 0.0)
        return replace(
            self,
            last=reading,
            readings=self.readings + 1,
            agreeing=self.agreeing + is_held(setting, reading),
            sm_mhz_sum=self.sm_mhz_sum.add(reading.sm_mhz),
            sm_util_sum=self.sm_util_sum.add(reading.sm_util),
            mem_util_sum=self.mem_util_sum.add(reading.mem_util),
            power_j=self.power_j + (passed_s * sum(watts) / len(watts) if watts else 0.0),
        )

    @property
    def cost(self) -> Measurement:
        """Time and energy so far, with the error of the energy."""
        last = self.last or self.first
        time_s = max(last.time_s - self.first.time_s, 0.0)
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
        return self.sm_util_sum.mean

    @property
    def mem_util(self) -> float | None:
        """Mean share of time in which its memory was busy."""
        return self.mem_util_sum.mean

    def _counted_j(self, last: Reading) -> float:
        """By the counter; by power where there is no counter, or where it stands still or went back."""
        if self.first.energy_j is None or last.energy_j is None:
            return self.power_j
        counted_j = last.energy_j - self.first.energy_j
        return counted_j if counted_j > 0 else self.power_j
