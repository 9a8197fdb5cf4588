"""Runs nanobatches of a microbatch through the blocks of a transformer, as a plan says.

    executor = OverlapExecutor(blocks, {"tp": GroupTransport(group)}, nanobatches=2, activations=Activations.RECOMPUTE)
    executor.follow(forward=forward_choices, backward=backward_choices)
    hidden = executor(hidden)             # in place of: for block in blocks: hidden = block(hidden)

Forward and backward pass of all its blocks are one `torch.autograd.Function`: gradients reach the weights by the
ordinary way, after the backward pass of its last block. Use several executors, one after the other, where gradients
are wanted earlier, as for data parallelism; each joins its nanobatches at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

try:
    import torch
    from torch.autograd.function import once_differentiable
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.control.actuator import Actuator
from wattune.control.stamps import Stamps
from wattune.core.errors import InputError, PlanError
from wattune.core.setting import Setting
from wattune.integrations.overlap.execution import Execution, Launch, joined_state, split_state
from wattune.integrations.overlap.launching import (
    Action,
    Choices,
    Enter,
    LaunchChoice,
    WholeMicrobatch,
    actions_of,
    check_choices,
)
from wattune.integrations.overlap.program import (
    Activations,
    PartitionRun,
    backward_runs,
    forward_runs,
    partition_slots,
)
from wattune.integrations.overlap.steps import Block, BlockOperation, BlockStack, Collective
from wattune.integrations.overlap.transport import Transport


class PartitionClocks:
    """Requests the clock of a partition when the GPU gets there, where it differs from the last one.

    A plan with one clock per instruction thus makes one request per instruction. No request blocks.
    """

    def __init__(self, actuator: Actuator, stamp: Stamps) -> None:
        self._actuator, self._stamp = actuator, stamp
        self._requested: int | None = None

    def enter(self, action: Enter) -> None:
        """Request the clock of a partition that begins."""
        if action.sm_mhz is not None and action.sm_mhz != self._requested:
            self._requested = action.sm_mhz
            self._actuator.put(Setting(action.sm_mhz), reached=self._stamp().passed)


@dataclass(slots=True)
class _Followed:
    """The actions of a pass, worked out once for each set of choices."""

    stack: BlockStack
    runs: tuple[PartitionRun, ...]
    """In nanobatches."""
    whole_runs: tuple[PartitionRun, ...]
    """The same of a microbatch that is not split."""
    nanobatches: int
    whole: bool = False
    """Whether the microbatch is not split at present."""
    actions: tuple[Action, ...] = ()
    known: dict[tuple[bool, frozenset[tuple[str, LaunchChoice]]], tuple[Action, ...]] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        return 1 if self.whole else self.nanobatches

    def follow(self, wanted: Choices | WholeMicrobatch) -> None:
        whole = isinstance(wanted, WholeMicrobatch)
        runs = self.whole_runs if whole else self.runs
        choices = wanted.choices(partition_slots(self.stack, runs)) if isinstance(wanted, WholeMicrobatch) else wanted
        key = whole, frozenset(choices.items())
        if key not in self.known:
            check_choices(self.stack, runs, choices)
            self.known[key] = actions_of(self.stack, runs, choices)
        self.whole, self.actions = whole, self.known[key]


class OverlapExecutor:
    """Blocks of a transformer whose collectives overlap with the computation of other nanobatches."""

    def __init__(
        self,
        blocks: Sequence[Block],
        transports: Mapping[str, Transport],
        *,
        nanobatches: int = 2,
        activations: Activations = Activations.SAVE,
        batch_dim: int = 0,
        clocks: PartitionClocks | None = None,
        record: Callable[[Launch], None] | None = None,
    ) -> None:
        if nanobatches < 1:
            raise InputError(f"a microbatch cannot have {nanobatches} nanobatches", hint="one or more; 2 is usual")
        self.stack = BlockStack.of(blocks)
        self.transports = _checked(self.stack, transports)
        self.nanobatches, self.activations, self.batch_dim = nanobatches, activations, batch_dim
        self.clocks, self.record = clocks, record
        split, whole = (forward_runs(self.stack, parts) for parts in (nanobatches, 1))
        self._forward = _Followed(self.stack, split, whole, nanobatches)
        split, whole = (backward_runs(self.stack, parts, activations) for parts in (nanobatches, 1))
        self._backward = _Followed(self.stack, split, whole, nanobatches)
        self.follow(forward={}, backward={})

    def follow(
        self, *, forward: Choices | WholeMicrobatch | None = None, backward: Choices | WholeMicrobatch | None = None
    ) -> None:
        """Run the next passes as these choices say, or without nanobatches; None leaves a pass as it is.

        Without any choices collectives follow the computation. `backward` has the choices of the forward partitions
        too, where these are recomputed. All ranks of a group must follow the same choices. A backward pass may be split
        unlike its forward pass where activations are recomputed and nothing is random (`check_split`).
        """
        for followed, choices in ((self._forward, forward), (self._backward, backward)):
            if choices is not None:
                followed.follow(choices)

    def check_split(self, forward: Choices | WholeMicrobatch, backward: Choices | WholeMicrobatch) -> None:
        """Raise unless a backward pass that follows one of these can use what the forward pass of the other keeps."""
        splits = [self.nanobatches > 1 and not isinstance(own, WholeMicrobatch) for own in (forward, backward)]
        if splits[0] == splits[1]:
            return
        if self.activations is not Activations.RECOMPUTE:
            raise PlanError(
                "kept activations of a whole microbatch cannot be split into nanobatches, nor joined",
                hint="recompute them, or plan with --no-plain",
            )
        if any(isinstance(step, BlockOperation) and step.random for step in self.stack.steps):
            raise PlanError(
                "random numbers of a whole microbatch cannot be drawn again in nanobatches, nor joined",
                hint="plan with --no-plain",
            )

    @property
    def forward_runs(self) -> tuple[PartitionRun, ...]:
        return self._forward.runs

    @property
    def backward_runs(self) -> tuple[PartitionRun, ...]:
        return self._backward.runs

    @property
    def forward_actions(self) -> tuple[Action, ...]:
        return self._forward.actions

    @property
    def backward_actions(self) -> tuple[Action, ...]:
        return self._backward.actions

    def __call__(self, *inputs: Any) -> Any:
        """Return what the blocks make of the inputs, tensors that have the microbatch in one dimension."""
        if torch.is_grad_enabled():
            outputs = _Blocks.apply(self, len(inputs), *inputs, *self.stack.parameters)
        else:
            outputs = self.joined(self.start(inputs, Activations.DROP))
        return outputs if len(outputs) > 1 else outputs[0]

    def start(self, inputs: Sequence[Any], activations: Activations, *, until: int | None = None) -> Execution:
        """Return the execution of a forward pass, after all of its actions or the first few."""
        execution = Execution(
            self.stack,
            self._split(inputs),
            transports=self.transports,
            activations=activations,
            enter=None if self.clocks is None else self.clocks.enter,
            record=self.record,
        )
        execution.run(self._forward.actions[:until])
        return execution

    def _split(self, inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        sizes, parts = {tensor.shape[self.batch_dim] for tensor in inputs}, self._forward.parts
        if len(sizes) != 1 or min(sizes) < parts:
            raise InputError(
                f"microbatches of {', '.join(map(str, sorted(sizes)))} cannot be split into {parts}",
                hint="give all inputs one microbatch of at least as many samples as there are nanobatches",
            )
        return split_state([tensor.detach() for tensor in inputs], parts, dim=self.batch_dim)

    def joined(self, execution: Execution) -> tuple[Any, ...]:
        """Return the outputs of a forward pass, of all nanobatches together."""
        return joined_state([nanobatch.state for nanobatch in execution.nanobatches], dim=self.batch_dim)

    def load_gradients(self, execution: Execution, gradients: Sequence[Any]) -> None:
        """Give the nanobatches of the backward pass the gradients of their outputs, so that it can begin."""
        execution.regroup(self._backward.parts, dim=self.batch_dim)
        places = [nanobatch.state[0].shape[self.batch_dim] for nanobatch in execution.nanobatches]
        parts = [
            [None] * len(places) if gradient is None else gradient.split(places, dim=self.batch_dim)
            for gradient in gradients
        ]
        for number, nanobatch in enumerate(execution.nanobatches):
            nanobatch.gradients = tuple(part[number] for part in parts)


class _Blocks(torch.autograd.Function):  # type: ignore[misc]
    """All blocks as one function of the inputs and of all weights."""

    @staticmethod
    def forward(context: Any, executor: OverlapExecutor, count: int, *tensors: Any) -> tuple[Any, ...]:
        context.executor, context.count = executor, count
        context.execution = executor.start(tensors[:count], executor.activations)
        return executor.joined(context.execution)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
        executor, execution, context.execution = context.executor, context.execution, None
        if execution is None:
            raise RuntimeError("the backward pass of these blocks has run before, and its values are gone")
        executor.load_gradients(execution, gradients)
        execution.run(executor.backward_actions)
        weights = [execution.parameter_gradients.get(id(weight)) for weight in executor.stack.parameters]
        return (None, None, *_whole(executor, execution, context.count), *weights)


def _whole(executor: OverlapExecutor, execution: Execution, count: int) -> list[Any]:
    """Join the gradients of the inputs; None where an input needs none."""
    found = []
    for parts in zip(*(nanobatch.gradients for nanobatch in execution.nanobatches), strict=True):
        found.append(None if parts[0] is None else torch.cat(parts, dim=executor.batch_dim))
    return found[:count]


def _checked(stack: BlockStack, transports: Mapping[str, Transport]) -> dict[str, Transport]:
    missing = {step.group for step in stack.steps if isinstance(step, Collective)} - set(transports)
    if missing:
        raise InputError(f"no transport carries {', '.join(sorted(missing))}", hint="give one for each group")
    return dict(transports)
