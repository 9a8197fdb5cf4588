"""The posterior of the run level as curves, so that a search over clocks weighs them as it weighs an ensemble's.

What is known of a program at each setting is a normal distribution of log time and log power, relative to the highest
setting that was measured. Nodes of that distribution stand for curves: z standard deviations off at every setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

import numpy as np

from wattune.core.measurement import Measurement
from wattune.core.objective import Objective
from wattune.core.setting import Setting
from wattune.response.evidence import EvidencePoint
from wattune.response.points import ClockPoint
from wattune.response.posterior import CurvePosterior, posterior_of, valued_curves
from wattune.response.statistics import normal_nodes

_NODES = 5
"""Per quantity: time and power are independent."""


def program_curves(
    settings: tuple[Setting, ...],
    points: tuple[ClockPoint, ...],
    measured: Mapping[Setting, EvidencePoint],
    *,
    free_power: bool,
    watts: float,
    objective: Objective,
    reference: Measurement | None,
) -> CurvePosterior:
    """Return the posterior of the settings, each at its point; `watts` is the unit of power in the measurements."""
    at = dict(zip(settings, points, strict=True))
    known = posterior_of(points, {at[one]: entry for one, entry in measured.items()}, free_power=free_power)
    pivot = at[max(measured)]
    slower, slower_sd = known.slower(pivot)
    base = measured[max(measured)].log_time
    assert base is not None
    places = [known.points.index(point) for point in points]
    nodes, weights = normal_nodes(_NODES)
    by_time, by_power = (grid.reshape(-1, 1) for grid in np.meshgrid(nodes, nodes))
    log_time = base.value + slower[places] + by_time * slower_sd[places]
    log_power = known.log_power[places] + by_power * np.sqrt(known.power_var[places]) + log(watts)
    # The nodes cover what is not known; a second window at one setting shows no more than one beside it.
    no_error = np.zeros_like(log_time)
    return valued_curves(
        settings,
        windows=np.array([measured[one].windows if one in measured else 0.0 for one in settings]),
        weights=np.outer(weights, weights).ravel(),
        log_time=log_time,
        log_power=log_power,
        time_error=no_error,
        power_error=no_error,
        objective=objective,
        reference=reference,
    )
