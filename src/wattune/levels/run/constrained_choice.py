"""The best setting as far as is known, and the best among those that are sure to meet the slowdown limit.

Notation
    d       logarithm of a setting's time over that of the baseline, with standard deviation σ
    z       standard deviations that make it sure enough
    D       logarithm of the slowdown of the whole run, if the setting is held for some time ahead: Σ share·d
    v       logarithm of the objective's value over that of the baseline
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from wattune.core.measurement import Measurement
from wattune.core.objective import Objective, PowerBudget
from wattune.core.window import Window
from wattune.response.cost_values import values
from wattune.response.points import ClockPoint, PointScale
from wattune.response.posterior import ProgramPosterior
from wattune.response.statistics import Floats

TimeSpent = dict[ClockPoint, float]
"""Seconds at each point; the time in which a point settled counts with it."""

_NOTHING = 1e-6
_OPTIMISM = 0.7
"""Standard deviations by which a setting may be better than expected when a trial is considered."""
_CURIOSITY = 0.7
"""Standard deviations of its power by which a setting is valued above expectation, so that it gets measured."""
TRIAL_S, _TRIAL_SURE = 40.0, 1.65
"""A trial may be as slow as the slack of the run so far surely covers if it lasts this long: at 95 %, since a program
may end right after it."""
_STEEPEST = 1.05
"""A core clock that is lower by some share makes a program slower by at most about that share, at one memory clock."""


def time_spent(windows: tuple[Window, ...], scale: PointScale) -> TimeSpent:
    """Add up the seconds of these windows at each point."""
    seconds: TimeSpent = {}
    for window in windows:
        point = scale.point(window.setting, window.sm_mhz)
        seconds[point] = seconds.get(point, 0.0) + window.cost.time_s + window.settling.time_s
    return seconds


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The settings, by their places, and three of them: None is the baseline."""

    slower: Floats
    """(settings,): d"""
    slower_sd: Floats
    """(settings,): σ"""
    log_value: Floats
    """(settings,): v"""
    allowed: NDArray[np.bool_]
    """(settings,): sure to meet the limit if held"""
    expected: int | None
    """Best if everything is as expected."""
    feasible: int | None
    """Best among those that are allowed."""
    optimistic: int | None
    """Best if things turn out a little better than expected."""

    @property
    def lost(self) -> float:
        """The most that more knowledge could gain: v that the safety margin gives away."""
        return max(self.value(self.feasible) - self.value(self.optimistic), 0.0)

    def value(self, place: int | None) -> float:
        """Return v of a setting; 0 for the baseline."""
        return 0.0 if place is None else float(self.log_value[place])

    def words(self, place: int) -> str:
        """Describe what is expected of a setting."""
        slower, error = 100 * np.expm1(self.slower[place]), 196 * self.slower_sd[place]
        return f"{slower:.1f} ± {error:.1f} % slower, {-100 * np.expm1(self.log_value[place]):.1f} % saved"


def choose(
    posterior: ProgramPosterior,
    points: tuple[ClockPoint, ...],
    *,
    base: ClockPoint,
    spent: TimeSpent,
    objective: Objective,
    ahead_s: float,
    sure: float,
    watts: float,
    trial_s: float = TRIAL_S,
) -> Choice:
    """Choose among points, which are the first of the posterior's; `sure` is z, `watts` the unit of its power."""
    count = len(points)
    slower, slower_sd = (column[:count] for column in posterior.slower(base))
    log_power = posterior.log_power - posterior.log_power[posterior.points.index(base)]
    base_w = watts * float(np.exp(posterior.log_power[posterior.points.index(base)]))
    log_value = _log_values(objective, slower, log_power[:count], base_w)
    bound, limit = _largest_slowdown(points, base), _limit(objective)
    settings = slower, slower_sd, bound
    total, total_sd, most = _whole_run(posterior, base, spent, settings, ahead_s=ahead_s, sure=sure)
    *_, most_after_trial = _whole_run(posterior, base, spent, settings, ahead_s=trial_s, sure=_TRIAL_SURE)
    below = np.array([point.x is None or base.x is None or point.x <= base.x + 1e-9 for point in points])
    possible = below & _within_power(objective, log_power[:count], base_w)
    allowed = possible & (most <= limit) & (np.minimum(slower, bound) <= limit)
    affordable = possible & (most_after_trial <= limit)
    # An uncertain setting may be better than expected, and finding out costs nothing where the limit is met.
    inviting = log_value - _CURIOSITY * np.sqrt(posterior.power_var[:count])
    beat = inf if isinstance(objective, PowerBudget) and base_w > objective.watts else 0.0
    expected = affordable & (total <= limit) & (slower <= limit)
    optimistic = affordable & (total - _OPTIMISM * total_sd <= limit) & (slower - _OPTIMISM * slower_sd <= limit)
    best = [_least(inviting, eligible, beat=beat) for eligible in (expected, allowed, optimistic)]
    return Choice(slower, slower_sd, log_value, allowed, *best)


def _whole_run(
    posterior: ProgramPosterior,
    base: ClockPoint,
    spent: TimeSpent,
    settings: tuple[Floats, Floats, Floats],
    *,
    ahead_s: float,
    sure: float,
) -> tuple[Floats, Floats, Floats]:
    """(settings,): D, its standard deviation, and the most that D can be; from d, σ and the largest d of each setting.

    Physics bounds what is ahead; what has passed is known as well as it was measured.
    """
    slower, slower_sd, bound = settings
    total_s = sum(spent.values()) + ahead_s
    past, variance, together = posterior.mixed(base, {point: s / total_s for point, s in spent.items()})
    share = ahead_s / total_s
    total = past + share * slower
    total_var = variance + (share * slower_sd) ** 2 + 2.0 * share * together[: len(slower)]
    total_sd = np.sqrt(np.maximum(total_var, 0.0))
    past_most = total - share * slower + sure * float(np.sqrt(max(variance, 0.0)))
    return total, total_sd, np.minimum(total + sure * total_sd, past_most + share * bound)


def _largest_slowdown(points: tuple[ClockPoint, ...], base: ClockPoint) -> Floats:
    """(settings,): the most that d can be, whatever the program does."""
    return np.array(
        [
            _STEEPEST * max(log(base.x / point.x), 0.0)
            if base.x is not None and point.x is not None and point.y == base.y
            else inf
            for point in points
        ]
    )


def _limit(objective: Objective) -> float:
    """Return the largest D that the objective allows."""
    limit_s = objective.limit_s(Measurement(1.0, 1.0))
    return inf if limit_s is None else log(max(limit_s, 1e-9))


def _log_values(objective: Objective, slower: Floats, log_power: Floats, base_w: float) -> Floats:
    one = np.ones(1)
    base = values(objective, one, base_w * one)
    return np.asarray(np.log(values(objective, np.exp(slower), base_w * np.exp(slower + log_power)) / base))


def _within_power(objective: Objective, log_power: Floats, base_w: float) -> NDArray[np.bool_]:
    if isinstance(objective, PowerBudget):
        return np.asarray(base_w * np.exp(log_power) <= objective.watts)
    return np.ones(len(log_power), dtype=np.bool_)


def _least(log_value: Floats, eligible: NDArray[np.bool_], *, beat: float) -> int | None:
    """Return the place of the least value; None where no eligible one is below `beat`, the baseline's."""
    if not eligible.any():
        return None
    place = int(np.argmin(np.where(eligible, log_value, np.inf)))
    return place if log_value[place] < beat - _NOTHING else None
