"""Operations with their dependencies, and plans of how each runs and what that is predicted to take and spend.

Operations form a chain of layers, or a pipeline schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import total_ordering
from types import MappingProxyType

from wattune.core.errors import PlanError
from wattune.core.setting import Setting


@dataclass(frozen=True, slots=True)
class Operation:
    """One piece of work of one rank; operations of the same `kind` have the same options."""

    name: str
    kind: str
    rank: int = 0


@dataclass(frozen=True, slots=True)
class WorkGraph:
    """Operations in an order in which each comes after all that it waits for."""

    operations: tuple[Operation, ...]
    predecessors: tuple[tuple[int, ...], ...]
    """The positions that each operation waits for, all smaller than its own."""
    position: Mapping[str, int] = field(init=False, repr=False, compare=False)
    by_rank: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """For each rank the positions of its operations, in the order in which it runs them."""

    def __post_init__(self) -> None:
        if len(self.operations) != len(self.predecessors):
            raise PlanError("a work graph needs one list of predecessors per operation")
        for index, before in enumerate(self.predecessors):
            if any(not 0 <= other < index for other in before):
                raise PlanError(f"operation {self.operations[index].name!r} waits for one that does not come before it")
        positions = {operation.name: index for index, operation in enumerate(self.operations)}
        if len(positions) != len(self.operations):
            raise PlanError("two operations of a work graph share a name")
        object.__setattr__(self, "position", MappingProxyType(positions))
        ranks: dict[int, list[int]] = {}
        for index, operation in enumerate(self.operations):
            ranks.setdefault(operation.rank, []).append(index)
        object.__setattr__(self, "by_rank", tuple(tuple(ranks[rank]) for rank in sorted(ranks)))

    @classmethod
    def chain(cls, operations: tuple[Operation, ...]) -> WorkGraph:
        """Make a graph in which each operation waits for the one before it."""
        return cls(operations, tuple(() if index == 0 else (index - 1,) for index in range(len(operations))))

    def finish_times_s(self, durations_s: tuple[float, ...]) -> tuple[float, ...]:
        """Return the end of each operation, if each starts as soon as it may."""
        ends: list[float] = []
        for before, duration_s in zip(self.predecessors, durations_s, strict=True):
            ends.append(max((ends[other] for other in before), default=0.0) + duration_s)
        return tuple(ends)

    def makespan_s(self, durations_s: tuple[float, ...]) -> float:
        return max(self.finish_times_s(durations_s), default=0.0)


@total_ordering
@dataclass(frozen=True, slots=True)
class StageChoice:
    """The setting of the GPU while an operation runs, and knobs of the operation by name."""

    setting: Setting
    knobs: tuple[tuple[str, str], ...] = ()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, StageChoice):
            return NotImplemented
        return (self.setting, self.knobs) < (other.setting, other.knobs)

    def __str__(self) -> str:
        return ", ".join((str(self.setting), *(f"{name} {value}" for name, value in self.knobs)))


@dataclass(frozen=True, slots=True)
class Step:
    """A named span of work and the setting that holds while it runs."""

    span: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice for every operation of a graph, in the graph's order, with predicted times and energies."""

    graph: WorkGraph = field(repr=False)
    choices: tuple[StageChoice, ...]
    durations_s: tuple[float, ...] = ()
    """Empty in a plan made by hand, without predictions."""
    energies_j: tuple[float, ...] = ()
    bound_j: float = 0.0
    """No plan that takes as long as this one spends less; 0 where no bound was computed."""

    def __post_init__(self) -> None:
        count = len(self.graph.operations)
        if len(self.choices) != count:
            raise PlanError(f"a plan has one choice per operation: {count}, not {len(self.choices)}")
        for predicted in (self.durations_s, self.energies_j):
            if len(predicted) not in (0, count):
                raise PlanError(f"a plan has {count} predicted times and energies, or none, not {len(predicted)}")

    @property
    def ranks(self) -> tuple[tuple[Step, ...], ...]:
        """The steps of each rank, in the order in which they run."""
        return tuple(
            tuple(Step(self.graph.operations[place].name, self.choices[place].setting) for place in places)
            for places in self.graph.by_rank
        )
