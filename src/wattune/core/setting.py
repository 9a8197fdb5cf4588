"""The setting of a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from math import inf

from wattune.core.errors import InputError


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

    @property
    def argument(self) -> str:
        """The setting as one word of a command line: 1200MHz, 1200MHz,mem=810MHz, 250W."""
        parts = []
        if self.sm_mhz is not None:
            parts.append(f"{self.sm_mhz}MHz")
        if self.mem_mhz is not None:
            parts.append(f"mem={self.mem_mhz}MHz")
        if self.power_limit_w is not None:
            parts.append(f"{self.power_limit_w:.10g}W")
        return ",".join(parts) or "default"


DRIVER_DEFAULT = Setting()

_PART = re.compile(r"(mem(?:ory)?=?|limit=?)?(\d{1,6}(?:\.\d{1,6})?)(mhz|w)")
_SETTING_HINT = "write 1200MHz (core clock), 250W (power limit), 1200MHz,mem=810MHz, or default"


def parse_setting(text: str) -> Setting:
    """Parse a setting: parts such as 1200MHz, mem=810MHz and 250W with commas between them, or default.

    Capitals and spaces do not matter, so a setting can be copied from any table.
    """
    plain = "".join(text.lower().split())
    if plain in ("default", "driverdefault"):
        return DRIVER_DEFAULT
    found: dict[str, float] = {}
    for part in plain.split(","):
        knob, value = _parse_part(part, text)
        if knob in found:
            raise InputError(f"{text!r} sets the {knob} twice", hint=_SETTING_HINT)
        found[knob] = value
    sm_mhz, mem_mhz = found.get("core clock"), found.get("memory clock")
    return Setting(
        None if sm_mhz is None else int(sm_mhz), None if mem_mhz is None else int(mem_mhz), found.get("power limit")
    )


def _parse_part(part: str, text: str) -> tuple[str, float]:
    match = _PART.fullmatch(part)
    if match is None:
        if re.fullmatch(r"\d+(\.\d+)?", part):
            raise InputError(f"{part} has no unit", hint=f"{part}MHz for a core clock, {part}W for a power limit")
        raise InputError(f"{text!r} is no setting", hint=_SETTING_HINT)
    name, value, unit = (match[1] or "").rstrip("="), float(match[2]), match[3]
    if (unit == "w" and name.startswith("mem")) or (unit == "mhz" and name == "limit"):
        raise InputError(f"{text!r} is no setting: clocks are in MHz, power limits in W", hint=_SETTING_HINT)
    if unit == "w":
        return "power limit", value
    if value != int(value):
        raise InputError(f"{text!r} is no setting: clocks are whole MHz", hint=_SETTING_HINT)
    return ("memory clock" if name else "core clock"), value
