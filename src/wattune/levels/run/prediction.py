"""What one step of our policy thinks: what was seen, what is believed, and what that lets it choose."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, inf

import numpy as np
from numpy.typing import NDArray

from wattune.core.run_window import Window
from wattune.core.setting import Setting
from wattune.levels.run.account import Account
from wattune.levels.run.constrained_choice import Choice
from wattune.response.evidence import Evidence
from wattune.response.program_ensemble import Gear
from wattune.response.program_posterior import Belief


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """The settings that may be chosen, and everything about their gears."""

    settings: tuple[Setting, ...]
    gears: tuple[Gear, ...]
    base: Gear
    belief: Belief
    choice: Choice
    book: Account
    points: Evidence

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(gears,): looked at before."""
        return np.array([gear in self.book.windows for gear in self.gears])

    @property
    def tried(self) -> int:
        """Gears other than the baseline that were looked at."""
        return len(set(self.book.windows) - {self.base})

    @property
    def saving(self) -> float:
        """What is sure to be saved, as a logarithm; never quite nothing, so that no look at the baseline is free."""
        return max(-self.choice.value(self.choice.safe), 0.02)

    def error(self, gear: Gear) -> float:
        """Standard error of the pace at a gear by itself; endless where there is none."""
        point = self.points.get(gear)
        return inf if point is None or point.log_pace is None else point.log_pace.error

    def direct(self, place: int) -> tuple[float, float] | None:
        """d by the windows at a gear and at the baseline alone, and its standard error; None without them."""
        point, base = self.points.get(self.gears[place]), self.points.get(self.base)
        if point is None or base is None or point.log_pace is None or base.log_pace is None:
            return None
        return point.log_pace.value - base.log_pace.value, hypot(point.log_pace.error, base.log_pace.error)


def apart(settings: tuple[Setting, ...], gears: list[Gear]) -> tuple[tuple[Gear, ...], tuple[Setting, ...]]:
    """The gears, each once, and a setting for each: of several the one that leaves most to the driver."""
    found: dict[Gear, Setting] = {}
    for gear, setting in zip(gears, settings, strict=True):
        if gear not in found or len(setting.knobs) < len(found[gear].knobs):
            found[gear] = setting
    return tuple(found), tuple(found.values())


def since_change(seen: tuple[Window, ...]) -> tuple[Window, ...]:
    """The windows since the program last began to do something else."""
    last = max((place for place, window in enumerate(seen) if window.changed), default=-1)
    return seen[last + 1 :]


def tells_more(setting: Setting, known: tuple[Window, ...]) -> bool:
    """Whether another window there could tell something: without a pace, one tells all there is."""
    return any(window.pace_s for window in known) or all(window.setting != setting for window in known)
