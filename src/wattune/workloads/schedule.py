"""When a training program does what: gradient accumulation, data loading, evaluation and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.workload import Phase, Pipe
from wattune.workloads.merge import merged
from wattune.workloads.operation import Operation, gradient_phases, inference_phases, update_phase
from wattune.workloads.optimizer import SGD, Optimizer
from wattune.workloads.training_run import Loop, Wait

# Two stretches per pass keep a run of some hundred micro-steps at a few thousand phases.
_STRETCHES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The loops around a network. Counts are per pass of the next outer loop."""

    micro_steps: int = 1
    """Per step; gradients of so many batches are added up."""
    steps: int = 100
    """Per evaluation, or per checkpoint where nothing is evaluated."""
    loading: Wait | None = None
    """Before every micro-step."""
    evaluation_batches: int = 0
    evaluations: int = 1
    """Per checkpoint."""
    checkpoint: Wait | None = None
    """While the weights are written to disk the GPU waits."""

    def __post_init__(self) -> None:
        if min(self.micro_steps, self.steps, self.evaluations) < 1 or self.evaluation_batches < 0:
            raise ValueError("a schedule has at least one micro-step, step and evaluation round")


def training_run(
    name: str,
    operations: tuple[Operation, ...],
    schedule: Schedule,
    *,
    batch_size: int,
    pipe: Pipe,
    optimizer: Optimizer = SGD,
) -> Loop:
    """The network trained to the schedule, from one checkpoint to the next."""
    gradients = merged(gradient_phases(operations, batch_size=batch_size, pipe=pipe), _STRETCHES)
    forward = merged(inference_phases(operations, batch_size=batch_size, pipe=pipe), _STRETCHES)
    evaluating = tuple(_renamed(phase, "evaluation") for phase in forward)
    return scheduled(
        name, schedule, gradients=gradients, update=update_phase(operations, optimizer), evaluating=evaluating
    )


def scheduled(
    name: str, schedule: Schedule, *, gradients: tuple[Phase, ...], update: Phase, evaluating: tuple[Phase, ...]
) -> Loop:
    """The loops of a schedule around the phases of a micro-step, of the optimizer and of an evaluated batch."""
    loading = (schedule.loading,) if schedule.loading else ()
    micro_steps = Loop("micro-step", (*loading, *gradients), schedule.micro_steps)
    rounds: tuple[Phase | Wait | Loop, ...] = (Loop("step", (micro_steps, update), schedule.steps),)
    if schedule.evaluation_batches:
        rounds = (*rounds, Loop("evaluated batch", (*loading, *evaluating), schedule.evaluation_batches))
    saving = (schedule.checkpoint,) if schedule.checkpoint else ()
    return Loop(name, (Loop("evaluation", rounds, schedule.evaluations), *saving))


def _renamed(phase: Phase, first: str) -> Phase:
    """The phase as part of another pass."""
    return replace(phase, name=f"{first}/{phase.name.partition('/')[2]}")
