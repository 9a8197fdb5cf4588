"""Policies written as generators: yield an order, receive its window, yield the next order; and one that sets nothing.

A policy has no state besides the windows, so it replays its procedure from the start at every step; what a procedure
computes between two windows should therefore be quick.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window

_Result = TypeVar("_Result")

Procedure = Generator[Order, Window, _Result]
"""Yields orders, receives their windows, and returns a result."""

_IDLE_HOLD_S = 60.0


def next_order(procedure: Procedure[None], windows: tuple[Window, ...]) -> Order:
    """Return the order after these windows; a procedure that has ended holds its last setting."""
    order = next(procedure)
    try:
        for window in windows:
            order = procedure.send(window)
    except StopIteration:
        return holding(order.setting, why=order.why)
    return order


class PublishedPolicy(ABC):
    """A `RunPolicy` that follows one procedure and starts from nothing in each run."""

    __slots__ = ()

    name: ClassVar[str]
    tunes: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    needs_counters: ClassVar[bool] = False

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        return next_order(self._tune(spec), windows)

    @abstractmethod
    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        """Order windows from the start of a program to its end."""


def holding(setting: Setting, *, seconds: float = _IDLE_HOLD_S, why: str = "") -> Order:
    """Return an order to hold a setting."""
    return Order(setting=setting, purpose=Purpose.HOLD, least_s=seconds, most_s=seconds, why=why)


def ordered(setting: Setting, purpose: Purpose, seconds: float, *, settle_s: float, why: str = "") -> Order:
    """Return an order of a fixed length."""
    return Order(setting=setting, purpose=purpose, least_s=seconds, most_s=seconds, settle_s=settle_s, why=why)


def forever(setting: Setting, *, why: str) -> Procedure[None]:
    """Hold one setting whatever the windows show."""
    while True:
        yield holding(setting, why=why)


def work_rate(window: Window, spec: GpuSpec) -> float | None:
    """Return the work per second in an arbitrary unit, or None without counters.

    The use of an arithmetic unit times the clock is operations per second, the use of the memory times its clock is
    bytes per second. A program that repeats itself keeps the proportion of both, so their sum serves as well as the
    instructions per second that GPOEO counts.
    """
    counters, sm_mhz = window.features, window.sm_mhz or window.setting.sm_mhz
    if not counters or sm_mhz is None:
        return None
    arithmetic = (counters.get("tensor", 0.0) + counters.get("fp32", 0.0)) * sm_mhz / spec.sm_clocks_mhz[-1]
    top_mhz = spec.clocks[0].mem_mhz
    lower = 1.0 if window.setting.mem_mhz is None or not top_mhz else window.setting.mem_mhz / top_mhz
    rate = arithmetic + counters.get("dram", 0.0) * lower
    return rate if rate > 0 else None


_DEFAULT_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class DefaultPolicy(PublishedPolicy):
    """Leave everything to the driver."""

    name: ClassVar[str] = "default"
    tunes: ClassVar[bool] = False

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        del spec
        while True:
            yield ordered(DRIVER_DEFAULT, Purpose.BASELINE, _DEFAULT_WINDOW_S, settle_s=0.0)


_QUIET = 3
_LONGEST_SLEEP = 32
"""In periods."""
_LEAST_SLEEP_S = 20.0
"""The original may sleep for less; that makes more windows and detects nothing more."""


def watched(setting: Setting, *, bound: float, period_s: float, length_s: float, floor_w: float) -> Procedure[float]:
    """Hold a setting until its power above a floor shifts by more than a bound; return the shift over the mean."""
    low_w = high_w = None
    quiet = 0
    while True:
        asleep_s = 0.0
        if quiet >= _QUIET:
            asleep_s = max(min(2.0 ** (quiet - 1), _LONGEST_SLEEP) * period_s, _LEAST_SLEEP_S)
        window = yield holding(setting, seconds=length_s + asleep_s, why="found; the power is watched")
        power_w = max(window.power_w - floor_w, 0.0)
        low_w = power_w if low_w is None else min(low_w, power_w)
        high_w = power_w if high_w is None else max(high_w, power_w)
        mean_w = (low_w + high_w) / 2.0
        if high_w - low_w > bound * mean_w:
            return (high_w - low_w) / mean_w
        quiet += 1
