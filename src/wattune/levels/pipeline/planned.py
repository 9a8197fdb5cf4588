"""A frontier of plans together with the pipeline and the profile that it was made for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.errors import PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.pipeline.planner import plan_pipeline
from wattune.levels.pipeline.solver.plan_cost import charged, timed
from wattune.levels.pipeline.solver.switched import plan_switched
from wattune.levels.pipeline.solver.switching import ClockSwitching
from wattune.plans.plan import Plan, WorkGraph
from wattune.plans.shape import PipelineShape
from wattune.plans.stage_profile import HIGHEST, StageProfile


@dataclass(frozen=True, slots=True)
class Source:
    """The profile that the numbers of a plan come from."""

    file: str
    sha256: str
    simulated: bool
    gpu: str | None = None
    """None where the profile does not name it."""


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """The frontier of one pipeline, beside its cost at default settings."""

    shape: PipelineShape
    blocking_power_w: float
    source: Source
    default: Trial[Plan]
    """What plans are compared with: the pipeline without tuning."""
    frontier: Frontier[Plan]
    made_by: str
    """`wattune`, or the files that the plans were imported from."""
    chosen: int = 0
    """The plan of the frontier that is to be played, counted from the fastest."""
    switching: ClockSwitching | None = None
    """What a change of clocks costs; None where it is taken to be free."""
    free_energies_j: tuple[float, ...] = ()
    """For each plan the energy of one of its time if switching were free; none where it is taken to be free."""
    baseline: str = HIGHEST
    """What `default` is, in words."""
    gpus_per_rank: int = 1
    """GPUs of the whole job that do the work of a rank alike: data-parallel times tensor-parallel ones."""

    def __post_init__(self) -> None:
        if len(self.free_energies_j) != (0 if self.switching is None else len(self.frontier)):
            raise PlanError("a frontier with a cost of switching has one free energy per plan")
        if not 0 <= self.chosen < len(self.frontier):
            raise PlanError(
                f"there is no plan {self.chosen}", hint=f"plans are numbered from 0 to {len(self.frontier) - 1}"
            )

    @property
    def gpus(self) -> int:
        """All GPUs of the job."""
        return self.shape.ranks * self.gpus_per_rank

    @property
    def job_energy_j(self) -> float:
        """What all GPUs of the job spend in an iteration of the chosen plan."""
        return self.gpus_per_rank * self.plan.cost.energy_j

    @property
    def job_default_energy_j(self) -> float:
        return self.gpus_per_rank * self.default.cost.energy_j

    @property
    def graph(self) -> WorkGraph:
        return self.default.choice.graph

    @property
    def plan(self) -> Trial[Plan]:
        """The chosen plan."""
        return self.frontier.trials[self.chosen]

    @property
    def switching_losses_percent(self) -> tuple[float, ...]:
        """How much more each plan spends than one of its time if switching were free."""
        pairs = zip(self.frontier, self.free_energies_j, strict=False)
        return tuple(100 * (trial.cost.energy_j / free_j - 1) for trial, free_j in pairs)

    @property
    def waiting_w(self) -> float:
        """Power of all ranks together while all of them wait."""
        return self.shape.ranks * self.blocking_power_w


def default_trial(graph: WorkGraph, profile: StageProfile, *, blocking_power_w: float) -> Trial[Plan]:
    """Time the pipeline without tuning."""
    default = profile.default
    trials = (default[operation.kind] for operation in graph.operations)
    return timed(graph, trials, blocking_power_w=blocking_power_w)


def plan_profile(
    profile: StageProfile,
    shape: PipelineShape,
    *,
    source: Source,
    blocking_power_w: float,
    points: int | None = None,
    switching: ClockSwitching | None = None,
) -> PlannedPipeline:
    """Plan a pipeline of this shape from a profile of its stages; without `switching` clocks change at once."""
    graph, baseline = shape.graph, profile.baseline_words
    default = default_trial(graph, profile, blocking_power_w=blocking_power_w)
    if switching is None:
        frontier = plan_pipeline(graph, profile.options, blocking_power_w=blocking_power_w, points=points)
        return PlannedPipeline(shape, blocking_power_w, source, default, frontier, "wattune", baseline=baseline)
    found = plan_switched(graph, profile.options, blocking_power_w=blocking_power_w, switching=switching, points=points)
    free_j = tuple(found.free_energy_j(trial) for trial in found.frontier)
    planned = PlannedPipeline(shape, blocking_power_w, source, default, found.frontier, "wattune", baseline=baseline)
    return replace(planned, switching=switching, free_energies_j=free_j)


def choose(planned: PlannedPipeline, *, deadline_s: float | None = None) -> PlannedPipeline:
    """Choose the plan of least energy that ends by the deadline.

    Without a deadline that is the time of default settings, or that of the fastest plan where it is longer.
    """
    no_slower_s = max(planned.default.cost.time_s, planned.frontier.fastest.cost.time_s)
    trial = planned.frontier.within(no_slower_s if deadline_s is None else deadline_s)
    return replace(planned, chosen=planned.frontier.trials.index(trial))


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
        cost = charged(planned.graph, trials, planned.switching, blocking_power_w=planned.blocking_power_w).cost
        found.append(cost)
    return tuple(found)
