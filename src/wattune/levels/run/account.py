"""What has passed of a run: how long at which gear, so that the promise can be kept on the whole of it."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.core.run_window import Window
from wattune.response.evidence import Scale
from wattune.response.program_ensemble import Gear


@dataclass(frozen=True, slots=True)
class Account:
    """Seconds and windows at each gear; what passed while a gear settled counts with it."""

    seconds: dict[Gear, float]
    windows: dict[Gear, int]

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self.seconds.values())


def account(windows: tuple[Window, ...], scale: Scale) -> Account:
    """The account of these windows."""
    seconds: dict[Gear, float] = {}
    counts: dict[Gear, int] = {}
    for window in windows:
        gear = scale.gear(window.setting, window.sm_mhz)
        seconds[gear] = seconds.get(gear, 0.0) + window.cost.time_s + window.settling.time_s
        counts[gear] = counts.get(gear, 0) + 1
    return Account(seconds, counts)
