"""How long a new clock takes to hold, and what the change itself costs.

The old clock holds until the new one takes over; then nothing runs for the stall. The wait is lognormal around its
median, and drawn anew for every change. A median of None or 0 is the ideal GPU, which changes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from wattune.core.gpu_spec import Switching
from wattune.core.setting import Setting
from wattune.physics.gpu_parts import ClockChange, SwitchingPhysics

IDEAL = Switching(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds until a change takes over, and how long it then keeps everything from running."""

    wait_s: float = 0.0
    stall_s: float = 0.0


AT_ONCE = Delay()


def delay_of(
    medians: Switching, change: SwitchingPhysics, *, before: Setting, after: Setting, seed: int, number: int
) -> Delay:
    """The delay of the `number`-th change of a GPU; where both clocks change, the slower one tells."""
    core = _delay(medians.sm_s, change.sm, (seed, number, 0)) if before.sm_mhz != after.sm_mhz else AT_ONCE
    memory = _delay(medians.mem_s, change.mem, (seed, number, 1)) if before.mem_mhz != after.mem_mhz else AT_ONCE
    return Delay(max(core.wait_s, memory.wait_s), max(core.stall_s, memory.stall_s))


def _delay(median_s: float | None, change: ClockChange, seed: tuple[int, ...]) -> Delay:
    if not median_s:
        return AT_ONCE
    draw = float(np.random.default_rng(seed).standard_normal())
    return Delay(median_s * exp(change.spread * draw), change.stall_s)
