"""What was held, and for how long; and the two settings that are held by turns, as the windows show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from wattune.core.setting import Setting
from wattune.core.window import PhaseSetting, Purpose, Window, by_phase_words, since_change

LONGEST_TURN_S = 600.0
"""A setting that is held for longer does not take turns any more."""
LEAST_TURN_S = 30.0
"""A setting that was held for less was not a turn, but a step of the search."""


@dataclass(frozen=True, slots=True)
class HeldFor:
    """A setting, or one for each phase of a step, and how long it was held in all."""

    setting: Setting
    by_phase: tuple[PhaseSetting, ...]
    time_s: float

    @property
    def label(self) -> str:
        return by_phase_words(self.by_phase) or str(self.setting)


def held_for(windows: Sequence[Window]) -> tuple[HeldFor, ...]:
    """Return what was held and for how long, settling included, the longest first."""
    found: dict[object, HeldFor] = {}
    for window in windows:
        if window.purpose is Purpose.HOLD:
            before_s = found[window.point].time_s if window.point in found else 0.0
            found[window.point] = HeldFor(window.setting, window.by_phase, before_s + window.total.time_s)
    return tuple(sorted(found.values(), key=lambda one: -one.time_s))


def turns_of(windows: Sequence[Window]) -> tuple[Setting, ...]:
    """Return the two settings that are held by turns, the faster first; none where one is held."""
    held = [window for window in since_change(windows) if window.purpose is Purpose.HOLD]
    turns = [(setting, sum(one.total.time_s for one in own)) for setting, own in groupby(held, attrgetter("setting"))]
    if len(turns) < 3 or turns[-3][0] != turns[-1][0] or turns[-1][1] > LONGEST_TURN_S:
        return ()
    if min(length_s for _, length_s in turns[-3:-1]) < LEAST_TURN_S:
        return ()
    return tuple(sorted((turns[-2][0], turns[-1][0]), reverse=True))
