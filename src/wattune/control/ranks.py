"""Agreement between the ranks of a job: at decision points only, in a few numbers, also on the end of the tuning.

All ranks make the same calls at the same steps. At a decision point, whose step number was agreed at the one before,
each rank contributes its readings, a decision follows from all of them, and every rank carries it out. A rank whose own
part has failed reports it in the same numbers; all ranks then disable tuning and restore their GPUs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, nan
from typing import Protocol

from wattune.control.actuator import Actuator
from wattune.control.state import as_one
from wattune.control.window_totals import working_mhz
from wattune.core.errors import DeviceError, WattuneError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Throttle
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting

Numbers = tuple[float, ...]


class Ranks(Protocol):
    """The processes of one job. All of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def size(self) -> int:
        """The number of processes."""

    def broadcast(self, text: str) -> str:
        """Return the text of rank 0 on every rank; what other ranks pass is ignored."""

    def sum_and_max(self, values: Sequence[float]) -> tuple[Numbers, Numbers]:
        """Return the sum and the maximum over all ranks of each value, the same on every rank."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A job of one process."""

    rank: int = 0
    size: int = 1

    def broadcast(self, text: str) -> str:
        return text

    def sum_and_max(self, values: Sequence[float]) -> tuple[Numbers, Numbers]:
        return tuple(values), tuple(values)


def error_text(error: BaseException) -> str:
    """Return an error as one line for an event or a log."""
    return error.message if isinstance(error, WattuneError) else f"{type(error).__name__}: {error}".rstrip(": ")


