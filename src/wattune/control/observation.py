"""What is seen of a program that runs: readings of its GPUs as one, what it is doing, and its pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from wattune.core.reading import Reading, Throttle
from wattune.signals.change import Change


class Condition(StrEnum):
    """What keeps a program from being tuned, if anything does."""

    WORKING = "working"
    UNUSED = "not using the GPU"
    SHARED = "sharing the GPU with another program"
    STOPPED = "stopped"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a unit of work takes, with the half-width of its 95 % interval, and what the unit is."""

    pace_s: float
    error_s: float | None
    source: str = "steps"
    """steps, period, or whatever else told it."""

    @property
    def relative_error(self) -> float | None:
        """The error over the pace."""
        return None if self.error_s is None or self.pace_s <= 0 else self.error_s / self.pace_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen since the last look."""

    readings: tuple[Reading, ...]
    """Of all GPUs of the program as one, oldest first."""
    condition: Condition = Condition.WORKING
    pace: Pace | None = None
    """Of the present window, where it was asked for and can be told."""
    features: Mapping[str, float] = field(default_factory=dict)
    """What counters say of the present window, where its pace was asked for and something counts."""
    change: Change | None = None
    """What the program began to do otherwise, where it did."""
    remarks: tuple[str, ...] = ()
    """What was odd about the sensors, in words."""


def as_one(readings: Sequence[Reading]) -> Reading:
    """The readings of several GPUs at about one instant as if of one: mean energy and power, the slowest clock.

    Means, so that what is known of one part holds for them. What one of them does not tell is not known of them all.
    """
    if len(readings) == 1:
        return readings[0]
    return Reading(
        time_s=max(reading.time_s for reading in readings),
        energy_j=_mean([reading.energy_j for reading in readings]),
        power_w=_mean([reading.power_w for reading in readings]),
        temperature_c=_most([reading.temperature_c for reading in readings]),
        sm_mhz=_least([reading.sm_mhz for reading in readings]),
        mem_mhz=_least([reading.mem_mhz for reading in readings]),
        throttle=_reasons([reading.throttle for reading in readings]),
        power_limit_w=_least([reading.power_limit_w for reading in readings]),
        sm_util=_mean([reading.sm_util for reading in readings]),
        mem_util=_mean([reading.mem_util for reading in readings]),
    )


def _known(values: list[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if known and len(known) == len(values) else None


def _mean(values: list[float | None]) -> float | None:
    known = _known(values)
    return None if known is None else sum(known) / len(known)


def _most(values: list[float | None]) -> float | None:
    known = _known(values)
    return None if known is None else max(known)


def _least(values: Sequence[float | None]) -> int | None:
    known = _known(list(values))
    return None if known is None else int(min(known))


def _reasons(values: list[Throttle | None]) -> Throttle | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    together = Throttle.NONE
    for value in known:
        together |= value
    return together
