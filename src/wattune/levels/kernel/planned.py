"""A frontier of plans together with what it was made for and from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wattune.core.errors import PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan, Step
from wattune.core.workgraph import WorkGraph
from wattune.levels.kernel.planner import PipelinePlan
from wattune.levels.kernel.shape import PipelineShape, places_by_rank
from wattune.levels.kernel.stage_profile import StageChoice, StageProfile

StagePlan = PipelinePlan[StageChoice]


@dataclass(frozen=True, slots=True)
class Source:
    """The profile that the numbers of a plan come from."""

    file: str
    sha256: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """What every operation of a graph does, and what that takes and spends."""

    choices: tuple[StageChoice, ...]
    durations_s: tuple[float, ...]
    energies_j: tuple[float, ...]

    def bounded(self, bound_j: float) -> StagePlan:
        """The same with a bound that no plan of its time can beat."""
        return PipelinePlan(self.choices, self.durations_s, self.energies_j, bound_j)


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """The plans worth having for one pipeline, beside what it does at default settings."""

    shape: PipelineShape
    graph: WorkGraph
    blocking_power_w: float
    source: Source
    default: Trial[TimedPlan]
    """Every operation at its highest setting: the pipeline that nobody tunes."""
    frontier: Frontier[StagePlan]
    made_by: str
    """Whose plans these are: wattune's, or the files that they were imported from."""
    chosen: int = 0
    """Which plan of the frontier its owner wants to be played, counted from the fastest."""

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.frontier):
            raise PlanError(
                f"there is no plan {self.chosen}", hint=f"plans are numbered from 0 to {len(self.frontier) - 1}"
            )

    @property
    def plan(self) -> Trial[StagePlan]:
        """The chosen plan."""
        return self.frontier.trials[self.chosen]

    @property
    def waiting_w(self) -> float:
        """What all ranks draw while all of them wait."""
        return self.shape.ranks * self.blocking_power_w


def timed(graph: WorkGraph, trials: Iterable[Trial[StageChoice]], *, blocking_power_w: float) -> Trial[TimedPlan]:
    """What a choice for every operation of a graph really takes and spends, waiting included."""
    chosen = tuple(trials)
    durations_s = tuple(trial.cost.time_s for trial in chosen)
    energies_j = tuple(trial.cost.energy_j for trial in chosen)
    time_s = graph.makespan_s(durations_s)
    ranks = len({operation.rank for operation in graph.operations})
    energy_j = sum(energies_j) + blocking_power_w * (ranks * time_s - sum(durations_s))
    return Trial(
        TimedPlan(tuple(trial.choice for trial in chosen), durations_s, energies_j), Measurement(time_s, energy_j)
    )


def default_trial(graph: WorkGraph, profile: StageProfile, *, blocking_power_w: float) -> Trial[TimedPlan]:
    """The pipeline with every operation at its highest setting."""
    default = profile.default
    trials = (default[operation.kind] for operation in graph.operations)
    return timed(graph, trials, blocking_power_w=blocking_power_w)


def choose(planned: PlannedPipeline, *, deadline_s: float | None = None) -> PlannedPipeline:
    """The same with the plan of least energy chosen that ends by the deadline.

    Without a deadline that is the time of default settings, or that of the fastest plan where it is longer.
    """
    no_slower_s = max(planned.default.cost.time_s, planned.frontier.fastest.cost.time_s)
    trial = planned.frontier.within(no_slower_s if deadline_s is None else deadline_s)
    return replace(planned, chosen=planned.frontier.trials.index(trial))


def rank_plan(graph: WorkGraph, choices: Sequence[StageChoice]) -> Plan:
    """The choices as each rank plays them: its instructions in order, each with its setting."""
    return Plan(
        tuple(
            tuple(Step(graph.operations[place].name, choices[place].setting) for place in places)
            for places in places_by_rank(graph)
        )
    )


@dataclass(frozen=True, slots=True)
class Verified:
    """A plan's promise beside what the profile says."""

    planned: Measurement
    real: Measurement

    @property
    def time_percent(self) -> float:
        """How much longer than promised, in percent."""
        return 100 * (self.real.time_s / self.planned.time_s - 1)

    @property
    def energy_percent(self) -> float:
        """How much more than promised, in percent."""
        return 100 * (self.real.energy_j / self.planned.energy_j - 1)


def verify(planned: PlannedPipeline, profile: StageProfile) -> tuple[Verified, ...]:
    """Every plan of a frontier, re-timed from a profile of the same pipeline."""
    if profile.stages != planned.shape.stages:
        raise PlanError(
            f"the plan is for {planned.shape.stages} stages and {profile.file} has {profile.stages}",
            hint="verify with a profile of the same pipeline",
        )
    return tuple(
        Verified(trial.cost, retimed(planned, profile, trial.choice.choices).cost) for trial in planned.frontier
    )


def retimed(planned: PlannedPipeline, profile: StageProfile, choices: Sequence[StageChoice]) -> Trial[TimedPlan]:
    """What these choices take and spend by the profile."""
    trials = (
        profile.trial(operation.kind, choice)
        for operation, choice in zip(planned.graph.operations, choices, strict=True)
    )
    return timed(planned.graph, trials, blocking_power_w=planned.blocking_power_w)
