"""Hooks for pipelines outside `torch.distributed.pipelining`: Megatron-LM, DeepSpeed, or a schedule of your own.

    with open_gpu(f"nvml:{local_rank}") as gpu, played_steps("plan.json", gpu, rank=pipeline_rank) as hooks:
        with megatron_hooks(schedules, hooks):          # or deepspeed_hooks(engine, hooks), or by hand:
            ...                                         # hooks.iteration(step), hooks.forward(f), hooks.backward(b)

The n-th forward that a rank runs within an iteration is the n-th forward of its plan, and so for backwards. A rank that
runs them in another order than the plan restores its GPU, and training goes on. What is computed does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from wattune.control.actuator import Actuator, ActuatorThread, actuator_for
from wattune.control.ranks import Ranks
from wattune.control.stamps import HostStamp, Stamps
from wattune.core.errors import InputError, PlanError
from wattune.devices.gpu import Gpu
from wattune.integrations.method_hooks import hooked, replaced
from wattune.integrations.profile_run import profile_listener, profile_target
from wattune.levels.pipeline.plan_file import read_plan
from wattune.levels.pipeline.player import InstructionListener, PlanListener, PlanPlayer
from wattune.levels.pipeline.tuner import OnlineListener
from wattune.plans.plan import Plan
from wattune.plans.schedules import BACKWARD, FORWARD, Piece
from wattune.plans.shape import PipelineShape

Function = Callable[..., Any]

MEGATRON_SCHEDULES = (
    "forward_backward_pipelining_without_interleaving",
    "forward_backward_pipelining_with_interleaving",
)
"""Functions of Megatron-LM that run an iteration."""


class StepHooks:
    """Turns calls of the functions of a schedule into instructions of one rank, for a listener."""

    def __init__(self, listener: InstructionListener, pieces: Sequence[Piece], *, actuator: Actuator) -> None:
        self.listener = listener
        self.actuator = actuator
        """Sets the clocks; its `disabled` gives the reason where it does not any more."""
        self._by_instruction: Mapping[str, list[Piece]] = {
            name: [piece for piece in pieces if piece.instruction == name] for name in (FORWARD, BACKWARD)
        }
        self._counts = dict.fromkeys(self._by_instruction, 0)
        self._running = False

    def iteration(self, step: Function, *, trains: Callable[..., bool] = lambda *_, **__: True) -> Function:
        """Return the function that runs an iteration, with calls of the listener; `trains` gets its arguments."""

        def called(*arguments: Any, **options: Any) -> Any:
            if not trains(*arguments, **options):
                return step(*arguments, **options)
            try:
                return inner(*arguments, **options)
            finally:
                self._running = False

        inner = hooked(
            step,
            is_training=lambda: True,
            before=lambda *_: self._start(),
            after=lambda *_: self.listener.finish(),
            fail=self.listener.fail,
        )
        return called

    def forward(self, step: Function) -> Function:
        """Return the function that runs one forward, with calls of the listener while an iteration trains."""
        return self._hooked(step, FORWARD)

    def backward(self, step: Function) -> Function:
        """Return the function that runs one backward, likewise."""
        return self._hooked(step, BACKWARD)

    def _hooked(self, step: Function, instruction: str) -> Function:
        return hooked(
            step,
            is_training=lambda: self._running,
            before=lambda *_: self.listener.begin(self._next(instruction)),
            after=lambda *_: self._end(instruction),
            fail=self.listener.fail,
        )

    def _start(self) -> None:
        self._counts = dict.fromkeys(self._by_instruction, 0)
        self._running = True
        self.listener.start()

    def _next(self, instruction: str) -> Piece:
        pieces, count = self._by_instruction[instruction], self._counts[instruction]
        if count >= len(pieces):
            raise PlanError(
                f"this rank runs more than the {len(pieces)} {instruction}s of its plan",
                hint="plan for the schedule and the number of microbatches that are really run",
            )
        return pieces[count]

    def _end(self, instruction: str) -> None:
        piece = self._next(instruction)
        self._counts[instruction] += 1
        self.listener.end(piece)


@contextmanager
def played_steps(plan: Plan | Path | str, gpu: Gpu, *, rank: int, stamp: Stamps | None = None) -> Iterator[StepHooks]:
    """Set the clocks of a rank of a pipeline by a plan; yield the hooks that its schedule is to call.

    `stamp` makes the marks of what the GPU has done: `stamps_on(device)` of `wattune.integrations.cuda_stamp` for a GPU
    of PyTorch. Without it the host's time counts, which is right only where the host waits for the GPU.
    """
    wanted = plan if isinstance(plan, Plan) else read_plan(Path(plan)).plan.choice
    player = PlanPlayer.of(wanted, rank, spec=gpu.spec)
    with ActuatorThread([gpu]) as actuator:
        listener = PlanListener(player, actuator, stamp or HostStamp.now)
        yield StepHooks(listener, [_piece(step.span) for step in player.steps], actuator=actuator)


@contextmanager
def profiled_steps(
    shape: PipelineShape,
    gpu: Gpu,
    *,
    rank: int,
    ranks: Ranks,
    out: Path | str | None = None,
    clocks: int | None = None,
    stamp: Stamps | None = None,
) -> Iterator[StepHooks]:
    """Measure the stage profile of a pipeline of this shape; yield the hooks that its schedule is to call.

    `ranks` are the processes of the pipeline, such as `TorchRanks(group)`. See `profiled` of `pipelining`.
    """
    target = profile_target(out, clocks)
    with actuator_for([gpu]) as actuator:
        listener: OnlineListener = profile_listener(
            shape.order,
            gpu=gpu,
            actuator=actuator,
            stamp=stamp or HostStamp.now,
            ranks=ranks,
            rank=rank,
            target=target,
        )
        yield StepHooks(listener, shape.order[rank], actuator=actuator)


@contextmanager
def megatron_hooks(schedules: Any, hooks: StepHooks) -> Iterator[None]:
    """Hook into `megatron.core.pipeline_parallel.schedules`, the module itself, within the block.

    Its schedules call `forward_step` and `backward_step` of the module, and `get_forward_backward_func()` returns one
    of them: call that within the block. Iterations with `forward_only=True` are left alone.
    """
    names = [name for name in MEGATRON_SCHEDULES if hasattr(schedules, name)]
    if not names:
        raise InputError(
            "this module has no schedule of Megatron", hint="import megatron.core.pipeline_parallel.schedules"
        )
    with ExitStack() as stack:
        stack.enter_context(replaced(schedules, "forward_step", hooks.forward(schedules.forward_step)))
        stack.enter_context(replaced(schedules, "backward_step", hooks.backward(schedules.backward_step)))
        for name in names:
            step = hooks.iteration(getattr(schedules, name), trains=_trains)
            stack.enter_context(replaced(schedules, name, step))
        yield


def _trains(*_: Any, forward_only: bool = False, **__: Any) -> bool:
    return not forward_only


@contextmanager
def deepspeed_hooks(engine: Any, hooks: StepHooks) -> Iterator[None]:
    """Hook into a `PipelineEngine` of DeepSpeed within the block.

    It finds the functions of its instructions in a map of its class; this engine gets a map of its own.
    """
    wrapped = {"_exec_forward_pass": hooks.forward, "_exec_backward_pass": hooks.backward}
    functions = {
        command: wrapped[function.__name__](function) if function.__name__ in wrapped else function
        for command, function in engine._INSTRUCTION_MAP.items()
    }
    if sum(function.__name__ in wrapped for function in engine._INSTRUCTION_MAP.values()) != len(wrapped):
        raise InputError(
            "this engine has no _exec_forward_pass and _exec_backward_pass in its _INSTRUCTION_MAP",
            hint="is it a deepspeed.runtime.pipe.engine.PipelineEngine?",
        )
    with ExitStack() as stack:
        stack.enter_context(replaced(engine, "_INSTRUCTION_MAP", functions))
        stack.enter_context(replaced(engine, "train_batch", hooks.iteration(engine.train_batch)))
        yield


def _piece(name: str) -> Piece:
    instruction, _, place = name.partition(" ")
    stage, _, microbatch = place.partition(".")
    return Piece(instruction, int(stage), int(microbatch))
