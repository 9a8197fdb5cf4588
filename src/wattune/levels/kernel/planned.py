"""A frontier of plans together with the pipeline and the profile that it was made for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wattune.core.errors import PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan, StageChoice, WorkGraph
from wattune.levels.kernel.planner import plan_pipeline
from wattune.levels.kernel.shape import PipelineShape
from wattune.levels.kernel.stage_profile import StageProfile


@dataclass(frozen=True, slots=True)
class Source:
    """The profile that the numbers of a plan come from."""

    file: str
    sha256: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """The frontier of one pipeline, beside its cost at default settings."""

    shape: PipelineShape
    blocking_power_w: float
    source: Source
    default: Trial[Plan]
    """Every operation at its highest setting: the pipeline without tuning."""
    frontier: Frontier[Plan]
    made_by: str
    """`wattune`, or the files that the plans were imported from."""
    chosen: int = 0
    """The plan of the frontier that is to be played, counted from the fastest."""

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.frontier):
            raise PlanError(
                f"there is no plan {self.chosen}", hint=f"plans are numbered from 0 to {len(self.frontier) - 1}"
            )

    @property
    def graph(self) -> WorkGraph:
        return self.default.choice.graph

    @property
    def plan(self) -> Trial[Plan]:
        """The chosen plan."""
        return self.frontier.trials[self.chosen]

    @property
    def waiting_w(self) -> float:
        """Power of all ranks together while all of them wait."""
        return self.shape.ranks * self.blocking_power_w


def timed(graph: WorkGraph, trials: Iterable[Trial[StageChoice]], *, blocking_power_w: float) -> Trial[Plan]:
    """Compute the time and energy of a choice for every operation of a graph, waiting included."""
    chosen = tuple(trials)
    durations_s = tuple(trial.cost.time_s for trial in chosen)
    energies_j = tuple(trial.cost.energy_j for trial in chosen)
    time_s = graph.makespan_s(durations_s)
    energy_j = sum(energies_j) + blocking_power_w * (len(graph.by_rank) * time_s - sum(durations_s))
    plan = Plan(graph, tuple(trial.choice for trial in chosen), durations_s, energies_j)
    return Trial(plan, Measurement(time_s, energy_j))


def default_trial(graph: WorkGraph, profile: StageProfile, *, blocking_power_w: float) -> Trial[Plan]:
    """Time the pipeline with every operation at its highest setting."""
    default = profile.default
    trials = (default[operation.kind] for operation in graph.operations)
    return timed(graph, trials, blocking_power_w=blocking_power_w)


def plan_profile(
    profile: StageProfile, shape: PipelineShape, *, source: Source, blocking_power_w: float, points: int | None = None
) -> PlannedPipeline:
    """Plan a pipeline of this shape from a profile of its stages."""
    graph = shape.graph
    return PlannedPipeline(
        shape,
        blocking_power_w,
        source,
        default_trial(graph, profile, blocking_power_w=blocking_power_w),
        plan_pipeline(graph, profile.options, blocking_power_w=blocking_power_w, points=points),
        "wattune",
    )


def choose(planned: PlannedPipeline, *, deadline_s: float | None = None) -> PlannedPipeline:
    """Choose the plan of least energy that ends by the deadline.

    Without a deadline that is the time of default settings, or that of the fastest plan where it is longer.
    """
    no_slower_s = max(planned.default.cost.time_s, planned.frontier.fastest.cost.time_s)
    trial = planned.frontier.within(no_slower_s if deadline_s is None else deadline_s)
    return replace(planned, chosen=planned.frontier.trials.index(trial))


def time_percent(cost: Measurement, reference: Measurement) -> float:
    """Compute how much longer a cost takes than a reference."""
    return 100 * (cost.time_s / reference.time_s - 1)


def energy_percent(cost: Measurement, reference: Measurement) -> float:
    """Compute how much more energy a cost spends than a reference."""
    return 100 * (cost.energy_j / reference.energy_j - 1)


def gap_percent(trial: Trial[Plan]) -> float:
    """Compute the distance of a plan's energy from its bound."""
    return 100 * (trial.cost.energy_j / trial.choice.bound_j - 1)


def verify(planned: PlannedPipeline, profile: StageProfile) -> tuple[Measurement, ...]:
    """Compute the cost of every plan of a frontier again, from a profile of the same pipeline."""
    if profile.stages != planned.shape.stages:
        raise PlanError(
            f"the plan is for {planned.shape.stages} stages and {profile.file} has {profile.stages}",
            hint="verify with a profile of the same pipeline",
        )
    operations = planned.graph.operations
    found = []
    for trial in planned.frontier:
        pairs = zip(operations, trial.choice.choices, strict=True)
        trials = [profile.trial(operation.kind, choice) for operation, choice in pairs]
        found.append(timed(planned.graph, trials, blocking_power_w=planned.blocking_power_w).cost)
    return tuple(found)
