"""The orders that our policy gives, and how long their windows last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, inf

import numpy as np
from numpy.typing import NDArray

from wattune.core.measurement import SIGMAS_95
from wattune.core.setting import Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.constrained_choice import Choice, RunSoFar
from wattune.response.evidence import LEAST_STEP_TIME, USUAL_STEP_TIME, Evidence
from wattune.response.program_ensemble import ClockPoint
from wattune.response.program_posterior import ProgramPosterior

USUAL_S = 10.0
"""The length at which a window without an error of its own has the usual one."""


def error_by_length(windows: tuple[Window, ...]) -> Callable[[float], float]:
    """What tells the standard error of a pace, as a share, after so many seconds.

    Errors fall with the root of the time, unless the windows so far show that they do not.
    """
    known = [
        (
            np.log(window.cost.time_s),
            np.log(max(window.step_time_error_s / SIGMAS_95 / window.step_time_s, LEAST_STEP_TIME)),
        )
        for window in windows
        if window.step_time_s and window.step_time_error_s and window.cost.time_s > 0
    ]
    if not known:
        return lambda length_s: USUAL_STEP_TIME / float(np.sqrt(length_s / USUAL_S))
    lengths, errors = (np.array(column) for column in zip(*known, strict=True))
    # A slope that is known before anything is seen: as if two windows an octave either side had shown it.
    spread = float(((lengths - lengths.mean()) ** 2).sum())
    slope = float(((lengths - lengths.mean()) * (errors - errors.mean())).sum())
    power = float(np.clip((slope - 0.5) / (spread + 1.0), -0.5, 0.0))
    middle_s, middle = float(lengths.mean()), float(errors.mean())
    return lambda length_s: max(float(np.exp(middle + power * (np.log(length_s) - middle_s))), LEAST_STEP_TIME)


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


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The settings that may be chosen, and everything about their gears."""

    settings: tuple[Setting, ...]
    points: tuple[ClockPoint, ...]
    base: ClockPoint
    posterior: ProgramPosterior
    choice: Choice
    so_far: RunSoFar
    measured: Evidence

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(gears,): looked at before."""
        return np.array([point in self.so_far.windows for point in self.points])

    @property
    def tried(self) -> int:
        """Gears other than the baseline that were looked at."""
        return len(set(self.so_far.windows) - {self.base})

    @property
    def saving(self) -> float:
        """What is sure to be saved, as a logarithm; never quite nothing, so that no look at the baseline is free."""
        return max(-self.choice.value(self.choice.safe), 0.02)

    def error(self, point: ClockPoint) -> float:
        """Standard error of the pace at a gear by itself; endless where there is none."""
        entry = self.measured.get(point)
        return inf if entry is None or entry.log_step_time is None else entry.log_step_time.error

    def direct(self, place: int) -> tuple[float, float] | None:
        """d by the windows at a gear and at the baseline alone, and its standard error; None without them."""
        entry, base = self.measured.get(self.points[place]), self.measured.get(self.base)
        if entry is None or base is None or entry.log_step_time is None or base.log_step_time is None:
            return None
        return entry.log_step_time.value - base.log_step_time.value, hypot(
            entry.log_step_time.error, base.log_step_time.error
        )


def apart(
    settings: tuple[Setting, ...], points: list[ClockPoint]
) -> tuple[tuple[ClockPoint, ...], tuple[Setting, ...]]:
    """The gears, each once, and a setting for each: of several the one that leaves most to the driver."""
    found: dict[ClockPoint, Setting] = {}
    for point, setting in zip(points, settings, strict=True):
        if point not in found or len(setting.knobs) < len(found[point].knobs):
            found[point] = setting
    return tuple(found), tuple(found.values())


def tells_more(setting: Setting, known: tuple[Window, ...]) -> bool:
    """Whether another window there could tell something: without a pace, one tells all there is."""
    return any(window.step_time_s for window in known) or all(window.setting != setting for window in known)
