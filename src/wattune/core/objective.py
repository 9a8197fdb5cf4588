"""What the owner of a job wants, as a rule that picks one trial of a history.

Notation: T, E time and energy of a trial; T0 time of the reference (the default run where it is known, else the fastest
trial); η the weight of energy and Pmax the highest power limit in Zeus's cost η·E + (1−η)·Pmax·T (You et al., NSDI'23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from wattune.core.errors import Infeasible
from wattune.core.measurement import Measurement
from wattune.core.trial import C, Trial


class Objective(Protocol):
    """Picks the best of the trials so far."""

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """The best trial; `Infeasible` where none qualifies."""
        ...


@dataclass(frozen=True, slots=True)
class LeastEnergy:
    """Least energy among those at most `slowdown` (0.05 = 5 %) slower than the reference."""

    slowdown: float

    def __post_init__(self) -> None:
        _not_negative("slowdown", self.slowdown)

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """The trial of least energy within the slowdown."""
        trials = _some(history)
        base_s = reference.time_s if reference else min(trial.cost.time_s for trial in trials)
        limit_s = base_s * (1 + self.slowdown)
        return _least(trials, _energy, lambda trial: trial.cost.time_s <= limit_s, f"a time of at most {limit_s:g} s")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Least energy among those that take at most `seconds`."""

    seconds: float

    def __post_init__(self) -> None:
        _not_negative("deadline", self.seconds)

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """The trial of least energy within the deadline."""
        del reference
        return _least(
            _some(history), _energy, lambda trial: trial.cost.time_s <= self.seconds, f"a time of {self.seconds:g} s"
        )


@dataclass(frozen=True, slots=True)
class LeastCost:
    """Least η·E + (1−η)·Pmax·T: Zeus's cost, in joules."""

    eta: float
    max_power_w: float

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta weighs energy against time and lies between 0 and 1, not {self.eta}")
        _not_negative("max_power_w", self.max_power_w)

    def cost_j(self, cost: Measurement) -> float:
        """The cost of one measurement."""
        return self.eta * cost.energy_j + (1 - self.eta) * self.max_power_w * cost.time_s

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """The trial of least cost."""
        del reference
        return min(_some(history), key=lambda trial: self.cost_j(trial.cost))


@dataclass(frozen=True, slots=True)
class EnergyDelay:
    """Least E·T^power: EDP with 1, ED²P with 2."""

    power: float

    def __post_init__(self) -> None:
        _not_negative("power", self.power)

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """The trial of least energy-delay product."""
        del reference
        return min(_some(history), key=lambda trial: trial.cost.energy_j * trial.cost.time_s**self.power)


@dataclass(frozen=True, slots=True)
class PowerBudget:
    """Least time among those whose mean power is at most `watts`."""

    watts: float

    def __post_init__(self) -> None:
        _not_negative("power budget", self.watts)

    def choose(self, history: Iterable[Trial[C]], *, reference: Measurement | None = None) -> Trial[C]:
        """The fastest trial within the budget."""
        del reference
        return _least(
            _some(history),
            lambda trial: trial.cost.time_s,
            lambda trial: trial.cost.power_w <= self.watts,
            f"a mean power of at most {self.watts:g} W",
        )


def _energy(trial: Trial[C]) -> float:
    return trial.cost.energy_j


def _least(
    trials: tuple[Trial[C], ...],
    value: Callable[[Trial[C]], float],
    allowed: Callable[[Trial[C]], bool],
    wanted: str,
) -> Trial[C]:
    feasible = [trial for trial in trials if allowed(trial)]
    if not feasible:
        raise Infeasible(
            f"none of the {len(trials)} trials has {wanted}", hint="loosen the objective or try more settings"
        )
    return min(feasible, key=value)


def _some(history: Iterable[Trial[C]]) -> tuple[Trial[C], ...]:
    trials = tuple(history)
    if not trials:
        raise Infeasible("there is nothing to choose from", hint="measure at least one setting first")
    return trials


def _not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name} is not negative, not {value}")
