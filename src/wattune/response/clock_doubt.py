"""Reasons to doubt that a program follows the clock of its GPU, as far as physics allows to judge.

A program that does not, such as one that computes on the CPU beside a simulated GPU, takes the same time at every
clock; then the lowest clock seems to be the best one. A lower clock makes nothing faster. And where kernels run all the
time, a clock that falls by a factor of several makes them slower, however much they wait for memory: the path to the
memory runs at the core clock too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.window import Purpose, Window

FASTER = 0.93
"""Time at a lower clock over that at a higher one that noise may show."""
BUSY = 0.9
"""Utilisation from which kernels run all the time."""
FALL, LEAST_GROWTH = 3.5, 1.03
"""By what factor the clock must fall, and the time must then grow. Over all simulated GPUs and all programs of the
simulated family that are busy for 90 % of the time, it grows to 1.036 at least at that factor, and to 1.17 at 4."""


@dataclass(frozen=True, slots=True)
class PointTime:
    """The time of some work at a clock, with the half-width of its 95 % interval, and the utilisation."""

    sm_mhz: float
    time_s: float
    error_s: float = 0.0
    busy: float | None = None


def doubt_of(base: PointTime, others: Sequence[PointTime]) -> str | None:
    """Return why a program does not seem to follow the clock, in words; None where it may."""
    return next((words for other in others if (words := _doubt(base, other)) is not None), None)


def window_doubt(windows: Sequence[Window]) -> str | None:
    """Return the same of the windows of one phase of a program, by the steps that were counted in them."""
    points = [
        (window.purpose, PointTime(window.sm_mhz, window.step_time_s, window.step_time_error_s or 0.0, window.sm_util))
        for window in windows
        if window.step_time_s and window.sm_mhz and window.counted and not window.changed and not window.by_phase
    ]
    base = next((point for purpose, point in points if purpose is Purpose.BASELINE), None)
    return None if base is None else doubt_of(base, [point for _, point in points])


def _doubt(base: PointTime, other: PointTime) -> str | None:
    if base.time_s <= 0:
        return None
    ratio, fall = other.time_s / base.time_s, base.sm_mhz / other.sm_mhz
    most = (other.time_s + other.error_s + base.error_s) / base.time_s
    clocks = f"at {other.sm_mhz:.0f} MHz instead of {base.sm_mhz:.0f} MHz"
    if fall >= 1 and most < FASTER:
        return f"it was {100 * (1 - ratio):.0f} % faster {clocks}, and a lower clock makes nothing faster"
    if base.busy is not None and base.busy >= BUSY and fall >= FALL and most < LEAST_GROWTH:
        return f"its time changed by {100 * (ratio - 1):+z.1f} % {clocks}, although the GPU was busy all the time"
    return None
