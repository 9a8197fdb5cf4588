"""What plans really take and spend, by a profile that they may not have been made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattune.core.errors import PlanError
from wattune.core.measurement import Measurement
from wattune.core.trial import Trial
from wattune.levels.kernel.planned import PlannedPipeline, TimedPlan, timed
from wattune.levels.kernel.stage_profile import StageChoice, StageProfile


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
