"""Objectives as people write them on a command line and as the store keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable

from wattune.core.errors import InputError
from wattune.core.objective import (
    Deadline,
    EnergyDelay,
    LeastCarbon,
    LeastCost,
    LeastEnergy,
    LeastMoney,
    Objective,
    PowerBudget,
)

FORMS = {
    "cost:ETA": "least η·energy + (1−η)·maximum power·time, η from 0 (time) to 1 (energy): cost:0.5",
    "energy:SLOWDOWN": "least energy at most that much slower than the default: energy:5%",
    "deadline:TIME": "least energy within a time: deadline:90m",
    "money:KWH,HOUR": "least money, from the price of a kWh and of a GPU-hour: money:0.30,2.50",
    "carbon:KWH,HOUR": "least grams of CO2, of a kWh and of a GPU-hour: carbon:380,40",
    "edp": "least energy·time",
    "ed2p": "least energy·time²",
    "power:WATTS": "least time at a mean power of at most that: power:250",
}
"""Every form, and what it asks for."""

_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_TIME = re.compile(r"([0-9.]+)\s*([a-z]*)")


def parse_objective(text: str, *, max_power_w: float) -> Objective:
    """The objective that a text such as `cost:0.5` or `energy:5%` asks for; one line says what is wrong with another.

    `max_power_w` is the highest power limit of the GPUs together, which Zeus's cost weighs time with.
    """
    kind, _, rest = text.strip().lower().partition(":")
    makers: dict[str, Callable[[str], Objective]] = {
        "cost": lambda value: LeastCost(float(value or "0.5"), max_power_w),
        "energy": lambda value: LeastEnergy(parse_share(value)),
        "deadline": lambda value: Deadline(parse_seconds(value)),
        "money": lambda value: LeastMoney(*_pair(value)),
        "carbon": lambda value: LeastCarbon(*_pair(value)),
        "edp": lambda value: EnergyDelay(_nothing(value, 1.0)),
        "ed2p": lambda value: EnergyDelay(_nothing(value, 2.0)),
        "power": lambda value: PowerBudget(float(value)),
    }
    try:
        return makers[kind](rest)
    except (KeyError, ValueError):
        raise InputError(
            f"{text!r} is no objective", hint="choose one of: " + ", ".join(FORMS) + "; for example cost:0.5"
        ) from None


def parse_share(text: str) -> float:
    """A share, from `5%` or `0.05`; ValueError for anything else."""
    text = text.strip()
    share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 <= share < float("inf"):
        raise ValueError(text)
    return share


def parse_seconds(text: str) -> float:
    """Seconds, from `90`, `90s`, `15m`, `1.5h` or `2d`; ValueError for anything else."""
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or match[2] not in _SECONDS:
        raise ValueError(text)
    return float(match[1]) * _SECONDS[match[2]]


def _pair(text: str) -> tuple[float, float]:
    first, _, second = text.partition(",")
    return float(first), float(second or "0")


def _nothing(text: str, value: float) -> float:
    if text:
        raise ValueError(text)
    return value
