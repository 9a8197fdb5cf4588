"""The plan file of layers: the common form of plan files, with what the plans were made for.

The options of a layer have its time and energy with the stall and the wait before it, where a plan changes clocks
there: so a plan is the sum of its options, and a layer can have several options with the same setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wattune.core.csv_input import read_text
from wattune.core.errors import PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.layer.costs import SCOPES
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph
from wattune.plans.plan_file import LAYER_PLAN, PlanReader, PlanSet, check_range, parse_plan_file, plan_file_text

ORIGINS = {
    "options": "the layer alone and, where clocks change before it, the stall and the wait for the clock",
    "time_s": "the sum over the options of all layers",
    "energy_j": "the sum over the options of all layers",
    "bound_j": "no plan of this time spends less; 0 where no bound was computed",
    "default": "every layer at the default setting",
}


@dataclass(frozen=True, slots=True)
class LayerPlans:
    """The frontier of plans for the layers of a network, beside the default, and what they were made for."""

    workload: str
    batch_size: int | None
    precision: str | None
    scope: str
    """forward, backward or step."""
    gpu: str
    """Name of the GPU model."""
    simulated: bool
    switching: SwitchCost
    """The cost of a change of clocks that the plans were made with."""
    strategy: str
    default: Trial[Plan]
    frontier: Frontier[Plan]
    chosen: int = 0
    """The plan of the frontier that is to be played, counted from the fastest."""

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.frontier):
            raise PlanError(
                f"there is no plan {self.chosen}", hint=f"plans are numbered from 0 to {len(self.frontier) - 1}"
            )

    @property
    def plan(self) -> Trial[Plan]:
        """The chosen plan."""
        return self.frontier.trials[self.chosen]


@dataclass(frozen=True, slots=True)
class _LayerHead:
    """The members of the JSON object before the plans, in the order of the file."""

    simulated: bool
    gpu: str
    workload: str
    batch_size: int | None
    precision: str | None
    scope: str
    strategy: str
    switching: SwitchCost
    origins: Mapping[str, str]
    layers: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            check_range(self, "batch_size", most=1e9)
        if self.scope not in SCOPES:
            raise ValueError(f"scope is {self.scope[:40]!r}, which is none of {', '.join(SCOPES)}")
        if not self.layers:
            raise ValueError("layers is empty")
        seen: set[str] = set()
        for name in self.layers:
            if name in seen:
                raise ValueError(f"layers has {name[:40]!r} twice")
            seen.add(name)


def layer_plan_text(plans: LayerPlans) -> str:
    """Write the plan file: one line per plan and per layer's options, so that two files can be compared by eye."""
    head = _LayerHead(
        plans.simulated,
        plans.gpu,
        plans.workload,
        plans.batch_size,
        plans.precision,
        plans.scope,
        plans.strategy,
        plans.switching,
        ORIGINS,
        tuple(operation.name for operation in plans.default.choice.graph.operations),
    )
    return plan_file_text(LAYER_PLAN, head, PlanSet(plans.default, plans.frontier, plans.chosen))


def read_layer_plans(path: Path) -> LayerPlans:
    """Read a plan file, as `wattune layers plan --out` writes it."""
    return parse_layer_plans(read_text(path, hint=LAYER_PLAN.make), file=str(path))


def parse_layer_plans(text: str, *, file: str) -> LayerPlans:
    """Parse the text of a plan file; an error names the part that is wrong."""
    return parse_plan_file(text, form=LAYER_PLAN, file=file, build=_layer_plans)


def _layer_plans(reader: PlanReader) -> LayerPlans:
    head = reader.head(_LayerHead)
    graph = WorkGraph.chain(tuple(Operation(name, name) for name in head.layers))
    plans = reader.plans(graph, partial(_added_up, graph))
    return LayerPlans(
        head.workload,
        head.batch_size,
        head.precision,
        head.scope,
        head.gpu,
        head.simulated,
        head.switching,
        head.strategy,
        plans.default,
        plans.frontier,
        plans.chosen,
    )


def _added_up(graph: WorkGraph, options: Sequence[Trial[StageChoice]]) -> Trial[Plan]:
    durations_s = tuple(option.cost.time_s for option in options)
    energies_j = tuple(option.cost.energy_j for option in options)
    plan = Plan(graph, tuple(option.choice for option in options), durations_s, energies_j)
    return Trial(plan, Measurement(sum(durations_s), sum(energies_j)))
