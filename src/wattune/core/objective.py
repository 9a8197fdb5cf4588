"""Objectives: which costs are allowed, and which of those is best.

Notation: T, E time and energy of a trial; T0 time of the reference (the default run where it is known, else the fastest
trial); η the weight of energy and Pmax the highest power limit in Zeus's cost η·E + (1−η)·Pmax·T (You et al., NSDI'23).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import inf
from typing import Protocol

from wattune.core.bounds import LARGEST_SHARE, too_large
from wattune.core.errors import Infeasible, InputError
from wattune.core.frontier import C, Trial
from wattune.core.measurement import Measurement

J_PER_KWH = 3.6e6
S_PER_HOUR = 3600.0


class Objective(Protocol):
    """Rates costs, and chooses the best of the trials so far."""

    def value(self, cost: Measurement) -> float:
        """Return the value of a cost: the lower, the better."""

    def limit_s(self, reference: Measurement | None) -> float | None:
        """Return the longest time allowed, or None if time is not limited; the reference is the default run."""

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """Return the best trial; `Infeasible` if none qualifies."""


@dataclass(frozen=True, slots=True)
class _LeastValue:
    """Chooses the trial of least value, without a limit on time. No parameter may be negative."""

    def __post_init__(self) -> None:
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if not value >= 0:
                raise ValueError(f"{parameter.name} is {value}, but must not be negative")
            problem = too_large(parameter.name, value)
            if problem is not None:
                raise InputError(f"{parameter.name}: {problem}", hint="correct that number of the objective")

    def value(self, cost: Measurement) -> float:
        raise NotImplementedError

    def limit_s(self, reference: Measurement | None) -> float | None:
        del reference
        return None

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        return _best(self, _some(history), reference)


@dataclass(frozen=True, slots=True)
class LeastEnergy(_LeastValue):
    """Least energy among those at most `slowdown` (0.05 = 5 %) slower than the reference."""

    slowdown: float

    def value(self, cost: Measurement) -> float:
        return cost.energy_j

    def limit_s(self, reference: Measurement | None) -> float | None:
        return None if reference is None else reference.time_s * (1 + self.slowdown)

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        trials = _some(history)
        return _best(self, trials, reference or min((trial.cost for trial in trials), key=lambda cost: cost.time_s))


@dataclass(frozen=True, slots=True)
class Deadline(_LeastValue):
    """Least energy among those that take at most `seconds`."""

    seconds: float

    def value(self, cost: Measurement) -> float:
        return cost.energy_j

    def limit_s(self, reference: Measurement | None) -> float | None:
        del reference
        return self.seconds


@dataclass(frozen=True, slots=True)
class LeastCost(_LeastValue):
    """Least η·E + (1−η)·Pmax·T: Zeus's cost, in joules."""

    eta: float
    max_power_w: float

    def __post_init__(self) -> None:
        _LeastValue.__post_init__(self)
        if self.eta > 1:
            raise ValueError(f"eta is {self.eta}, but must not be above 1")

    def value(self, cost: Measurement) -> float:
        return self.eta * cost.energy_j + (1 - self.eta) * self.max_power_w * cost.time_s


@dataclass(frozen=True, slots=True)
class LeastMoney(_LeastValue):
    """Least money: the energy at its price, and the GPU's time at its price; in whatever currency both are given."""

    per_kwh: float
    per_hour: float

    def value(self, cost: Measurement) -> float:
        return self.per_kwh * cost.energy_j / J_PER_KWH + self.per_hour * cost.time_s / S_PER_HOUR


@dataclass(frozen=True, slots=True)
class LeastCarbon(_LeastValue):
    """Least grams of CO2: of the electricity, and of making the GPU spread over its hours of work."""

    grams_per_kwh: float
    grams_per_hour: float = 0.0

    def value(self, cost: Measurement) -> float:
        return self.grams_per_kwh * cost.energy_j / J_PER_KWH + self.grams_per_hour * cost.time_s / S_PER_HOUR


@dataclass(frozen=True, slots=True)
class EnergyDelay(_LeastValue):
    """Least E·T^power: EDP with 1, ED²P with 2."""

    power: float

    def value(self, cost: Measurement) -> float:
        return cost.energy_j * float(cost.time_s**self.power)


