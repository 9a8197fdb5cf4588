"""The setting of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from math import inf


@total_ordering
@dataclass(frozen=True, slots=True)
class Setting:
    """Core clock, memory clock and power limit; None leaves that one to the driver.

    Settings are ordered by core clock, then memory clock, then limit. None is above every number, because an unlocked
    GPU may use its highest clock.
    """

    sm_mhz: int | None = None
    mem_mhz: int | None = None
    power_limit_w: float | None = None

    @property
    def knobs(self) -> tuple[str, ...]:
        """The names of what this setting fixes: sm_clock, mem_clock, power_limit."""
        named = (("sm_clock", self.sm_mhz), ("mem_clock", self.mem_mhz), ("power_limit", self.power_limit_w))
        return tuple(name for name, value in named if value is not None)

    def _key(self) -> tuple[float, float, float]:
        parts = (self.sm_mhz, self.mem_mhz, self.power_limit_w)
        first, second, third = (inf if part is None else float(part) for part in parts)
        return (first, second, third)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Setting):
            return NotImplemented
        return self._key() < other._key()

    def __str__(self) -> str:
        parts = []
        if self.sm_mhz is not None:
            parts.append(f"{self.sm_mhz} MHz")
        if self.mem_mhz is not None:
            parts.append(f"memory {self.mem_mhz} MHz")
        if self.power_limit_w is not None:
            parts.append(f"limit {self.power_limit_w:g} W")
        return ", ".join(parts) or "driver default"


DRIVER_DEFAULT = Setting()
