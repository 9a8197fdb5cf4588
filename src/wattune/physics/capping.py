"""How the firmware keeps the power limit: a controller that moves the core clock step by step.

Every tick it looks at the power averaged over the last moments. Above the limit it takes the clock down by steps of
15 MHz, the more the further above; below it, it goes up one step at a time and waits for the average to follow. So a
load that starts at full clock overshoots until the average has caught up, and a settled one moves between two
neighbouring clocks around the limit. `operating_point` holds the lower of these two.

The heat is kept in the same way, one step per tick. Published observations: an A100 at 400 W is seen at 388 to 410 W
with peaks of 417 W, an RTX 3090 within 1 W of its limit on the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp

from wattune.physics.load_table import FIRMWARE_AVERAGE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The numbers of a controller; firmware does not publish its own."""

    tick_s: float = 0.02
    average_s: float = FIRMWARE_AVERAGE_S
    """Time constant of the power that it looks at."""
    step_mhz: int = 15
    step_share: float = 0.03
    """One step down for each such share of the limit that the average lies above it."""
    patience: int = 5
    """Ticks between two steps up."""
    relief_k: float = 2.0
    """It lets the clock up again when the GPU is so much colder than its slowdown temperature."""

    @property
    def keep(self) -> float:
        """What is left of the old average after one tick."""
        return exp(-self.tick_s / self.average_s)

    def steps_down(self, average_w: float, limit_w: float) -> int:
        """Steps by which the clock goes down; 0 at or below the limit."""
        if average_w <= limit_w:
            return 0
        return ceil((average_w - limit_w) / (self.step_share * limit_w))


USUAL = Controller()
