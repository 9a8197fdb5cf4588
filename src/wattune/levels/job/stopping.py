"""When a run should end: when what it may still bring is worth less than what it may still waste.

A trial may bring a cheaper end of this recurrence and a better size for later ones; what it has spent is gone either
way, and it can still be stopped later. A run at the best size is let go on however slow it is, up to a few times what
that size has needed: whatever slows it (a change of the data, most likely) would slow the run that replaced it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, exp, log, sqrt

import numpy as np

_PATIENCE = 3.0
"""A run of a known size is hopeless at so many times the most epochs that the size has needed."""

_LOOK = 0.1
"""Share of a run of the best size after which it is looked at anew: what the chance to find out costs at most."""

_MOST = 2.0
"""Runs of the best size that a trial may cost: one that is dearer is of no use, however near its end it seems."""

_HOPELESS = 2.0
"""What is still to come if the run never reaches the target, in runs of the best size: some more waste, then that."""

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_STANDARD = [(float(z), float(w / _WEIGHTS.sum())) for z, w in zip(_NODES, _WEIGHTS, strict=True)]


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a trial stands: epochs passed, what is believed of the epochs it needs, and costs.

    Costs are in runs of the best size known, so that a run which would replace this one costs 1.
    """

    epochs: int
    max_epochs: int
    log_epochs: float
    sd: float
    miss: float
    """How likely it was, before it began, that the run would never reach the target."""
    epoch_cost: float
    horizon: float
    """How many later runs a better size would serve."""

    @property
    def never(self) -> float:
        """How likely the run never reaches the target, now that it has not so far."""
        beyond = 1.0 - _phi((log(max(self.epochs, 0.5)) - self.log_epochs) / self.sd)
        capped = 1.0 - _phi((log(self.max_epochs + 0.5) - self.log_epochs) / self.sd)
        never = self.miss + (1.0 - self.miss) * capped
        return never / max(self.miss + (1.0 - self.miss) * beyond, 1e-12)

    @property
    def pays(self) -> bool:
        """Whether it pays to go on: chances for this run and later ones against the cost of another look."""
        spent = self.epochs * self.epoch_cost
        if spent > _MOST:
            return False
        chance = risk = 0.0
        for weight, cost in self._costs():
            to_come = cost - spent
            chance += weight * (max(1.0 - to_come, 0.0) + self.horizon * max(1.0 - cost, 0.0))
            risk += weight * min(max(to_come - 1.0, 0.0), _LOOK)
        return chance >= risk

    def _costs(self) -> list[tuple[float, float]]:
        """What the run may cost in all, each with its likelihood."""
        never = min(self.never, 1.0)
        costs = [(never, self.epochs * self.epoch_cost + _HOPELESS)]
        left = [(w, exp(self.log_epochs + self.sd * z)) for z, w in _STANDARD]
        left = [(w, epochs) for w, epochs in left if self.epochs < epochs <= self.max_epochs]
        # Where nearly all of the belief is behind the run, what is left is little more than one epoch ahead.
        left = left or [(1.0, min(self.epochs + 1.0, float(self.max_epochs)))]
        whole = sum(w for w, _ in left)
        return costs + [((1.0 - never) * w / whole, epochs * self.epoch_cost) for w, epochs in left]


def combined(law: tuple[float, float], curve: tuple[float, float]) -> tuple[float, float]:
    """Mean and standard deviation of what a law and a learning curve (each mean and deviation) say together.

    Where they disagree by more than two deviations the law gives way: it is of other sizes, the curve of this one.
    """
    apart = (law[0] - curve[0]) ** 2 / (law[1] ** 2 + curve[1] ** 2)
    law_variance, curve_variance = law[1] ** 2 * max(1.0, apart / 4.0), curve[1] ** 2
    weight = curve_variance / (law_variance + curve_variance)
    return weight * law[0] + (1.0 - weight) * curve[0], sqrt(weight * law_variance)


def patience(longest: int, stopped_before: int) -> float:
    """The epochs after which a run of a known size is given up; twice as many after each one that was."""
    return _PATIENCE * longest * 2.0**stopped_before


def _phi(z: float) -> float:
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))
