"""How GPOEO and ODPP watch a setting that they hold: by the least and the greatest power since they settled.

Source: the programs that the authors of GPOEO (IEEE TPDS 2022) released. After three quiet checks they sleep 4, 8, 16
and then 32 periods between two. Nothing is ever forgotten.
"""

from __future__ import annotations

from wattune.core.setting import Setting
from wattune.levels.run.procedure import Procedure, holding

_QUIET = 3
_LONGEST_SLEEP = 32
"""In periods."""
_LEAST_SLEEP_S = 20.0
"""Theirs may be shorter where a period is; that makes more windows, and no difference to what is noticed."""


def watched(setting: Setting, *, bound: float, period_s: float, length_s: float, floor_w: float) -> Procedure[float]:
    """Holds a setting until its power above a floor shifts by more than a bound; the shift over the mean."""
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
