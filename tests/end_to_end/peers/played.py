"""What the simulated A100 of these tests plays, straight from the physics."""

from __future__ import annotations

import numpy as np

from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

WORKLOAD = "resnet50"
A100 = load_model("a100")
SPEC = A100.spec(0)
LIMITS = SPEC.power_limits
assert LIMITS is not None
TABLE = tabulate(A100, make_workload(WORKLOAD))[0]
# The energy counter holds its value for a refresh, at each end of a window; no phase draws much more than the limit.
REFRESH_J = (SPEC.sensors.counter_period_s or 0.0) * LIMITS.max_w


def column_within(limit_w: float) -> int:
    """The place of the clock that holds under a power limit: the highest that keeps within it, else the lowest."""
    return int(max(np.flatnonzero(TABLE.mean_power_w <= limit_w), default=0))


def mhz_within(limit_w: float) -> int:
    """The clock that holds under a power limit."""
    return TABLE.sm_mhz[column_within(limit_w)]
