"""Where to look next, when a gear must be proved before it is held: what might be had, and which look tells most of it.

Notation
    d, σ    logarithm of a gear's time over that of the baseline, and its standard deviation
    v, σ_v  logarithm of the objective's value over that of the baseline, and its standard deviation
    s       the gear that would be held now
    z       how many standard deviations make it sure enough
    ρ       the standard deviation of d down to which a gear can be studied
    I       expected improvement of a gear over s: E[(v_s − v)⁺]·P(d + z·ρ ≤ limit)  (Gardner et al. 2014)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from wattune.levels.run.constrained_choice import Choice, RunSoFar
from wattune.response.ensemble import Floats
from wattune.response.program_ensemble import ClockPoint
from wattune.response.program_posterior import ProgramPosterior

RESOLVED = 0.0012
"""ρ: some seventy windows of 1 % at the gear and as many at the baseline."""

WORTH_NEW, WORTH_AGAIN = 0.0002, 0.0003
"""Improvement for which a gear that is allowed for is looked at, which takes seconds; and for which one is studied."""

RARE = 2.0
"""A new gear is looked at where that tells so many times as much, in variance, as another look at a known one."""

DOUBTFUL, DIRECT = 3.0, 2.0
"""What is held is looked at further until it keeps the promise by so many standard deviations; and by so many where the
curves that the belief rests on do not count, because a recorded row may lie off them."""

ODD, ODD_SPREAD = 0.05, 0.03
"""How many of recorded rows lie off what their neighbours say, and by how much: Zeus's tables of epochs have such."""

SLACK_S = 60.0
"""What passes at the baseline first, where what is worth a look is not paid for yet: timid looks would waste gears."""

_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Study:
    """A look that is worth its while."""

    target: int
    """The place of the gear that it is about."""
    place: int | None
    """The place of the gear to look at; None is the baseline."""
    left: float
    """I of the target."""


def study(
    posterior: ProgramPosterior,
    choice: Choice,
    *,
    base: ClockPoint,
    so_far: RunSoFar,
    sure: float,
    look_error: float,
    spare: int,
    least: float = 0.0,
) -> Study | None:
    """The look that tells most of the gear that promises most; None where nothing promises enough.

    `look_error` is the standard error of a look's pace; `spare` is how many gears may be looked at that were not yet;
    `least` is the improvement that pays for the looks.
    """
    count = len(choice.slower)
    looks = np.array([so_far.windows.get(point, 0) for point in posterior.points[:count]])
    known = looks > 0
    # A handful of gears can all be looked at. Of many, the last look is kept for one that is sure by then.
    handful = spare >= int((~known).sum())
    kept = _kept(choice, known, sure=sure)
    hoped = _gain(choice, most=look_error / np.sqrt(np.maximum(looks, 0.1))) * kept
    worth = np.where(known, max(WORTH_AGAIN, least), 0.0 if handful else WORTH_NEW)
    hoped = np.where((hoped >= worth) & (known | handful | (spare > 1)), hoped + _LEAST, 0.0)
    if choice.safe is not None:
        hoped[choice.safe] = 0.0
    paid = np.where(choice.paid, hoped, 0.0)
    if so_far.total_s < SLACK_S and hoped.max() > paid.max():
        return Study(int(np.argmax(hoped)), None, float(hoped.max()))
    if not paid.any():
        return None
    # To halve the variance at a gear takes as many looks as there were.
    target = int(np.argmax(paid / np.maximum(looks, 1)))
    place: int | None = target
    if not choice.allowed[target] and (known[target] or kept[target] > ODD):
        place = _telling(posterior, target, base=base, known=known, paid=choice.paid, look_error=look_error)
    return Study(target, place, float(paid[target]))


def _gain(choice: Choice, *, most: Floats) -> Floats:
    """(gears,): E[(v_s − v)⁺], where σ_v is at most that of the looks at a gear by themselves."""
    better = choice.value(choice.safe) - choice.worth
    spread = np.maximum(np.minimum(choice.worth_doubt, most), _LEAST)
    ratio = better / spread
    return np.asarray(better * ndtr(ratio) + spread * np.exp(-0.5 * ratio**2) / np.sqrt(2.0 * np.pi))


def _kept(choice: Choice, known: NDArray[np.bool_], *, sure: float) -> Floats:
    """(gears,): P(d + z·ρ ≤ limit)"""
    room = choice.limit - choice.slower - sure * RESOLVED
    even = ndtr(room / np.maximum(choice.doubt, _LEAST))
    odd = ndtr(room / np.hypot(choice.doubt, ODD_SPREAD))
    return np.asarray(np.where(known, even, (1.0 - ODD) * even + ODD * odd))


def doubtful(choice: Choice, place: int, *, direct: tuple[float, float] | None) -> bool:
    """Whether what is held might still break the promise: by what is believed, or by the windows there alone.

    `direct` is d by these windows, and its standard error.
    """
    if direct is None or direct[0] + DIRECT * direct[1] > choice.limit:
        return True
    return bool(choice.slower[place] + DOUBTFUL * choice.doubt[place] > choice.limit)


def _telling(
    posterior: ProgramPosterior,
    target: int,
    *,
    base: ClockPoint,
    known: NDArray[np.bool_],
    paid: NDArray[np.bool_],
    look_error: float,
) -> int | None:
    """The place whose pace tells most of d at the target; None is the baseline."""
    home = posterior.points.index(base)
    told: dict[int | None, float] = {}
    for pivot, point in enumerate(posterior.pivots):
        place = posterior.points.index(point)
        inside = place < len(known)
        if place != home and not (inside and paid[place]):
            continue
        cov = posterior.time_cov[target, pivot] - posterior.time_cov[home, pivot]
        told[None if place == home else place] = cov**2 / (posterior.time_var[place] + look_error**2)
    best = max(told, key=lambda place: told[place])
    if known[target]:
        return best
    own = posterior.time_var[target] - posterior.time_cov[target, posterior.pivots.index(base)]
    new = own**2 / (posterior.time_var[target] + look_error**2)
    return target if new > RARE * told[best] else best