class Agreement:
    """Decisions of all ranks together, until one of them fails."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.disabled: str | None = None
        """The reason why tuning has ended on all ranks, or None."""
        self.failure: str | None = None
        """The failure of this rank, or None."""

    def fail(self, error: BaseException | str) -> None:
        """Record that the part of this rank failed. The other ranks learn of it at the next decision point."""
        if self.failure is None:
            self.failure = error if isinstance(error, str) else error_text(error)
            logging.getLogger("wattune").warning("tuning ends, training goes on: %s", self.failure)

    def decide(
        self,
        contribute: Callable[[], Sequence[float]],
        decide: Callable[[Numbers, Numbers], Sequence[float]],
        *,
        sizes: tuple[int, int],
    ) -> Numbers | None:
        """Return the decision of rank 0 on every rank, or None once tuning is disabled. Never raises.

        `decide` takes the sums and maxima of what the ranks contribute and is called on every rank; the numbers that
        it returns count on rank 0 only. `sizes` are how many numbers the two functions return. If either raises on any
        rank, all ranks learn of it in the same call.
        """
        totals = self._exchanged(contribute, sizes[0])
        if totals is None:
            return None
        # Adding zeros gives every rank the exact numbers of rank 0.
        answer = self._exchanged(lambda: decide(*totals), sizes[1], counts=self.ranks.rank == 0)
        return None if answer is None else answer[0]

    def _exchanged(
        self, make: Callable[[], Sequence[float]], size: int, *, counts: bool = True
    ) -> tuple[Numbers, Numbers] | None:
        """Exchange numbers and whether a rank has failed; None where one has."""
        if self.disabled is not None:
            return None
        values = self._made(make, size)
        failed = float(self.failure is not None)
        try:
            sums, maxima = self.ranks.sum_and_max((failed, *(values if counts else (0.0,) * size)))
        except Exception as error:  # a rank has died; the others cannot be asked any more
            self.fail(f"the other ranks cannot be reached: {error_text(error)}")
            self.disabled = self.failure
            return None
        if maxima[0] > 0:
            self.fail("it failed on another rank, see the log of that rank")
            self.disabled = self.failure
            return None
        return sums[1:], maxima[1:]

    def _made(self, make: Callable[[], Sequence[float]], size: int) -> Sequence[float]:
        if self.failure is None:
            try:
                values = tuple(make())
                if len(values) == size:
                    return values
                self.fail(f"{len(values)} numbers to exchange instead of {size}")
            except Exception as error:  # a policy or a device of any kind; training must not see it
                self.fail(error)
        return (0.0,) * size


SETTING_SIZE = 3


def setting_numbers(setting: Setting) -> Numbers:
    """Return a setting as numbers for an exchange; NaN stands for what the driver decides."""
    return tuple(nan if value is None else value for value in (setting.sm_mhz, setting.mem_mhz, setting.power_limit_w))


def setting_of(numbers: Sequence[float]) -> Setting:
    """Return the setting that `setting_numbers` encoded."""
    sm_mhz, mem_mhz, power_limit_w = numbers
    return Setting(
        None if isnan(sm_mhz) else int(sm_mhz),
        None if isnan(mem_mhz) else int(mem_mhz),
        None if isnan(power_limit_w) else power_limit_w,
    )


class SharedGpu:
    """All GPUs of all ranks as one: what they showed last, and what they are to be set to."""

    def __init__(self, spec: GpuSpec) -> None:
        self.spec = spec
        self.refresh: Refresh | None = None
        self.wanted = DRIVER_DEFAULT
        self.reading = Reading(time_s=0.0)

    def read(self) -> Reading:
        return self.reading

    def count(self) -> Count:
        return Count(self.reading.time_s, self.reading.energy_j or 0.0)

    def apply(self, setting: Setting) -> None:
        self.spec.check(setting)
        self.wanted = setting

    def restore(self) -> None:
        self.wanted = DRIVER_DEFAULT


DECISION_S = 0.5
"""Between two decision points, about."""

_MEANS = ("energy_j", "power_w", "sm_util", "mem_util")
_MINIMA = ("sm_mhz", "mem_mhz", "power_limit_w")
_READING_SIZE = 2 + len(_MEANS) + len(_MINIMA) + len(Throttle)


class RankExchange:
    """The part of one rank: contribute its readings, and set its GPUs as rank 0 decides."""

    def __init__(self, ranks: Ranks, actuator: Actuator) -> None:
        self.agreement = Agreement(ranks)
        self.setting = DRIVER_DEFAULT
        """The setting that the ranks agreed on."""
        self.refusal: Exception | None = None
        """The error with which this rank refused the last setting, or None."""
        self._actuator = actuator
        self._began_s = 0.0
        self._steps, self._next, self._exchanged_at = 0, 1, 0
        self._last_s = 0.0
        try:
            self._began_s = actuator.gpus[0].count().time_s
        except Exception as error:  # reported at the first decision point, so that no rank waits for this one
            self.agreement.fail(error)

    def step(self, count: int, decide: Callable[[Reading, bool, int], Setting]) -> None:
        """Count iterations and, at a decision point, agree with the other ranks on what to set.

        `decide` is called on rank 0 with the reading of all GPUs, whether a rank refused the last setting, and the
        number of steps since its last call.
        """
        self._steps += count
        if self._steps < self._next or self.agreement.disabled is not None:
            return

        def decided(sums: Numbers, maxima: Numbers) -> Sequence[float]:
            if self.agreement.ranks.rank > 0:
                return (0.0,) * (SETTING_SIZE + 1)
            reading, done = self._combined(sums, maxima), self._steps - self._exchanged_at
            setting = decide(reading, maxima[1] > 0, done)
            return (*setting_numbers(setting), float(self._next_step(reading.time_s, done)))

        answer = self.agreement.decide(self._own_numbers, decided, sizes=(_READING_SIZE, SETTING_SIZE + 1))
        self._exchanged_at = self._steps
        if answer is None:
            return
        self._next = int(answer[-1])
        wanted = setting_of(answer[:-1])
        if wanted != self.setting:
            self.setting = wanted
            self._actuator.put(wanted)

    def _own_numbers(self) -> Numbers:
        self.refusal = self._actuator.take_failure()
        if self.refusal is not None and not isinstance(self.refusal, DeviceError):
            raise self.refusal
        own = self._own_reading()
        means = [nan if (value := getattr(own, name)) is None else value for name in _MEANS]
        # The minimum is the maximum of the negative; what one rank does not show is infinite, so not known of all.
        minima = [inf if (value := getattr(own, name)) is None else -value for name in _MINIMA]
        reasons = [float(bool(own.throttle and own.throttle & reason)) for reason in Throttle]
        return (own.time_s - self._began_s, float(self.refusal is not None), *means, *minima, *reasons)

    def _own_reading(self) -> Reading:
        """Read the GPUs of this rank; only the time is known where they cannot be read."""
        try:
            reading = as_one([gpu.read() for gpu in self._actuator.gpus])
        except DeviceError:
            return Reading(time_s=self._began_s + self._last_s)
        # Between two steps a GPU may be idle, and its clock then is not that of the steps.
        return replace(reading, sm_mhz=working_mhz(reading))

    def _combined(self, sums: Numbers, maxima: Numbers) -> Reading:
        first, last = 2 + len(_MEANS), 2 + len(_MEANS) + len(_MINIMA)
        size = self.agreement.ranks.size
        energy_j, power_w, sm_util, mem_util = (None if isnan(sum_) else sum_ / size for sum_ in sums[2:first])
        sm_mhz, mem_mhz, power_limit_w = (-value if isfinite(value) else None for value in maxima[first:last])
        throttle = Throttle.NONE
        for reason, value in zip(Throttle, maxima[last:], strict=True):
            throttle |= reason if value > 0 else Throttle.NONE
        return Reading(
            time_s=maxima[0],
            energy_j=energy_j,
            power_w=power_w,
            sm_util=sm_util,
            mem_util=mem_util,
            sm_mhz=None if sm_mhz is None else int(sm_mhz),
            mem_mhz=None if mem_mhz is None else int(mem_mhz),
            power_limit_w=power_limit_w,
            throttle=throttle,
        )

    def _next_step(self, now_s: float, done: int) -> int:
        """Return the step of the next decision point, by how long the steps since the last one took."""
        step_time_s = (now_s - self._last_s) / max(done, 1)
        self._last_s = now_s
        return self._steps + max(round(DECISION_S / step_time_s) if step_time_s > 0 else 1, 1)
