"""Which gear is best, as far as is known, and which is best among those sure to keep the promise.

Notation
    d       logarithm of a gear's time over that of the baseline, with standard deviation σ
    z       how many standard deviations make it sure enough
    D       logarithm of the slowdown of the whole run, had the gear been held for some time ahead: Σ share·d
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
from wattune.response.ensemble import Floats
from wattune.response.evidence import LEAST_POWER, EvidenceScale
from wattune.response.program_ensemble import ClockPoint
from wattune.response.program_posterior import ProgramPosterior


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """Seconds and windows at each gear; what passed while a gear settled counts with it."""

    seconds: dict[ClockPoint, float]
    windows: dict[ClockPoint, int]

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self.seconds.values())


def account(windows: tuple[Window, ...], scale: EvidenceScale) -> RunSoFar:
    """The account of these windows."""
    seconds: dict[ClockPoint, float] = {}
    counts: dict[ClockPoint, int] = {}
    for window in windows:
        point = scale.point(window.setting, window.sm_mhz)
        seconds[point] = seconds.get(point, 0.0) + window.cost.time_s + window.settling.time_s
        counts[point] = counts.get(point, 0) + 1
    return RunSoFar(seconds, counts)


_NOTHING = 1e-6
HOPE = 0.7
"""Standard deviations by which things may turn out better than expected, when it is asked what more could be had."""

CURIOUS = 0.7
"""Standard deviations of its power by which a gear is thought better than expected, so that it gets looked at."""

TRIAL_S, PAID = 40.0, 1.65
"""A trial may be as slow as what passed before surely pays for, if it takes this long: at 95 %, since a program may end
right after it."""

_WAY_EXPONENT = 1.05
"""A clock that is lower by some share makes nothing slower by more than about that share, at the same memory clock."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The gears that may be chosen, by place."""

    slower: Floats
    """(gears,): d"""
    doubt: Floats
    """(gears,): σ"""
    worth: Floats
    """(gears,): v"""
    worth_doubt: Floats
    """(gears,): standard deviation of v, as far as looks can lessen it"""
    limit: float
    """The most that D may be."""
    allowed: NDArray[np.bool_]
    """(gears,): sure to keep the promise."""
    paid: NDArray[np.bool_]
    """(gears,): what passed before pays for a trial."""
    guess: int | None
    """The best that is more likely than not to keep it."""
    safe: int | None
    """The best that is sure to keep it; None is the baseline."""
    hope: int | None
    """The best that would keep it if things turned out a little better than expected."""
    beat: float = 0.0
    """What v must be below to be chosen: the baseline's, or anything where the baseline itself is not allowed."""

    @property
    def lost(self) -> float:
        """What more knowledge might be worth: v that the guard band gives away."""
        return max(self.value(self.safe) - self.value(self.hope), 0.0)

    def value(self, place: int | None) -> float:
        """v; nothing for the baseline."""
        return 0.0 if place is None else float(self.worth[place])

    def best(self, eligible: NDArray[np.bool_]) -> int | None:
        """The place of least v among some; None where none of them is better than the baseline."""
        return _least(self.worth, eligible, beat=self.beat)

    def words(self, place: int | None) -> str:
        """What is expected of a gear."""
        if place is None:
            return "the baseline"
        slower, error = 100 * np.expm1(self.slower[place]), 196 * self.doubt[place]
        return f"{slower:.1f} ± {error:.1f} % slower, {-100 * np.expm1(self.worth[place]):.1f} % saved"


