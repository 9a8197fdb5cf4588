"""The orders that our policy gives, and how long their windows last."""

from __future__ import annotations

from wattune.core.run_window import Order, Purpose, Window
from wattune.core.setting import Setting
from wattune.levels.run.window_length import error_by_length

LOOKS_S = (10.0, 20.0, 40.0, 80.0)
"""Lengths of later baselines, and of looks at gears that are studied."""
BETWEEN_S = 2.0
"""What passes from look to look, about, while clocks settle."""

_FEW = 4
_PRECISION = 0.006
_HOLD_S, _HOLD_MOST_S = 20.0, 240.0
_HOLD_SHORT_S, _NO_BETTER = 30.0, 0.7
"""Where longer windows are no better, and something is left to be found out, many short ones tell more."""
_AHEAD_S, _AHEAD_SHARE = 60.0, 0.1
"""For how long a setting is thought to be held, when it is asked whether the promise is kept at the end of that: so
long, and this share of what has passed. By then it is looked at again."""


def ahead_s(passed_s: float) -> float:
    """For how long a setting is thought to be held after so much has passed."""
    return _AHEAD_S + _AHEAD_SHARE * passed_s


def baseline_order(setting: Setting, least_s: float, *, most_s: float, why: str) -> Order:
    """A look at the baseline."""
    return Order(
        setting=setting, purpose=Purpose.BASELINE, least_s=least_s, most_s=most_s, precision=_PRECISION, why=why
    )


def hold_order(setting: Setting, known: tuple[Window, ...], *, why: str) -> Order:
    """A setting held, for longer each time."""
    return _held(setting, _hold_s(known), why)


def short_hold_order(setting: Setting, known: tuple[Window, ...], *, why: str) -> Order:
    """The same while something is left to be found out: not for long where longer windows tell no more."""
    expected = error_by_length(known)
    length_s = _hold_s(known)
    if expected(_HOLD_MOST_S) > _NO_BETTER * expected(_HOLD_S):
        length_s = min(length_s, _HOLD_SHORT_S)
    return _held(setting, length_s, why)


def look_s(known: tuple[Window, ...]) -> float:
    """The length of a look that tells most for its time; short as long as too few windows show how errors fall."""
    if len(known) < _FEW:
        return LOOKS_S[0]
    expected = error_by_length(known)
    return min(LOOKS_S, key=lambda length_s: expected(length_s) ** 2 * (length_s + BETWEEN_S))


def _hold_s(known: tuple[Window, ...]) -> float:
    held = sum(window.purpose is Purpose.HOLD for window in known)
    passed_s = sum(window.cost.time_s + window.settling.time_s for window in known)
    return float(min(_HOLD_S * 1.5**held, ahead_s(passed_s), _HOLD_MOST_S))


def _held(setting: Setting, length_s: float, why: str) -> Order:
    return Order(setting=setting, purpose=Purpose.HOLD, least_s=length_s, most_s=length_s, why=why)
