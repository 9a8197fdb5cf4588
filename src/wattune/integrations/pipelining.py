"""Hooks into `torch.distributed.pipelining` that play a plan, make one or measure a profile while a schedule trains.

    with open_gpu(f"nvml:{local_rank}") as gpu, played(schedule, plan, gpu):
        for batch in batches:
            schedule.step(batch)

`tuned(schedule, gpu, slowdown=0.0)` makes the plan too; `profiled(schedule, gpu, out="profile.csv")` measures for one.
Only the stages of this process are touched, as attributes of the objects themselves, and given back at the end of the
block. What is computed does not change: the hooks run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

try:
    from torch.distributed import pipelining
except ModuleNotFoundError as error:
    raise ImportError("playing a plan in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.control.actuator import Actuator, ActuatorThread, actuator_for
from wattune.control.stamps import Stamps
from wattune.core.errors import PlanError
from wattune.devices.gpu import Gpu
from wattune.integrations.cuda_stamp import stamps_on
from wattune.integrations.method_hooks import hooked, replaced
from wattune.integrations.profile_run import profile_listener, profile_target
from wattune.integrations.torch_ranks import TorchRanks
from wattune.levels.pipeline.online import OnlinePlanning, profiling_settings
from wattune.levels.pipeline.plan_file import read_plan
from wattune.levels.pipeline.player import InstructionListener, PlanListener, PlanPlayer
from wattune.levels.pipeline.tuner import OnlineListener
from wattune.plans.plan import Plan
from wattune.plans.schedules import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    Order,
    Piece,
    one_forward_one_backward,
    work_graph,
)

METHODS = {"forward_one_chunk": FORWARD, "backward_one_chunk": BACKWARD, "backward_weight_one_chunk": WEIGHT}
"""Methods of a stage and their instructions; each takes the microbatch first."""

INSTRUCTIONS = {"F": FORWARD, "B": BACKWARD, "I": BACKWARD, "W": WEIGHT}
"""Letters of the text form of a schedule and their instructions."""


def order_of(schedule: Any) -> Order:
    """Return the instructions of each rank in the order in which this schedule runs them."""
    microbatches = schedule._n_microbatches
    if isinstance(schedule, pipelining.Schedule1F1B):
        # Its own listing of the order numbers the forwards of the last stage from 1 (torch 2.13).
        return one_forward_one_backward(schedule._num_stages, microbatches)
    if isinstance(schedule, pipelining.ScheduleGPipe):
        return _gpipe(schedule._num_stages, microbatches)
    actions = getattr(schedule, "pipeline_order_with_comms", None)
    if not actions:
        raise PlanError(
            f"{type(schedule).__name__} does not tell the order of its instructions",
            hint="use Schedule1F1B, ScheduleInterleaved1F1B, ScheduleGPipe or another schedule of PyTorch",
        )
    return tuple(tuple(_piece(action) for action in actions[rank] if action.is_compute_op) for rank in sorted(actions))


def _gpipe(stages: int, microbatches: int) -> Order:
    """Return all forwards, then all backwards in the same order of microbatches, unlike the published schedule."""
    pairs = [(instruction, microbatch) for instruction in (FORWARD, BACKWARD) for microbatch in range(microbatches)]
    return tuple(tuple(Piece(instruction, stage, place) for instruction, place in pairs) for stage in range(stages))


def _piece(action: Any) -> Piece:
    instruction = INSTRUCTIONS.get(action.computation_type.value)
    if instruction is None:
        raise PlanError(
            f"the schedule runs {action}, two instructions at once, which no plan can set apart",
            hint="use a schedule that runs one instruction after another, such as ScheduleInterleaved1F1B",
        )
    return Piece(instruction, action.stage_index, action.microbatch_index)


@contextmanager
def played(schedule: Any, plan: Plan | Path | str, gpu: Gpu) -> Iterator[Actuator]:
    """Set the clocks of this rank while the schedule trains; yield the actuator that sets them.

    `plan` is the path of a plan file, of which the chosen plan is played, or a plan. Where the driver refuses a clock,
    or the schedule runs something else than the plan, the GPU is restored, `disabled` of the actuator gives the reason,
    and training goes on.
    """
    wanted = plan if isinstance(plan, Plan) else read_plan(Path(plan)).plan.choice
    player = PlanPlayer.of(wanted, rank_of(schedule), spec=gpu.spec)
    try:
        order = order_of(schedule)
    except PlanError:
        order = ()  # a schedule of unknown order is checked while it runs
    if order:
        player.check(piece.name for piece in order[rank_of(schedule)])
    with ActuatorThread([gpu]) as clocks, listened(schedule, PlanListener(player, clocks, stamps_for(schedule))):
        yield clocks


@contextmanager
def tuned(
    schedule: Any,
    gpu: Gpu,
    *,
    slowdown: float,
    clocks: int = 5,
    group: Any = None,
    pipeline: int = 0,
    pipelines: int = 1,
) -> Iterator[OnlineListener]:
    """Profile, plan and hold while the schedule trains; the `progress` of the listener shows how far it is.

    `slowdown` is the share by which an iteration may be slower than the fastest plan. `clocks` is how many clocks are
    profiled. `group` holds the ranks of all pipelines, where there are several; this one is the `pipeline`-th of them.
    All ranks of the group enter the block at the same point. Where tuning fails on one rank, all ranks restore their
    GPUs, their `progress` becomes `PlanDisabled`, and training goes on.
    """
    if not 0 <= pipeline < pipelines:
        raise PlanError(f"there is no pipeline {pipeline} among {pipelines}", hint="they are numbered from 0")
    policy = OnlinePlanning(
        graph=work_graph(order_of(schedule)),
        spec=gpu.spec,
        settings=profiling_settings(gpu.spec, clocks),
        slowdown=slowdown,
        pipelines=pipelines,
    )
    with ActuatorThread([gpu]) as actuator:
        listener = OnlineListener(
            policy,
            gpu=gpu,
            clocks=actuator,
            stamp=stamps_for(schedule),
            ranks=TorchRanks(stages_of(schedule)[0].group if group is None else group),
            rank=rank_of(schedule),
            pipeline=pipeline,
        )
        with listened(schedule, listener):
            yield listener


@contextmanager
def profiled(
    schedule: Any, gpu: Gpu, *, out: Path | str | None = None, clocks: int | None = None, group: Any = None
) -> Iterator[OnlineListener]:
    """Measure the stage profile while the schedule trains: `clocks` core clocks, one after another.

    `wattune pipeline profile` runs the program, gives the number of clocks and collects what the ranks measure. Without
    that command the first rank writes `out` after each clock, a CSV file for `wattune pipeline plan --profile`. A file
    that was begun is continued. When all clocks are measured, the GPUs are restored, training goes on, `has_profile` of
    the listener is True, and its `progress` is `PlanProfiled` with the power of a GPU that waits. All ranks of the
    group enter the block together.
    """
    target = profile_target(out, clocks)
    with actuator_for([gpu]) as actuator:
        listener = profile_listener(
            order_of(schedule),
            gpu=gpu,
            actuator=actuator,
            stamp=stamps_for(schedule),
            ranks=TorchRanks(stages_of(schedule)[0].group if group is None else group),
            rank=rank_of(schedule),
            target=target,
        )
        with listened(schedule, listener):
            yield listener


@contextmanager
def listened(schedule: Any, listener: InstructionListener) -> Iterator[None]:
    """Call a listener at every iteration and every instruction of this process that trains."""
    with ExitStack() as stack:
        for stage in stages_of(schedule):
            for name, instruction in METHODS.items():
                stack.enter_context(replaced(stage, name, _with_instruction(stage, name, instruction, listener)))
        step = hooked(
            schedule.step,
            is_training=lambda: schedule._has_backward,
            before=lambda *_: listener.start(),
            after=lambda *_: listener.finish(),
            fail=listener.fail,
        )
        stack.enter_context(replaced(schedule, "step", step))
        yield


def _with_instruction(stage: Any, name: str, instruction: str, listener: InstructionListener) -> Callable[..., Any]:
    """Return the method of a stage with calls of the listener before and after it, unless it evaluates."""

    def piece(microbatch: int) -> Piece:
        return Piece(instruction, stage.stage_index, microbatch)

    return hooked(
        getattr(stage, name),
        is_training=lambda: stage.has_backward,
        before=lambda microbatch, *_: listener.begin(piece(microbatch)),
        after=lambda microbatch, *_: listener.end(piece(microbatch)),
        fail=listener.fail,
    )


def stages_of(schedule: Any) -> tuple[Any, ...]:
    """Return the stages that this process runs."""
    single = getattr(schedule, "_stage", None)
    return (single,) if single is not None else tuple(schedule._stages)


def rank_of(schedule: Any) -> int:
    """Return the rank of this process in its pipeline."""
    return int(stages_of(schedule)[0].group_rank)


def stamps_for(schedule: Any) -> Stamps:
    """Return the stamps for the work of this process: events of its GPU, or the clock of the host."""
    return stamps_on(stages_of(schedule)[0].device)