def choose(
    posterior: ProgramPosterior,
    points: tuple[ClockPoint, ...],
    *,
    base: ClockPoint,
    so_far: RunSoFar,
    objective: Objective,
    ahead_s: float,
    sure: float,
    held_sure: float,
    watts: float,
    most_points: int | None = None,
) -> Choice:
    """The choice among gears, which are the first of the belief."""
    count = len(points)
    slower, doubt = (column[:count] for column in posterior.slower(base))
    power = posterior.log_power - posterior.log_power[posterior.points.index(base)]
    base_w = watts * float(np.exp(posterior.log_power[posterior.points.index(base)]))
    worth = _worth(objective, slower, power[:count], base_w)
    total, spread = _whole(posterior, base, so_far, slower, doubt, ahead_s=ahead_s)
    bound = _physical(points, base)
    limit = _limit(objective)
    share = ahead_s / (so_far.total_s + ahead_s)
    # What physics bounds is what comes; what has passed is known as well as it is.
    past = total - share * slower + sure * _past_spread(posterior, base, so_far, ahead_s=ahead_s)
    most = np.minimum(total + sure * spread, past + share * bound)
    below = np.array([point.x is None or base.x is None or point.x <= base.x + 1e-9 for point in points])
    power_ok = _within_power(objective, power[:count], base_w)
    # Where each gear must prove itself, looks at it count for more than what physics says of it.
    proving = held_sure > 0.0
    own = slower + held_sure * doubt
    known = np.array([point in so_far.windows for point in points])
    own = np.where(known & proving, own, np.minimum(own, bound))
    allowed = below & (most <= limit) & (own <= limit) & power_ok
    if most_points is not None and len(set(so_far.windows) - {base}) >= most_points:
        allowed &= known
    soon, soon_spread = _whole(posterior, base, so_far, slower, doubt, ahead_s=TRIAL_S)
    soon_share = TRIAL_S / (so_far.total_s + TRIAL_S)
    soon_past = soon - soon_share * slower + PAID * _past_spread(posterior, base, so_far, ahead_s=TRIAL_S)
    paid = below & power_ok & (np.minimum(soon + PAID * soon_spread, soon_past + soon_share * bound) <= limit)
    # What is not known well may be better than it looks, and finding out costs nothing where the promise is kept.
    inviting = worth - CURIOUS * np.sqrt(posterior.power_var[:count])
    beat = inf if isinstance(objective, PowerBudget) and base_w > objective.watts else 0.0
    guess = _least(inviting, paid & (total <= limit) & (slower <= limit), beat=beat)
    hope = _least(inviting, paid & (total - HOPE * spread <= limit) & (slower - HOPE * doubt <= limit), beat=beat)
    safe = _least(worth if proving else inviting, allowed, beat=beat)
    worth_doubt = np.sqrt(np.maximum(posterior.power_var[:count] - 2.0 * LEAST_POWER**2, 0.0))
    return Choice(slower, doubt, worth, worth_doubt, limit, allowed, paid, guess, safe, hope, beat)


def _whole(
    posterior: ProgramPosterior, base: ClockPoint, so_far: RunSoFar, slower: Floats, doubt: Floats, *, ahead_s: float
) -> tuple[Floats, Floats]:
    """(gears,): D and its standard deviation."""
    total_s = so_far.total_s + ahead_s
    past, variance, together = posterior.mixed(base, {point: s / total_s for point, s in so_far.seconds.items()})
    share = ahead_s / total_s
    spread = variance + (share * doubt) ** 2 + 2.0 * share * together[: len(slower)]
    return past + share * slower, np.sqrt(np.maximum(spread, 0.0))


def _past_spread(posterior: ProgramPosterior, base: ClockPoint, so_far: RunSoFar, *, ahead_s: float) -> float:
    """The standard deviation of what has passed adds to D."""
    total_s = so_far.total_s + ahead_s
    _, variance, _ = posterior.mixed(base, {point: s / total_s for point, s in so_far.seconds.items()})
    return float(np.sqrt(max(variance, 0.0)))


def _physical(points: tuple[ClockPoint, ...], base: ClockPoint) -> Floats:
    """(gears,): the most that d can be, whatever the program does."""
    return np.array(
        [
            _WAY_EXPONENT * max(log(base.x / point.x), 0.0)
            if base.x is not None and point.x is not None and point.y == base.y
            else inf
            for point in points
        ]
    )


def _limit(objective: Objective) -> float:
    """Return the largest D that the objective allows."""
    limit_s = objective.limit_s(Measurement(1.0, 1.0))
    return inf if limit_s is None else log(max(limit_s, 1e-9))


def _worth(objective: Objective, slower: Floats, power: Floats, base_w: float) -> Floats:
    time = np.exp(slower)
    one = np.ones(1)
    base = values(objective, one, base_w * one)
    return np.asarray(np.log(values(objective, time, base_w * np.exp(slower + power)) / base))


def _within_power(objective: Objective, power: Floats, base_w: float) -> NDArray[np.bool_]:
    if isinstance(objective, PowerBudget):
        return np.asarray(base_w * np.exp(power) <= objective.watts)
    return np.ones(len(power), dtype=np.bool_)


def _least(worth: Floats, eligible: NDArray[np.bool_], *, beat: float) -> int | None:
    """The place of least worth; None where nothing eligible is worth less than `beat`, the baseline's."""
    if not eligible.any():
        return None
    place = int(np.argmin(np.where(eligible, worth, np.inf)))
    return place if worth[place] < beat - _NOTHING else None
