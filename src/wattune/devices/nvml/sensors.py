"""How the sensors of each NVIDIA family behave, as measured by others; the driver does not tell.

Refresh and averaging of power: Yang, Adamek and Armour, "Part-time Power Measurements" (arXiv 2312.02741) and the data
published with it. The energy counter moves with the power sensor.
"""

from __future__ import annotations

from wattune.core.gpu_spec import Sensors, Switching

_PASCAL_AND_VOLTA = Sensors(counter_period_s=0.02, power_period_s=0.02, power_window_s=0.01)
_PART_TIME = Sensors(counter_period_s=0.1, power_period_s=0.1, power_window_s=0.025)
_FULL_TIME = Sensors(counter_period_s=0.1, power_period_s=0.1, power_window_s=0.1)

_FAMILIES = {
    "Pascal": _PASCAL_AND_VOLTA,
    "Volta": _PASCAL_AND_VOLTA,
    "Turing": _FULL_TIME,
    "Ampere": _FULL_TIME,
    "Ada": _FULL_TIME,
    "Hopper": _PART_TIME,
}

GA100_NAMES = ("A100", "A800", "A30", "CMP 170HX")

_SWITCHING = {
    "Volta": Switching(sm_s=0.010, mem_s=None),
    "Ampere": Switching(sm_s=0.010, mem_s=0.1),
    "Hopper": Switching(sm_s=0.030, mem_s=0.1),
    "Turing": Switching(sm_s=0.080, mem_s=0.1),
    "Ada": Switching(sm_s=0.080, mem_s=0.1),
}


def sensors_of(architecture: str | None, name: str) -> Sensors:
    """The sensors of a part; all unknown for a family nobody has measured."""
    if is_ga100(name):
        return _PART_TIME
    return _FAMILIES.get(architecture or "", Sensors())


def switching_of(architecture: str | None) -> Switching:
    """Our estimate of how long a clock takes to hold; published figures differ by driver and target clock."""
    return _SWITCHING.get(architecture or "", Switching())


def is_ga100(name: str) -> bool:
    """Whether the part is a GA100, the one Ampere whose power reading is not a one-second average."""
    return any(part in name for part in GA100_NAMES)
