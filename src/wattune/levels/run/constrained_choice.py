"""The best setting as far as is known, or the best two by turns, and what is sure to meet the slowdown limit.

Notation
    d       logarithm of a setting's time over that of the baseline, with standard deviation σ
    L       the slowdown limit: 1.05 for 5 %
    r       work in a second, in seconds that the baseline takes for it: exp(−d)
    S       slack of the whole run: Σ seconds·(L·r − 1), so that the limit is met where S ≥ 0
    z       standard deviations that make it sure enough
    v       logarithm of the objective's value over that of the baseline
The error of a sum is at most the sum of the errors. So slack that is sure (S − z times its error) adds up when two
settings are held by turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from wattune.core.measurement import Measurement
from wattune.core.objective import Objective, PowerBudget
from wattune.core.window import Window
from wattune.levels.run.mixture import Mixture, best_mixture, best_single
from wattune.response.cost_values import values
from wattune.response.points import ClockPoint, PointScale
from wattune.response.posterior import ProgramPosterior
from wattune.response.statistics import Floats

TimeSpent = dict[ClockPoint, float]
"""Seconds at each point; the time in which a point settled counts with it."""

_OPTIMISM = 0.7
"""Standard deviations by which a setting may be better than expected when a trial is considered."""
_CURIOSITY = 0.7
"""Standard deviations of its power by which a setting is valued above expectation, so that it gets measured."""
TRIAL_S, _TRIAL_SURE = 40.0, 1.65
"""A trial may be as slow as the slack of the run so far surely covers if it lasts this long: at 95 %, since a program
may end right after it."""
WORTH_TURNS = 0.005
"""Share of the energy that two settings by turns must save beyond the best single one."""
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
    """The settings, by their places, and mixtures of them: None where nothing meets the limit."""

    slower: Floats
    """(settings,): d"""
    slower_sd: Floats
    """(settings,): σ"""
    log_value: Floats
    """(settings,): v"""
    sure_s: float
    """S so far, as far as it is sure."""
    held_s: Floats
    """(settings,): the same if the setting is held for `ahead_s`; −∞ where it may not be held at all."""
    ahead_s: float
    affordable: NDArray[np.bool_]
    """(settings,): may be tried"""
    feasible: Mixture | None
    """Best that is sure: one that meets the limit for `ahead_s`, or two by turns that meet it over the horizon."""
    expected: Mixture | None
    """Best if everything is as expected."""
    optimistic: Mixture | None
    """Best if things turn out a little better than expected."""
    alike: Mixture | None
    """The same, but one setting that meets the limit by itself where the feasible one is one."""
    base_cost: float
    """Share of its energy that a second at the baseline wastes; slack that it earns counts where turns spend it."""

    @property
    def lost(self) -> float:
        """The most that more knowledge could gain, as a difference of v."""
        return max(_value(self.feasible) - _value(self.optimistic), 0.0)

    @property
    def margin(self) -> float:
        """v that the safety margin gives away without a change from one setting to turns."""
        return max(_value(self.feasible) - _value(self.alike), 0.0)

    def allowed(self, place: int) -> bool:
        """Return whether the run is sure to meet the limit if the setting is held for `ahead_s`."""
        return bool(self.held_s[place] >= 0.0)

    def earned(self, place: int) -> float:
        """Return the slack that a second at the setting surely earns; negative where it spends slack."""
        return float(self.held_s[place] - self.sure_s) / self.ahead_s

    def words(self, place: int) -> str:
        """Describe what is expected of a setting."""
        slower, error = 100 * np.expm1(self.slower[place]), 196 * self.slower_sd[place]
        return f"{slower:z.1f} ± {error:.1f} % slower, {-100 * np.expm1(self.log_value[place]):z.1f} % saved"


def choose(
    posterior: ProgramPosterior,
    points: tuple[ClockPoint, ...],
    *,
    base: ClockPoint,
    spent: TimeSpent,
    objective: Objective,
    ahead_s: float,
    horizon_s: float,
    sure: float,
    watts: float,
    trial_s: float = TRIAL_S,
    by_turns: bool = True,
) -> Choice:
    """Choose among points, which are the first of the posterior's, the baseline among them.

    `sure` is z, `watts` the unit of the posterior's power. Slack is spent over `horizon_s`; what is held is judged
    again after `ahead_s`. `by_turns` is whether two settings may be held by turns.
    """
    count = len(points)
    slower, slower_sd = (column[:count] for column in posterior.slower(base))
    log_power = posterior.log_power - posterior.log_power[posterior.points.index(base)]
    base_w = watts * float(np.exp(posterior.log_power[posterior.points.index(base)]))
    log_value = _log_values(objective, slower, log_power[:count], base_w)
    run = _WholeRun.of(posterior, points, base=base, spent=spent, limit=_limit(objective))
    below = np.array([point.x is None or base.x is None or point.x <= base.x + 1e-9 for point in points])
    possible = below & _within_power(objective, log_power[:count], base_w)
    affordable = possible & (run.sure_s(trial_s, sure=_TRIAL_SURE) >= 0.0)
    tried = np.array([point in posterior.pivots for point in points])
    # An uncertain setting may be better than expected, and finding out costs nothing where the limit is met.
    inviting = np.exp(log_value - _CURIOSITY * np.sqrt(posterior.power_var[:count]))
    slack = {z: run.sure_s(horizon_s, sure=z) / (horizon_s * run.rate) for z in (sure, 0.0, -_OPTIMISM)}
    held_s = np.where(possible, run.sure_s(ahead_s, sure=sure), -inf)
    known = affordable | (possible & tried)
    alone = (held_s >= 0.0) & ((slack[sure] >= 0.0) | run.meets(slower_sd, 0.0))
    best = partial(_best, inviting, log_value, by_turns=by_turns)
    feasible = best(slack[sure], alone=alone, mixed=possible & ((slack[sure] < 0.0) | (held_s >= 0.0)))
    expected, optimistic = (best(slack[z], alone=known & (slack[z] >= 0.0), mixed=known) for z in (0.0, -_OPTIMISM))
    alike = optimistic
    if feasible is not None and feasible.is_one:
        alike = best(slack[0.0], alone=known & run.meets(slower_sd, -_OPTIMISM), mixed=~possible)
    base_cost = 1.0
    if feasible is not None:
        base_cost = 1.0 - feasible.value - feasible.price * float(slack[sure][points.index(base)])
    return Choice(
        slower=slower,
        slower_sd=slower_sd,
        log_value=log_value,
        sure_s=run.passed_s(sure=sure),
        held_s=held_s,
        ahead_s=ahead_s,
        affordable=affordable,
        feasible=feasible,
        expected=expected,
        optimistic=optimistic,
        alike=alike,
        base_cost=base_cost,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _WholeRun:
    """S of the run so far, and what each setting adds to it."""

    limit: float
    """L"""
    past_s: float
    past_var: float
    rate: Floats
    """(settings,): r"""
    rate_sd: Floats
    together: Floats
    """(settings,): covariance of the past's work with r"""
    least_rate: Floats
    """(settings,): the least that r can be, whatever the program does"""

    def meets(self, slower_sd: Floats, sure: float) -> NDArray[np.bool_]:
        """(settings,): whether each meets the limit by itself, as far as that is sure"""
        rate = np.maximum(self.rate * np.exp(-sure * slower_sd), self.least_rate)
        return np.asarray(self.limit * rate >= 1.0)

    @classmethod
    def of(
        cls,
        posterior: ProgramPosterior,
        points: tuple[ClockPoint, ...],
        *,
        base: ClockPoint,
        spent: TimeSpent,
        limit: float,
    ) -> _WholeRun:
        count = len(points)
        slower, slower_sd = posterior.slower(base)
        work_s = {point: s * float(np.exp(-slower[posterior.points.index(point)])) for point, s in spent.items()}
        _, variance, together = posterior.mixed(base, work_s)
        rate = np.exp(-slower[:count])
        past_s = limit * sum(work_s.values()) - sum(spent.values())
        least_rate = np.exp(-_largest_slowdown(points, base))
        return cls(limit, past_s, variance, rate, rate * slower_sd[:count], rate * together[:count], least_rate)

    def passed_s(self, *, sure: float) -> float:
        """Return S so far, as far as it is sure."""
        return 0.0 if self.limit == inf else self.past_s - sure * self.limit * float(np.sqrt(self.past_var))

    def sure_s(self, ahead_s: float, *, sure: float) -> Floats:
        """Return S if each setting is held for so long, as far as it is sure: (settings,).

        Physics bounds what is ahead; what has passed is known as well as it was measured.
        """
        if self.limit == inf:
            return np.zeros(len(self.rate))
        variance = self.past_var + (ahead_s * self.rate_sd) ** 2 + 2.0 * ahead_s * self.together
        error = self.limit * np.sqrt(np.maximum(variance, 0.0))
        found = self.past_s + ahead_s * (self.limit * self.rate - 1.0) - sure * error
        if sure <= 0.0:
            return found
        return np.maximum(found, self.passed_s(sure=sure) + ahead_s * (self.limit * self.least_rate - 1.0))


