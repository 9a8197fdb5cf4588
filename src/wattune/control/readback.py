"""Whether a GPU has the clocks and the limit that were asked for.

What was asked for, what holds, and why it is less are three things: a clock below the one asked for is held where the
GPU names a reason, such as its power limit; one above it never is.
"""

from __future__ import annotations

from wattune.core.reading import Reading, Throttle
from wattune.core.setting import Setting

CLOCK_SLACK = 0.02
"""Share by which a clock that holds may read otherwise: drivers round to steps of 15 MHz and read it on the way."""
LIMIT_SLACK_W = 2.0
"""Firmware rounds limits to whole watts."""

_EXCUSES = Throttle.IDLE | Throttle.POWER_CAP | Throttle.THERMAL | Throttle.HARDWARE | Throttle.OTHER


def is_held(setting: Setting, reading: Reading) -> bool:
    """Whether a reading agrees with a setting; what the GPU does not tell agrees."""
    return complaint(setting, reading) is None


def complaint(setting: Setting, reading: Reading) -> str | None:
    """What a reading says against a setting, in words; None where it agrees."""
    parts = (
        _clock("core clock", setting.sm_mhz, reading.sm_mhz, reading.throttle),
        _clock("memory clock", setting.mem_mhz, reading.mem_mhz, reading.throttle),
        _limit(setting.power_limit_w, reading.power_limit_w),
    )
    told = [part for part in parts if part is not None]
    return "; ".join(told) or None


def _clock(name: str, asked_mhz: int | None, seen_mhz: int | None, throttle: Throttle | None) -> str | None:
    if asked_mhz is None or seen_mhz is None:
        return None
    if abs(seen_mhz - asked_mhz) <= CLOCK_SLACK * asked_mhz:
        return None
    if seen_mhz < asked_mhz and (throttle is None or throttle & _EXCUSES):
        return None
    reason = "" if throttle is None or not throttle.words else f" ({', '.join(throttle.words)})"
    return f"{name} of {asked_mhz} MHz was asked for and {seen_mhz} MHz holds{reason}"


def _limit(asked_w: float | None, seen_w: float | None) -> str | None:
    if asked_w is None or seen_w is None or abs(seen_w - asked_w) <= LIMIT_SLACK_W:
        return None
    return f"power limit of {asked_w:g} W was asked for and {seen_w:g} W holds"
