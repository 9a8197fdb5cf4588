"""Totals of a window, updated reading by reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil, hypot, sqrt

from wattune.core.codec import to_json
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading, Throttle
from wattune.core.refresh import RESOLUTION_J
from wattune.core.setting import Setting

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


EXACT_S = 0.004
"""Largest error of the time of a reading that shows how power varies within a window."""
USUAL_ERROR = 0.01
"""Relative error of a power whose variation is unknown, since the window had too few steps or exact readings."""
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
    """Weighted sum of values, some of which may be missing."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float | None, weight: float = 1.0) -> RunningSum:
        return self if value is None else RunningSum(self.total + weight * value, self.weight + weight)

    def joined(self, other: RunningSum) -> RunningSum:
        return RunningSum(self.total + other.total, self.weight + other.weight)

    @property
    def mean(self) -> float | None:
        return self.total / self.weight if self.weight else None


NO_SUM = RunningSum()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Values over time, averaged in a few intervals of equal length, so that slow variation counts as error."""

    width_s: float = BLOCK_S
    sums: tuple[RunningSum, ...] = ()

    @classmethod
    def of_steps(cls, step_s: float | None) -> Blocks:
        """Return intervals of whole steps, since the parts of a step differ."""
        return cls(BLOCK_S if not step_s else ceil(BLOCK_S / step_s) * step_s)

    def add(self, start_s: float, end_s: float, value: float | None) -> Blocks:
        """Add a value that held from one age of the window to another."""
        if value is None or end_s <= start_s:
            return self
        first, last = int(start_s / self.width_s), int(end_s / self.width_s)
        if last >= BLOCKS:
            return self._coarser().add(start_s, end_s, value)
        sums = [*self.sums, *[NO_SUM] * (last + 1 - len(self.sums))]
        for place in range(first, last + 1):
            inside_s = min(end_s, (place + 1) * self.width_s) - max(start_s, place * self.width_s)
            sums[place] = sums[place].add(value, max(inside_s, 0.0))
        return replace(self, sums=tuple(sums))

    @property
    def mean(self) -> float | None:
        return reduce(RunningSum.joined, self.sums, NO_SUM).mean

    @property
    def error(self) -> float | None:
        """Return the half-width of the 95 % interval of the mean, from the intervals; None where there are too few.

        An interval that is filled by less than half says little.
        """
        most = max((one.weight for one in self.sums), default=0.0)
        return mean_error([one.mean for one in self.sums if one.mean is not None and one.weight >= most / 2])

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
    """By the energy counter, where it moves."""
    exact: Reading | None = None
    """The last reading whose time is exact enough to show how the power varies."""
    power_j: float = 0.0
    """Power added up over time, for GPUs whose counter fails."""
    paused_s: float = 0.0
    paused_j: float = 0.0
    """By the counter, where there is one."""

    @classmethod
    def begun(cls, first: Reading, *, step_s: float | None = None) -> Tally:
        """Begin a window at a reading; `step_s` is how long steps take, where that is known."""
        return cls(first, powers_w=Blocks.of_steps(step_s))

    def add(self, reading: Reading, setting: Setting) -> Tally:
        before = self.last or self.first
        watts = [one.power_w for one in (before, reading) if one.power_w is not None]
        passed_s = max(reading.exact_s - before.exact_s, 0.0)
        counted_j = max((reading.energy_j or 0.0) - (before.energy_j or 0.0), 0.0)
        if _is_idle(before) and _is_idle(reading):
            return replace(
                self, last=reading, exact=reading, paused_s=self.paused_s + passed_s, paused_j=self.paused_j + counted_j
            )
        start_s = self.time_s
        end_s = start_s + passed_s
        power_w = sum(watts) / len(watts) if watts else None
        exact, powers_w = self._exact(reading, end_s)
        return replace(
            self,
            last=reading,
            exact=exact,
            powers_w=powers_w,
            readings=self.readings + 1,
            agreeing=self.agreeing + (disagreement(setting, reading) is None),
            sm_mhz=self.sm_mhz.add(working_mhz(reading)),
            sm_utils=self.sm_utils.add(start_s, end_s, reading.sm_util),
            mem_utils=self.mem_utils.add(start_s, end_s, reading.mem_util),
            power_j=self.power_j + passed_s * (power_w or 0.0),
        )

    @property
    def time_s(self) -> float:
        return max((self.last or self.first).exact_s - self.first.exact_s - self.paused_s, 0.0)

    @property
    def cost(self) -> Measurement:
        """Time and energy, with the error of its power as that of the program at this setting.

        The error has two parts: when the counter moved at both ends, and how much the power varies within the window.
        """
        last, time_s = self.last or self.first, self.time_s
        energy_j = self._counted_j(last)
        power_w = energy_j / time_s if time_s > 0 else 0.0
        ends_j = power_w * hypot(self.first.exact_error_s, last.exact_error_s) + RESOLUTION_J
        error_w = self.powers_w.error
        varies_j = USUAL_ERROR * energy_j if error_w is None else error_w * time_s
        return Measurement(time_s, energy_j, None, hypot(ends_j, varies_j))

    @property
    def held(self) -> bool:
        return self.readings == 0 or self.agreeing >= MOSTLY * self.readings

    def _exact(self, reading: Reading, end_s: float) -> tuple[Reading | None, Blocks]:
        """Return the last exact reading, and the powers up to it; a pause begins again behind it."""
        before = self.exact or self.first
        if reading.energy_j is None or before.energy_j is None:
            return None, self.powers_w.add(self.time_s, end_s, reading.power_w)
        passed_s = reading.exact_s - before.exact_s
        if reading.exact_error_s > EXACT_S or passed_s <= 0:
            return self.exact, self.powers_w
        power_w = max(reading.energy_j - before.energy_j, 0.0) / passed_s
        return reading, self.powers_w.add(max(end_s - passed_s, 0.0), end_s, power_w)

    def _counted_j(self, last: Reading) -> float:
        """Return the energy by the counter, or by power where the counter is missing, stuck or went back."""
        if self.first.energy_j is None or last.energy_j is None:
            return self.power_j
        counted_j = last.energy_j - self.first.energy_j - self.paused_j
        return counted_j if counted_j > 0 else self.power_j