def _best(
    value: Floats,
    log_value: Floats,
    slack: Floats,
    *,
    alone: NDArray[np.bool_],
    mixed: NDArray[np.bool_],
    by_turns: bool,
) -> Mixture | None:
    """Return the best setting of those that may be held alone, or a mixture that is worth taking turns.

    Its value is the one that is expected, while the best is chosen by `value`.
    """
    one, pair = best_single(value, alone), best_mixture(slack, value, mixed) if by_turns else None
    best = pair if pair is not None and (one is None or log(one.value / pair.value) > WORTH_TURNS) else one
    if best is None:
        return None
    expected = np.exp(log_value[[best.fast, best.slow]])
    return replace(best, value=float(expected[0] + best.share * (expected[1] - expected[0])))


def _value(mixture: Mixture | None) -> float:
    """Return v of a mixture; 0 for the baseline."""
    return 0.0 if mixture is None else log(mixture.value)


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
    """L; infinite where the objective does not limit the time."""
    limit_s = objective.limit_s(Measurement(1.0, 1.0))
    return inf if limit_s is None else max(limit_s, 1e-9)


def _log_values(objective: Objective, slower: Floats, log_power: Floats, base_w: float) -> Floats:
    one = np.ones(1)
    base = values(objective, one, base_w * one)
    return np.asarray(np.log(values(objective, np.exp(slower), base_w * np.exp(slower + log_power)) / base))


def _within_power(objective: Objective, log_power: Floats, base_w: float) -> NDArray[np.bool_]:
    if isinstance(objective, PowerBudget):
        return np.asarray(base_w * np.exp(log_power) <= objective.watts)
    return np.ones(len(log_power), dtype=np.bool_)
