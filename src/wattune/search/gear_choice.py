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
from wattune.core.objective import Deadline, Objective, PowerBudget
from wattune.search.cost_values import values
from wattune.search.gear_bank import Floats, Gear
from wattune.search.gear_belief import Belief
from wattune.search.run_account import Account

_NOTHING = 1e-6
HOPE = 0.7
"""Standard deviations by which things may turn out better than expected, when it is asked what more could be had."""

CURIOUS = 0.7
"""Standard deviations of its power by which a gear is thought better than expected, so that it gets looked at."""

FRESH = 6
"""Windows until when a gear needs only half the standard deviations to be held: to hold it is how it gets known, and
the whole run keeps the promise meanwhile."""

TRIAL_S = 40.0
"""A trial may be as slow as what passed before pays for, if it takes this long."""

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
    allowed: NDArray[np.bool_]
    """(gears,): sure to keep the promise."""
    guess: int | None
    """The best that is more likely than not to keep it."""
    safe: int | None
    """The best that is sure to keep it; None is the baseline."""
    hope: int | None
    """The best that would keep it if things turned out a little better than expected."""

    @property
    def lost(self) -> float:
        """What more knowledge might be worth: v that the guard band gives away."""
        return max(self.value(self.safe) - self.value(self.hope), 0.0)

    def value(self, place: int | None) -> float:
        """v; nothing for the baseline."""
        return 0.0 if place is None else float(self.worth[place])

    def words(self, place: int | None) -> str:
        """What is expected of a gear."""
        if place is None:
            return "the baseline"
        slower, error = 100 * np.expm1(self.slower[place]), 196 * self.doubt[place]
        return f"{slower:.1f} ± {error:.1f} % slower, {-100 * np.expm1(self.worth[place]):.1f} % saved"


def choose(
    belief: Belief,
    gears: tuple[Gear, ...],
    *,
    base: Gear,
    book: Account,
    objective: Objective,
    ahead_s: float,
    sure: float,
    held_sure: float,
    watts: float,
    default_s: float | None = None,
) -> Choice:
    """The choice among gears, which are the first of the belief."""
    count = len(gears)
    slower, doubt = (column[:count] for column in belief.slower(base))
    power = belief.log_power - belief.log_power[belief.gears.index(base)]
    base_w = watts * float(np.exp(belief.log_power[belief.gears.index(base)]))
    worth = _worth(objective, slower, power[:count], base_w)
    total, spread = _whole(belief, base, book, slower, doubt, ahead_s=ahead_s)
    bound = _physical(gears, base)
    limit = _limit(objective, default_s)
    share = ahead_s / (book.total_s + ahead_s)
    most = np.minimum(total + sure * spread, total - share * slower + share * bound)
    below = np.array([gear.x is None or base.x is None or gear.x <= base.x + 1e-9 for gear in gears])
    power_ok = _within_power(objective, power[:count], base_w)
    fresh = np.array([book.windows.get(gear, 0) < FRESH for gear in gears])
    own = np.minimum(slower + np.where(fresh, held_sure / 2.0, held_sure) * doubt, bound)
    allowed = below & (most <= limit) & (own <= limit) & power_ok
    soon, soon_spread = _whole(belief, base, book, slower, doubt, ahead_s=TRIAL_S)
    paid = below & power_ok & (soon + soon_spread <= limit)
    # What is not known well may be better than it looks, and finding out costs nothing where the promise is kept.
    inviting = worth - CURIOUS * np.sqrt(belief.power_var[:count])
    beat = inf if isinstance(objective, PowerBudget) and base_w > objective.watts else 0.0
    guess = _least(inviting, paid & (total <= limit) & (slower <= limit), beat=beat)
    hope = _least(inviting, paid & (total - HOPE * spread <= limit) & (slower - HOPE * doubt <= limit), beat=beat)
    return Choice(slower, doubt, worth, allowed, guess, _least(inviting, allowed, beat=beat), hope)


def _whole(
    belief: Belief, base: Gear, book: Account, slower: Floats, doubt: Floats, *, ahead_s: float
) -> tuple[Floats, Floats]:
    """(gears,): D and its standard deviation."""
    total_s = book.total_s + ahead_s
    past, variance, together = belief.mixed(base, {gear: s / total_s for gear, s in book.seconds.items()})
    share = ahead_s / total_s
    spread = variance + (share * doubt) ** 2 + 2.0 * share * together[: len(slower)]
    return past + share * slower, np.sqrt(np.maximum(spread, 0.0))


def _physical(gears: tuple[Gear, ...], base: Gear) -> Floats:
    """(gears,): the most that d can be, whatever the program does."""
    return np.array(
        [
            _WAY_EXPONENT * max(log(base.x / gear.x), 0.0)
            if base.x is not None and gear.x is not None and gear.y == base.y
            else inf
            for gear in gears
        ]
    )


def _limit(objective: Objective, default_s: float | None) -> float:
    """The most that D may be; a deadline for work of unknown length allows no slowdown at all."""
    if isinstance(objective, Deadline) and default_s is None:
        return 0.0
    reference = Measurement(default_s or 1.0, 1.0)
    limit_s = objective.limit_s(reference)
    return inf if limit_s is None else log(max(limit_s, 1e-9) / reference.time_s)


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
