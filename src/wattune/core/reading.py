"""Readings of a GPU, stamped with the GPU's own clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from itertools import pairwise
from typing import NamedTuple


class Throttle(Flag):
    """Reasons why the clock is lower than requested."""

    NONE = 0
    IDLE = auto()
    POWER_CAP = auto()
    THERMAL = auto()
    HARDWARE = auto()
    LOCKED = auto()
    OTHER = auto()


class Count(NamedTuple):
    """The energy counter at one time, and nothing else: a span reads it twice.

    A tuple, because it is made on the hot path of user code.
    """

    time_s: float
    energy_j: float


class Restart(NamedTuple):
    """A restart of an energy counter: the times of the last count before it and of the first after it."""

    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that a GPU reports at one time; None for what it does not report."""

    time_s: float
    energy_j: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_mhz: int | None = None
    mem_mhz: int | None = None
    throttle: Throttle | None = None
    power_limit_w: float | None = None
    sm_util: float | None = None
    """Share of time in which the GPU was busy, 0 to 1."""
    mem_util: float | None = None
    """Share of time in which the memory was busy, 0 to 1."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None

    @property
    def exact_s(self) -> float:
        """The time for which the energy counts."""
        return self.time_s

    @property
    def exact_error_s(self) -> float:
        """Half-width of the interval in which that lies."""
        return 0.0

    @property
    def steps(self) -> float | None:
        """Steps that the program had done by then; None where they are not counted."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedReading(Reading):
    """A reading whose energy was exact at an earlier time: when the counter last moved."""

    exact_s: float
    exact_error_s: float = 0.0
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Readings in the order of their time, without repeated ones."""

    gpu: str
    readings: tuple[Reading, ...]

    def __post_init__(self) -> None:
        times = [reading.time_s for reading in self.readings]
        if any(late < early for early, late in pairwise(times)):
            raise ValueError("the readings of a trace are in the order of their time")

    @property
    def duration_s(self) -> float:
        return self.readings[-1].time_s - self.readings[0].time_s if self.readings else 0.0
