"""One operation of a network, and what training asks of the GPU for it.

Counting rules: a multiply-add is two operations; each tensor crosses the memory once per operation that reads or writes
it (no fusion); the backward pass of a layer with weights costs twice its forward arithmetic, once for the inputs and
once for the weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wattune.core.workload import Phase, Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kind of layer at one place of a network, for one sample."""

    name: str
    flops: float = 0.0
    """Forward."""
    reads: float = 0.0
    """Elements of activations read in the forward pass."""
    writes: float = 0.0
    """Elements of activations written in the forward pass."""
    parameters: float = 0.0
    multiplies: bool = False
    """Whether the arithmetic is of matrices, which tensor cores do."""
    backward_passes: float = 2.0
    """Backward arithmetic and traffic over forward."""


def training_phases(operations: Iterable[Operation], *, batch_size: int, pipe: Pipe) -> tuple[Phase, ...]:
    """Forward in order, backward in reverse order, then the optimizer."""
    operations = tuple(operations)
    forward = [forward_phase(operation, batch_size, pipe) for operation in operations]
    backward = [backward_phase(operation, batch_size, pipe) for operation in reversed(operations)]
    return (*forward, *backward, optimizer_phase(sum(operation.parameters for operation in operations)))


def forward_phase(operation: Operation, batch_size: int, pipe: Pipe) -> Phase:
    """The operation on a batch, with its weights read once."""
    elements = batch_size * (operation.reads + operation.writes) + operation.parameters
    return Phase(
        name=f"forward/{operation.name}",
        flops=batch_size * operation.flops,
        pipe=pipe if operation.multiplies else Pipe.FP32,
        dram_bytes=elements * element_bytes(pipe),
        launches=1,
    )


def backward_phase(operation: Operation, batch_size: int, pipe: Pipe) -> Phase:
    """The gradients of the operation; a layer with weights takes one kernel for its inputs and one for its weights."""
    forward = forward_phase(operation, batch_size, pipe)
    return replace(
        forward,
        name=f"backward/{operation.name}",
        flops=forward.flops * operation.backward_passes,
        dram_bytes=forward.dram_bytes * operation.backward_passes,
        launches=2 if operation.multiplies else 1,
    )


def optimizer_phase(parameters: float) -> Phase:
    """SGD with momentum in FP32: weights and momentum read and written, gradients read; four operations each."""
    tensors_moved = 5
    return Phase(
        name="optimizer", flops=4 * parameters, dram_bytes=tensors_moved * 4 * parameters, launches=_fused(parameters)
    )


def _fused(parameters: float) -> float:
    """Kernels of an optimizer that handles many tensors at a time, about 2.5 million parameters each."""
    return max(1.0, parameters / 2.5e6)


def element_bytes(pipe: Pipe) -> int:
    """Bytes of a number in memory; TF32 numbers are kept as FP32."""
    return 2 if pipe is Pipe.FP16 else 4
