"""A plan: how every operation of a work graph runs, and what that is predicted to take and spend."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering

from wattune.core.errors import PlanError
from wattune.core.setting import Setting
from wattune.core.workgraph import WorkGraph


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
