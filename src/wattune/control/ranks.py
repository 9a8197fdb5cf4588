"""One policy for all ranks of a job: readings are put together, rank 0 decides, and every rank sets the same.

Ranks make the same calls at the same steps. At some of these steps, as rank 0 says which, they exchange a dozen numbers
and a line of text: several tenths of a second apart, so that this costs training nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Protocol

from wattune.control.state import as_one
from wattune.control.window_totals import working_mhz
from wattune.core.errors import DeviceError, SettingRefused
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Throttle
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu


class Ranks(Protocol):
    """The processes of one job. All of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """Which of them this is, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many they are."""
        ...

    def broadcast(self, text: str) -> str:
        """The text of rank 0, on every rank; what the others pass in is not looked at."""
        ...

    def sum_and_max(self, values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For each place the sum and the largest of what the ranks pass in, the same on every rank."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A job of one process."""

    rank: int = 0
    size: int = 1

    def broadcast(self, text: str) -> str:
        """The text."""
        return text

    def sum_and_max(self, values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The values, twice."""
        return tuple(values), tuple(values)


APART_S = 0.5
"""Between two exchanges, about."""

_SUMMED = ("energy_j", "power_w", "sm_util", "mem_util")
_LEAST = ("sm_mhz", "mem_mhz", "power_limit_w")


class SharedGpu:
    """All GPUs of all ranks as one: it shows what they told last, and keeps what they are to be set to."""

    def __init__(self, spec: GpuSpec) -> None:
        self._spec = spec
        self.refresh: Refresh | None = None
        self.wanted = DRIVER_DEFAULT
        self._last = Reading(time_s=0.0)

    @property
    def spec(self) -> GpuSpec:
        """What the parts are."""
        return self._spec

    def show(self, reading: Reading) -> None:
        """Nothing; from now on this is what it shows."""
        self._last = reading

    def read(self) -> Reading:
        """What the ranks told last."""
        return self._last

    def count(self) -> Count:
        """The energy that they told last."""
        return Count(self._last.time_s, self._last.energy_j or 0.0)

    def apply(self, setting: Setting) -> None:
        """Nothing; the ranks are told at their next exchange."""
        self._spec.check(setting)
        self.wanted = setting

    def restore(self) -> None:
        """Nothing; the ranks are told at their next exchange."""
        self.wanted = DRIVER_DEFAULT


class RankExchange:
    """What one rank does: it tells its readings, hears what to set, and sets it on its own GPUs."""

    def __init__(self, ranks: Ranks, gpus: Sequence[Gpu]) -> None:
        self.ranks, self.gpus = ranks, tuple(gpus)
        self._began_s = self.gpus[0].count().time_s
        self._steps, self._next, self._exchanged_at = 0, 1, 0
        self._last_s = 0.0
        self._applied = DRIVER_DEFAULT
        self._refused = False

    def step(self, count: int, decide: Callable[[Reading, bool, int], Setting]) -> None:
        """Nothing; after so many more steps, where an exchange is due, the ranks have agreed on what to set.

        `decide` is asked on rank 0: with what all ranks show, whether one refused the last setting, and how many
        steps were done since it was asked before.
        """
        self._steps += count
        if self._steps < self._next:
            return
        shown, refused = self._exchanged()
        answer = ""
        if self.ranks.rank == 0:
            done = self._steps - self._exchanged_at
            answer = _text(decide(shown, refused, done), self._next_step(shown.time_s, done))
        self._exchanged_at = self._steps
        setting, self._next = _parsed(self.ranks.broadcast(answer))
        self._set(setting)

    def _exchanged(self) -> tuple[Reading, bool]:
        own = self._own()
        sums = [_number(getattr(own, name)) for name in _SUMMED]
        least = [-_number(getattr(own, name)) for name in _LEAST]
        reasons = [float(bool(own.throttle and own.throttle & reason)) for reason in Throttle]
        values = [own.time_s - self._began_s, float(self._refused), *sums, *least, *reasons]
        total, most = self.ranks.sum_and_max(values)
        size = self.ranks.size
        means = [_known(value / size) for value in total[2 : 2 + len(_SUMMED)]]
        lowest = [_known(-value) for value in most[2 + len(_SUMMED) : 2 + len(_SUMMED) + len(_LEAST)]]
        throttle = Throttle.NONE
        for reason, value in zip(Throttle, most[2 + len(_SUMMED) + len(_LEAST) :], strict=True):
            throttle |= reason if value > 0 else Throttle.NONE
        shown = Reading(
            time_s=most[0],
            energy_j=means[0],
            power_w=means[1],
            sm_util=means[2],
            mem_util=means[3],
            sm_mhz=None if lowest[0] is None else int(lowest[0]),
            mem_mhz=None if lowest[1] is None else int(lowest[1]),
            power_limit_w=lowest[2],
            throttle=throttle,
        )
        return shown, total[1] > 0

    def _own(self) -> Reading:
        """What the GPUs of this rank show; nothing but the time where they cannot be read."""
        try:
            shown = as_one([gpu.read() for gpu in self.gpus])
        except DeviceError:
            return Reading(time_s=self._began_s + self._last_s)
        # Between two steps a GPU may well be idle, and its clock then is not that of the steps.
        return replace(shown, sm_mhz=working_mhz(shown))

    def _next_step(self, now_s: float, done: int) -> int:
        """The step of the next exchange, by how long the steps since the last one took."""
        step_time_s = (now_s - self._last_s) / max(done, 1)
        self._last_s = now_s
        return self._steps + max(round(APART_S / step_time_s) if step_time_s > 0 else 1, 1)

    def _set(self, setting: Setting) -> None:
        self._refused = False
        if setting == self._applied:
            return
        try:
            for gpu in self.gpus:
                gpu.apply(setting)
        except DeviceError:
            self._refused = True  # told at the next exchange, so that no rank keeps it
        self._applied = setting


def refusal(setting: Setting) -> DeviceError:
    """What a rank's refusal of a setting is for the others."""
    return SettingRefused(f"a rank could not set {setting}", hint="see the log of that rank")


def _text(setting: Setting, step: int) -> str:
    return json.dumps([setting.sm_mhz, setting.mem_mhz, setting.power_limit_w, step])


def _parsed(text: str) -> tuple[Setting, int]:
    sm_mhz, mem_mhz, power_limit_w, step = json.loads(text)
    return Setting(sm_mhz, mem_mhz, power_limit_w), step


def _number(value: float | None) -> float:
    return nan if value is None else float(value)


def _known(value: float) -> float | None:
    return None if isnan(value) else value
