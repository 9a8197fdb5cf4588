"""Power of one steady load against the core clock: P = P0 + a·f·v(f)².

Notation
    f       core clock, F the highest of the fit
    P0      what does not switch with the clock; given over the largest power measured
    a       what does, at f = F and floor voltage; given over the same
    v(f)    voltage of `voltage`, with knee and rise
The source of the form: Price et al. 2016 and Schoonhoven et al. 2022 ("Going green"); the priors of knee and rise are
rounded from fits to Pascal, Volta, Turing and Ampere parts (0.65 to 0.77, and 1.19 to 1.44).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from wattune.physics.fit.prior import Estimate, Prior, logistic, logit, most_likely
from wattune.physics.fit.voltage import voltage
from wattune.physics.load_table import Floats

PRIORS = (
    Prior(log(0.15), 0.6),  # P0
    Prior(log(0.5), 0.6),  # a
    Prior(logit(0.70), 0.3),  # knee
    Prior(log(0.28), 0.3),  # rise
)
_POWER_SD = 0.01
"""Repeated readings of one steady load differ by about 1 %."""
_KNEES = (0.55, 0.63, 0.70, 0.76, 0.82)
"""Where to start: the cost has a valley for each pair of neighbouring points that may hold the knee."""


@dataclass(frozen=True, slots=True, eq=False)
class PowerCurve:
    """A fitted curve."""

    estimate: Estimate
    highest_mhz: float
    largest_w: float

    def power_w(self, sm_mhz: Floats) -> Floats:
        """(clocks,): what the load draws."""
        return _power(self.estimate.values, sm_mhz / self.highest_mhz) * self.largest_w

    @property
    def constant_w(self) -> float:
        """P0."""
        return float(np.exp(self.estimate.values[0])) * self.largest_w

    @property
    def w_per_ghz(self) -> float:
        """What switches with the clock, per GHz at floor voltage."""
        return float(np.exp(self.estimate.values[1])) * self.largest_w / self.highest_mhz * 1000.0

    @property
    def knee_mhz(self) -> float:
        """The clock at which the voltage begins to rise."""
        return float(logistic(self.estimate.values[2])) * self.highest_mhz

    @property
    def ratio(self) -> float:
        """v at the highest clock."""
        return 1.0 + float(np.exp(self.estimate.values[3]))


def fit_power(sm_mhz: Floats, power_w: Floats) -> PowerCurve:
    """The most likely curve through these points."""
    highest_mhz, largest_w = float(sm_mhz.max()), float(power_w.max())
    clock, measured = sm_mhz / highest_mhz, np.log(power_w / largest_w)

    def errors(values: Floats) -> Floats:
        return (np.log(_power(values, clock)) - measured) / _POWER_SD

    means = np.array([prior.mean for prior in PRIORS])
    starts = [np.array([*means[:2], logit(knee), means[3]]) for knee in _KNEES]
    return PowerCurve(most_likely(errors, PRIORS, starts), highest_mhz, largest_w)


def _power(values: Floats, clock: Floats) -> Floats:
    knee, rise = float(logistic(values[2])), float(np.exp(values[3]))
    return np.asarray(np.exp(values[0]) + np.exp(values[1]) * clock * voltage(clock, knee=knee, rise=rise) ** 2)
