"""Carries out the actions of a forward pass and of its backward pass on the tensors of all nanobatches.

Each operation has a small graph of its own, from copies of its inputs (without their history) to its outputs, so that
the backward pass can go through the operations in our order and start collectives between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.integrations.overlap.launching import Action, Compute, Enter, Join, Start
from wattune.integrations.overlap.program import Activations, Direction, acting
from wattune.integrations.overlap.recomputing import SameAgain, casts_on, random_state
from wattune.integrations.overlap.steps import BlockOperation, BlockStack, State
from wattune.integrations.overlap.transport import PendingCollective, Transport, placeholder


class Launch(NamedTuple):
    """An operation or a collective that was given to the device: within this partition, for this nanobatch."""

    partition: str
    name: str
    nanobatch: int


@dataclass(frozen=True, slots=True)
class OperationGraph:
    """Inputs and outputs of an operation that ran."""

    inputs: State
    outputs: State


@dataclass(slots=True)
class Nanobatch:
    """The tensors of one nanobatch."""

    state: State
    gradients: State = ()
    graphs: dict[int, OperationGraph] = field(default_factory=dict)
    """By position."""
    checkpoints: dict[int, State] = field(default_factory=dict)
    """The state before each block, by the position of its first step."""
    random_states: dict[int, Any] = field(default_factory=dict)
    """The state of the random numbers before each operation that draws some."""

    def copy(self) -> Nanobatch:
        return replace(
            self,
            graphs=dict(self.graphs),
            checkpoints=dict(self.checkpoints),
            random_states=dict(self.random_states),
        )


class Execution:
    """One forward pass over a microbatch, and the backward pass that belongs to it."""

    def __init__(
        self,
        stack: BlockStack,
        states: Iterable[State],
        *,
        transports: Mapping[str, Transport],
        activations: Activations,
        enter: Callable[[Enter], None] | None = None,
        record: Callable[[Launch], None] | None = None,
    ) -> None:
        self.nanobatches = [Nanobatch(state) for state in states]
        self.parameter_gradients: dict[int, Any] = {}
        """By the id of the parameter."""
        self._stack, self._transports, self._activations = stack, transports, activations
        self._enter, self._record = enter, record
        self._pending: dict[tuple[Direction, int], PendingCollective] = {}
        self._autocast = casts_on(self.nanobatches[0].state[0].device)
        self.keeps_graphs = False
        """Whether a backward pass can be repeated; for measurements."""

    def kept(self) -> tuple[Nanobatch, ...]:
        """Return copies of the nanobatches as they are now; their tensors are shared."""
        return tuple(own.copy() for own in self.nanobatches)

    def bring_back(self, kept: Iterable[Nanobatch]) -> None:
        """Continue from nanobatches that were kept, which may be brought back again."""
        self.nanobatches = [own.copy() for own in kept]

    def regroup(self, count: int, *, dim: int) -> None:
        """Divide the microbatch into so many nanobatches from now on; what a forward pass kept is joined and split."""
        if count == len(self.nanobatches):
            return
        if any(nanobatch.graphs or nanobatch.random_states for nanobatch in self.nanobatches):
            raise RuntimeError("what a forward pass kept cannot be divided into other nanobatches")
        found = [Nanobatch(state) for state in _divided([own.state for own in self.nanobatches], count, dim)]
        for position in tuple(self.nanobatches[0].checkpoints):
            states = [own.checkpoints.pop(position) for own in self.nanobatches]
            for nanobatch, state in zip(found, _divided(states, count, dim), strict=True):
                nanobatch.checkpoints[position] = state
        self.nanobatches = found

    def run(self, actions: Iterable[Action]) -> None:
        """Carry out actions one after the other."""
        for action in actions:
            match action:
                case Enter():
                    if self._enter is not None:
                        self._enter(action)
                case Compute(direction=Direction.BACKWARD):
                    self._backward(action, self.nanobatches[action.nanobatch])
                case Compute():
                    self._forward(action, self.nanobatches[action.nanobatch])
                case Start():
                    self._start(action)
                case Join():
                    self._join(action)

    def _forward(self, action: Compute, nanobatch: Nanobatch) -> None:
        position, stack = action.position, self._stack
        if position in stack.starts:
            if action.direction is Direction.RECOMPUTE:
                nanobatch.state = nanobatch.checkpoints.pop(position)
            elif self._activations is Activations.RECOMPUTE:
                nanobatch.checkpoints[position] = nanobatch.state
        step = stack.steps[position]
        if not isinstance(step, BlockOperation):
            self._leave_out(position, nanobatch)
            return
        self._note(action.partition, step.name, action.nanobatch)
        if action.direction is Direction.FORWARD and self._activations is not Activations.SAVE:
            if step.random and self._activations is Activations.RECOMPUTE:
                nanobatch.random_states[position] = random_state(nanobatch.state[0].device)
            with torch.no_grad():
                nanobatch.state = step.run(nanobatch.state)
            return
        with self._repeated(action, nanobatch), torch.enable_grad():
            inputs = tuple(_leaf(tensor) for tensor in nanobatch.state)
            outputs = step.run(inputs)
        nanobatch.graphs[position] = OperationGraph(inputs, outputs)
        nanobatch.state = tuple(tensor.detach() for tensor in outputs)

    def _leave_out(self, position: int, nanobatch: Nanobatch) -> None:
        """Replace the result of a collective that no backward needs by a tensor of its shape."""
        step = self._stack.collective(position)
        kind, size = acting(step, Direction.RECOMPUTE), self._transports[step.group].size
        if kind is not None:
            last = placeholder(kind, nanobatch.state[-1], dim=step.dim, size=size)
            nanobatch.state = (*nanobatch.state[:-1], last)

    def _repeated(self, action: Compute, nanobatch: Nanobatch) -> AbstractContextManager[object]:
        """Return the context in which a recomputed operation does the same again: casts and random numbers."""
        if action.direction is not Direction.RECOMPUTE:
            return nullcontext()
        return SameAgain(self._autocast, nanobatch.random_states.pop(action.position, None), nanobatch.state[0].device)

    def _backward(self, action: Compute, nanobatch: Nanobatch) -> None:
        step = self._stack.operation(action.position)
        self._note(action.partition, step.name, action.nanobatch)
        take = nanobatch.graphs.__getitem__ if self.keeps_graphs else nanobatch.graphs.pop
        graph = take(action.position)
        found = _gradients(graph, nanobatch.gradients, step.parameters, keep=self.keeps_graphs)
        nanobatch.gradients = found[: len(graph.inputs)]
        for weight, gradient in zip(step.parameters, found[len(graph.inputs) :], strict=True):
            if gradient is not None:
                before = self.parameter_gradients.get(id(weight))
                self.parameter_gradients[id(weight)] = gradient if before is None else before + gradient

    def _start(self, action: Start) -> None:
        step, nanobatch = self._stack.collective(action.position), self.nanobatches[action.nanobatch]
        kind = acting(step, action.direction)
        values = nanobatch.gradients if action.direction is Direction.BACKWARD else nanobatch.state
        if kind is None or values[-1] is None:
            raise RuntimeError(f"{action.partition}: there is nothing to communicate at step {action.position}")
        self._note(action.partition, kind, action.nanobatch)
        sent = _unshared(values[-1], values[:-1])
        transport = self._transports[step.group]
        try:
            pending = transport.start(kind, sent, dim=step.dim, sms=action.sms)
        except RuntimeError as error:
            raise _located(error, action.direction, action.nanobatch) from None
        self._pending[action.direction, action.nanobatch] = pending

    def _join(self, action: Join) -> None:
        nanobatch = self.nanobatches[action.nanobatch]
        try:
            result = self._pending.pop((action.direction, action.nanobatch)).wait()
        except RuntimeError as error:
            raise _located(error, action.direction, action.nanobatch) from None
        if action.direction is Direction.BACKWARD:
            nanobatch.gradients = (*nanobatch.gradients[:-1], result)
        else:
            nanobatch.state = (*nanobatch.state[:-1], result)

    def _note(self, partition: str, name: str, nanobatch: int) -> None:
        if self._record is not None:
            self._record(Launch(partition, name, nanobatch))


def joined_state(states: Sequence[State], *, dim: int) -> State:
    """Return the tensors of all nanobatches together."""
    return tuple(torch.cat(parts, dim=dim) for parts in zip(*states, strict=True))


def split_state(state: Sequence[Any], count: int, *, dim: int) -> list[State]:
    """Return the tensors of each of so many nanobatches."""
    return list(zip(*(torch.tensor_split(tensor, count, dim=dim) for tensor in state), strict=True))


def _divided(states: Sequence[State], count: int, dim: int) -> list[State]:
    return split_state(states[0] if len(states) == 1 else joined_state(states, dim=dim), count, dim=dim)


def _gradients(graph: OperationGraph, gradients: State, parameters: State, *, keep: bool) -> State:
    """Return the gradients of inputs and parameters; None where one does not count."""
    pairs = [
        (output, gradient)
        for output, gradient in zip(graph.outputs, gradients, strict=True)
        if output.requires_grad and gradient is not None
    ]
    targets = (*graph.inputs, *parameters)
    wanted = [place for place, target in enumerate(targets) if target.requires_grad]
    found: list[Any] = [None] * len(targets)
    if pairs and wanted:
        values = torch.autograd.grad(
            [output for output, _ in pairs],
            [targets[place] for place in wanted],
            [gradient for _, gradient in pairs],
            retain_graph=keep,
            allow_unused=True,
        )
        for place, value in zip(wanted, values, strict=True):
            found[place] = value
    return tuple(found)


def _leaf(tensor: Any) -> Any:
    return tensor.detach().requires_grad_(tensor.is_floating_point() or tensor.is_complex())


def _unshared(tensor: Any, others: Iterable[Any]) -> Any:
    """Return the tensor, or a copy where another one shares its memory: collectives work in place."""
    place = tensor.untyped_storage().data_ptr()
    shared = any(other is not None and other.untyped_storage().data_ptr() == place for other in others)
    return tensor.clone() if shared else tensor


def _located(error: RuntimeError, direction: Direction, nanobatch: int) -> RuntimeError:
    error.add_note(
        f"in a collective of the {direction.value} pass, nanobatch {nanobatch}: another rank failed or hangs"
    )
    return error
