"""What one rank of a pipeline sets at each of its instructions: a frozen plan and a cursor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.errors import PlanError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.plan import Plan, Step
from wattune.core.setting import Setting


@dataclass(frozen=True, slots=True)
class Player:
    """The steps of one rank, played over and over, once per iteration."""

    steps: tuple[Step, ...]
    place: int = 0
    """Of the step that comes next."""
    asked: Setting | None = None
    """What was asked for last; None before the first instruction."""

    @classmethod
    def of(cls, plan: Plan, rank: int, *, spec: GpuSpec) -> Player:
        """The player of a rank; an error where the plan has no such rank, or the part lacks one of its settings."""
        if not 0 <= rank < len(plan.ranks) or not plan.ranks[rank]:
            raise PlanError(
                f"the plan has {len(plan.ranks)} ranks and nothing for rank {rank}",
                hint="plan for as many ranks as the pipeline has",
            )
        for setting in dict.fromkeys(step.setting for step in plan.ranks[rank]):
            spec.check(setting)
        return cls(plan.ranks[rank])

    def begin(self, instruction: str) -> tuple[Player, Setting | None]:
        """The player one step on, and the setting to ask for; None where the one asked for last still holds."""
        step = self._step(instruction)
        wanted = None if step.setting == self.asked else step.setting
        return replace(self, place=self.place + 1, asked=step.setting), wanted

    def from_start(self) -> Player:
        """The player at the first step of an iteration, whatever became of the last one."""
        return replace(self, place=0)

    def following(self, steps: tuple[Step, ...]) -> Player:
        """The player at the first step of another plan."""
        return replace(self, steps=steps, place=0)

    def _step(self, instruction: str) -> Step:
        if self.place >= len(self.steps):
            raise PlanError(
                f"{instruction!r} begins and the plan of this rank has only {len(self.steps)} instructions",
                hint="plan for the schedule and the number of microbatches that are really run",
            )
        step = self.steps[self.place]
        if step.span != instruction:
            raise PlanError(
                f"{instruction!r} begins where the plan has {step.span!r}",
                hint="plan for the schedule and the number of microbatches that are really run",
            )
        return step
