"""Two settings that are held by turns, as the windows show them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from wattune.core.setting import Setting
from wattune.core.window import Purpose, Window, since_change

LONGEST_TURN_S = 600.0
"""A setting that is held for longer does not take turns any more."""
LEAST_TURN_S = 30.0
"""A setting that was held for less was not a turn, but a step of the search."""


def turns_of(windows: Sequence[Window]) -> tuple[Setting, ...]:
    """Return the two settings that are held by turns, the faster first; none where one is held."""
    held = [window for window in since_change(windows) if window.purpose is Purpose.HOLD]
    turns = [(setting, sum(one.total.time_s for one in own)) for setting, own in groupby(held, attrgetter("setting"))]
    if len(turns) < 3 or turns[-3][0] != turns[-1][0] or turns[-1][1] > LONGEST_TURN_S:
        return ()
    if min(length_s for _, length_s in turns[-3:-1]) < LEAST_TURN_S:
        return ()
    return tuple(sorted((turns[-2][0], turns[-1][0]), reverse=True))
