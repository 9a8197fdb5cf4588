"""What it is worth to try a batch size, and what the trial is expected to cost.

Notation
    J       logarithm of the cost of a run at each size, believed normal with means μ and covariance Σ
    s       scatter of one run about its size's J
    C_b     E[exp J_b] = exp(μ_b + Σ_bb/2), * the size that is thought best
    z       standard normal: what a run at b will show, in units of its predictive deviation √(Σ_bb + s²)
    gain    C_* − E_z[min_x C_x after seeing z]: the knowledge gradient (Frazier, Powell and Dayanik 2009), on costs
    excess  E[min(exp J_b − C_*, f·exp J_b)]: a trial that turns out badly is stopped after a share f of it
    harm    the same, without the cases in which the trial is the cheaper
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattune.levels.job.smooth_curve import Belief, Floats

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()

_REPEATS = np.array([1.0, 4.0, 16.0])
"""How many runs at a size are considered together."""

_JUDGED_AFTER, _JUDGED_LATE = 0.3, 0.5
"""Share of a run after which a bad trial is known to be one, usually and at worst; later by a run for every octave
from sizes that work, since learning may look well for long before it stalls."""

_EDGE = 1.0
"""What an untried size may cost more, per octave from sizes that work: learning may fail on either side, abruptly."""

_ONE_IN_TEN = 1.2816
"""Standard deviations that one normal draw in ten exceeds."""


def gains(belief: Belief, sd: float, *, burden: Floats, among: NDArray[np.bool_]) -> Floats:
    """What each run at each size is expected to save every later run, if it is one of as many as serve best.

    `burden` multiplies the cost of each size for runs that miss; `among` (True or False) are the sizes that may be
    chosen later. One run may say too little where several would decide (Frazier and Powell 2010), so the gain of
    several is shared among them.
    """
    level = belief.mean + np.log(burden)
    now = float(np.exp(level + 0.5 * belief.variance)[among].min())
    # Rows are sizes x, columns tried sizes b; layers are how often b is run, and then what is seen.
    told = belief.covariance[:, :, None] / np.sqrt(belief.variance[:, None] + sd**2 / _REPEATS)[None, :, :]
    left = np.maximum(belief.variance[:, None, None] - told**2, 0.0)
    later = (level[:, None, None] + 0.5 * left)[among, :, :, None] + told[among, :, :, None] * _NODES
    cheapest = np.exp(later.min(axis=0)) @ _WEIGHTS
    return np.asarray((np.maximum(now - cheapest, 0.0) / _REPEATS).max(axis=1))


@dataclass(frozen=True, slots=True)
class Stakes:
    """What a trial of each size may cost beside a run at the best one; a run's own luck, which strikes both, aside."""

    excess: Floats
    """Expected."""
    harm: Floats
    """Expected, without the cases in which the trial is the cheaper."""
    bad: Floats
    """What is lost if it goes badly, as one in ten does, or falls off the edge of what works."""


def stakes(belief: Belief, *, best_cost: float, beyond: Floats, first_epoch: Floats) -> Stakes:
    """What is at stake in a trial of each size; `first_epoch` is its share of a run, before which none is stopped.

    `beyond` is how many octaves a size is away from those that work.
    """
    sd = np.sqrt(belief.variance)
    costs = np.exp(belief.mean[:, None] + sd[:, None] * _NODES)
    judged = np.maximum(_JUDGED_AFTER, first_epoch)
    more = np.minimum(costs - best_cost, judged[:, None] * costs)
    likely = np.exp(belief.mean)
    dear = likely * np.maximum(np.exp(_ONE_IN_TEN * sd), 1.0 + _EDGE * beyond)
    late = np.maximum(_JUDGED_LATE + beyond, first_epoch) * likely
    return Stakes(
        more @ _WEIGHTS,
        np.maximum(more, 0.0) @ _WEIGHTS,
        np.maximum(np.minimum(dear - best_cost, late), 0.0),
    )
