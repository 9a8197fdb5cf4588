"""Values of an objective for arrays of times and energies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattune.core.measurement import Measurement
from wattune.core.objective import (
    J_PER_KWH,
    S_PER_HOUR,
    Deadline,
    EnergyDelay,
    LeastCarbon,
    LeastCost,
    LeastEnergy,
    LeastMoney,
    Objective,
    PowerBudget,
)

Floats = NDArray[np.float64]


def values(objective: Objective, time_s: Floats, energy_j: Floats) -> Floats:
    """Return `objective.value` of each pair of time and energy."""
    match objective:
        case LeastCost(eta, max_power_w):
            return np.asarray(eta * energy_j + (1.0 - eta) * max_power_w * time_s)
        case LeastEnergy() | Deadline():
            return energy_j
        case LeastMoney(per_kwh, per_hour) | LeastCarbon(per_kwh, per_hour):
            return np.asarray(per_kwh / J_PER_KWH * energy_j + per_hour / S_PER_HOUR * time_s)
        case EnergyDelay(power):
            return np.asarray(energy_j * time_s**power)
        case PowerBudget():
            return time_s
        case _:
            one_by_one = [objective.value(Measurement(*cost)) for cost in zip(time_s.flat, energy_j.flat, strict=True)]
            return np.array(one_by_one).reshape(time_s.shape)