@dataclass(frozen=True, slots=True)
class PowerBudget(_LeastValue):
    """Least time among those whose mean power is at most `watts`."""

    watts: float

    def value(self, cost: Measurement) -> float:
        return cost.time_s

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        del reference
        trials = _some(history)
        within = tuple(trial for trial in trials if trial.cost.power_w <= self.watts)
        return _least(self, within, len(trials), f"a mean power of at most {self.watts:g} W")


def _best(objective: Objective, trials: tuple[Trial[C], ...], reference: Measurement | None) -> Trial[C]:
    limit_s = objective.limit_s(reference)
    if limit_s is None:
        return _least(objective, trials, len(trials), "")
    within = tuple(trial for trial in trials if trial.cost.time_s <= limit_s)
    return _least(objective, within, len(trials), f"a time of at most {limit_s:g} s")


def _least(objective: Objective, allowed: tuple[Trial[C], ...], tried: int, wanted: str) -> Trial[C]:
    if not allowed:
        raise Infeasible(f"none of the {tried} trials has {wanted}", hint="loosen the objective or try more settings")
    return min(allowed, key=lambda trial: objective.value(trial.cost))


def _some(history: Iterable[Trial[C]]) -> tuple[Trial[C], ...]:
    trials = tuple(history)
    if not trials:
        raise Infeasible("there are no trials to choose from", hint="measure at least one setting first")
    return trials


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
"""Every form that `parse_objective` takes, and its meaning."""

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_TIME = re.compile(r"([0-9.]+)\s*([a-zµ]*)")


def parse_objective(text: str, *, max_power_w: float) -> Objective:
    """Parse an objective such as `cost:0.5` or `energy:5%`; InputError for anything else.

    `max_power_w` is the highest power limit of the GPUs together, which weighs time in Zeus's cost.
    """
    kind, _, rest = text.strip().lower().partition(":")
    makers: dict[str, Callable[[str], Objective]] = {
        "cost": lambda value: LeastCost(float(value or "0.5"), max_power_w),
        "energy": lambda value: LeastEnergy(parse_share(value)),
        "deadline": lambda value: Deadline(parse_seconds(value)),
        "money": lambda value: LeastMoney(*_pair(value)),
        "carbon": lambda value: LeastCarbon(*_pair(value)),
        "edp": lambda value: EnergyDelay(_without_value(value, 1.0)),
        "ed2p": lambda value: EnergyDelay(_without_value(value, 2.0)),
        "power": lambda value: PowerBudget(float(value)),
    }
    try:
        return makers[kind](rest)
    except (KeyError, ValueError):
        raise InputError(
            f"{text!r} is no objective", hint="choose one of: " + ", ".join(FORMS) + "; for example cost:0.5"
        ) from None


def parse_share(text: str) -> float:
    """Parse a share such as `5%` or `0.05`; ValueError for anything else, InputError for one that is too large."""
    text = text.strip()
    share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 <= share < inf:
        raise ValueError(text)
    if share > LARGEST_SHARE:
        raise InputError(f"{text} is too large; the most is {100 * LARGEST_SHARE:g} %", hint="write for example 5%")
    if share >= 1 and not text.endswith("%"):
        raise InputError(f"{text} is a share of {100 * share:g} %", hint=f"did you mean {text}%?")
    return share


def parse_seconds(text: str) -> float:
    """Parse seconds from `90`, `90s`, `80us`, `10ms`, `15m`, `1.5h` or `2d`; ValueError for anything else."""
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or match[2] not in _SECONDS:
        raise ValueError(text)
    seconds = float(match[1]) * _SECONDS[match[2]]
    problem = too_large("time_s", seconds)
    if problem is not None:
        raise InputError(problem, hint="write for example 10ms, 90s or 1.5h")
    return seconds


def _pair(text: str) -> tuple[float, float]:
    first, _, second = text.partition(",")
    return float(first), float(second or "0")


def _without_value(text: str, power: float) -> float:
    if text:
        raise ValueError(text)
    return power
