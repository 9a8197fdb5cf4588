"""Searching the settings of one partition for its time-energy frontier: the space, the history, the loop.

A searcher is a frozen value. What it proposes follows from the space, its seed and the history given, so that a search
goes on from a stored history as if it had never ended. `kareus_search` has the published rule; our own search
of all partitions together is `joint_search`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import InputError
from wattune.core.frontier import History, Trial
from wattune.core.measurement import SIGMAS_95, Measurement

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
C = TypeVar("C", bound=Hashable)

LAUNCH, END, COMM_SMS, COMM_BLOCK, SM_MHZ = "launch", "end", "comm_sms", "comm_block", "sm_mhz"
"""Features that have a meaning: the places of the first and the last operation beside communication (a launch below 0
is sequential execution), the SMs and the threads of a block that communicate, the core clock."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionSpace(Generic[C]):
    """All choices of a partition, as values and as numbers."""

    choices: tuple[C, ...]
    features: Floats
    """(choices, features)"""
    names: tuple[str, ...]
    place: dict[C, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = len(self.choices)
        object.__setattr__(self, "place", {choice: place for place, choice in enumerate(self.choices)})
        if not rows or self.features.shape != (rows, len(self.names)) or not np.isfinite(self.features).all():
            raise ValueError("a space has choices, and a finite feature of each name for every choice")
        if len(self.place) != rows:
            raise ValueError("a choice appears twice")

    def __len__(self) -> int:
        return len(self.choices)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredChoices:
    """A history as numbers, a row per choice: repeats are averaged."""

    places: Places
    logs: Floats
    """(rows, 2): logarithms of seconds and joules."""
    variance: Floats
    """(rows, 2): of these logarithms; 0 where no error is known."""

    @property
    def values(self) -> Floats:
        return np.exp(self.logs)


def observed(space: PartitionSpace[C], history: History[C]) -> MeasuredChoices:
    """Average the trials of each choice, in the order in which they were first measured."""
    groups: dict[int, list[Measurement]] = {}
    for trial in history:
        if trial.choice not in space.place:
            raise InputError(f"{trial.choice} was measured, but is no choice here", hint="search the space it is from")
        groups.setdefault(space.place[trial.choice], []).append(trial.cost)
    logs = [
        [np.mean([np.log(cost.time_s) for cost in costs]), np.mean([np.log(cost.energy_j) for cost in costs])]
        for costs in groups.values()
    ]
    variance = [_variances(costs) for costs in groups.values()]
    return MeasuredChoices(
        np.array(list(groups), dtype=np.int64),
        np.array(logs).reshape(-1, 2),
        np.array(variance).reshape(-1, 2),
    )


def _variances(costs: list[Measurement]) -> tuple[float, float]:
    time = np.mean([((cost.time_error_s or 0.0) / SIGMAS_95 / cost.time_s) ** 2 for cost in costs])
    energy = np.mean([((cost.energy_error_j or 0.0) / SIGMAS_95 / cost.energy_j) ** 2 for cost in costs])
    return float(time) / len(costs), float(energy) / len(costs)


class Searcher(Protocol):
    """A rule that proposes choices to measure next; none when it has enough."""

    @property
    def name(self) -> str: ...

    def propose(self, space: PartitionSpace[C], history: History[C]) -> tuple[C, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSearch:
    """Choices in random order."""

    seed: int
    batch: int = 16
    name: str = "random"

    def propose(self, space: PartitionSpace[C], history: History[C]) -> tuple[C, ...]:
        order = np.random.default_rng(self.seed).permutation(len(space))
        return tuple(unmeasured(space, history, order)[: self.batch])


def unmeasured(space: PartitionSpace[C], history: History[C], order: Iterable[int]) -> list[C]:
    """Return the choices without a trial, in this order of their places."""
    known = {trial.choice for trial in history}
    return [space.choices[place] for place in order if space.choices[place] not in known]


def search(
    space: PartitionSpace[C],
    searcher: Searcher,
    measure: Callable[[C], Measurement],
    *,
    budget: int,
    history: History[C] = (),
    until: Callable[[History[C]], bool] = lambda _: False,
) -> History[C]:
    """Measure what the searcher proposes, up to the budget, until it has enough or `until` is satisfied."""
    while len(history) < budget:
        proposed = searcher.propose(space, history)
        if not proposed:
            break
        for choice in proposed[: budget - len(history)]:
            history = (*history, Trial(choice, measure(choice)))
            if until(history):
                return history
    return history
