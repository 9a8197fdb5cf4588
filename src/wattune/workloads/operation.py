"""One operation of a network, and the phases that training it takes on a GPU.

Counting rules: a multiply-add is two operations; each tensor crosses the memory once per operation that reads or writes
it (no fusion); the backward pass of a layer with weights costs twice its forward arithmetic, once for the inputs and
once for the weights. In half precision activations, gradients and the weights that kernels read take two bytes. The
optimizer keeps weights and state in FP32; it then reads the gradient in two bytes and writes a copy of the weight in
two bytes, which is as many bytes in all as in FP32.

A few hundred operations become some dozens of phases that take nearly the same time and energy (`merged`). Joining a
compute-bound with a memory-bound operation would let one hide behind the other, so only operations of similar intensity
within one interval of the network are joined, without regard to their order inside it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

from wattune.core.workload import Phase, Pipe

_BYTES = 4
# A kernel that handles many tensors at a time takes on about 2.5 million parameters (the chunked lists of
# multi-tensor optimizers).
_PARAMETERS_PER_KERNEL = 2.5e6


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer: values of state per parameter, and arithmetic per parameter."""

    name: str
    state: int
    flops: float

    @property
    def bytes_per_parameter(self) -> int:
        """Memory traffic of one parameter: gradient in; weight and state in and out."""
        return _BYTES * (3 + 2 * self.state)


SGD = Optimizer("sgd", state=1, flops=4.0)
"""With momentum."""
ADAM = Optimizer("adam", state=2, flops=12.0)


def optimizer_phase(parameters: float, optimizer: Optimizer) -> Phase:
    """Make the phase of one step over this many parameters."""
    return Phase(
        name="optimizer",
        flops=optimizer.flops * parameters,
        dram_bytes=optimizer.bytes_per_parameter * parameters,
        launches=max(1.0, parameters / _PARAMETERS_PER_KERNEL),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOp:
    """One layer of a network, for one sample."""

    name: str
    flops: float = 0.0
    """Forward."""
    reads: float = 0.0
    """Elements of activations read in the forward pass."""
    writes: float = 0.0
    """Elements of activations written in the forward pass."""
    parameters: float = 0.0
    weights_read: float | None = None
    """Weights that cross the memory in the forward pass, per batch; None for all parameters once."""
    gradient_fill: float = 0.0
    """Further elements that the backward pass writes per batch: the dense gradient of a look-up table."""
    multiplies: bool = False
    """True where the arithmetic is matrix products, which tensor cores do."""
    backward_passes: float = 2.0
    """Ratio of backward to forward arithmetic and traffic."""
    recomputed: float = 0.0
    """Share of the forward arithmetic that the backward pass repeats."""
    launches: float = 1.0
    """Kernels in the forward pass."""

    @property
    def weight_traffic(self) -> float:
        """Weights that cross the memory in the forward pass, per batch."""
        return self.parameters if self.weights_read is None else self.weights_read


def dense(
    name: str, inputs: int, outputs: int, *, rows: float = 1, parameters: float | None = None, launches: float = 1.0
) -> NetworkOp:
    """Make a dense layer, with bias unless `parameters` is given, on a number of rows."""
    return NetworkOp(
        name=name,
        flops=2.0 * rows * inputs * outputs,
        reads=rows * inputs,
        writes=rows * outputs,
        parameters=inputs * outputs + outputs if parameters is None else parameters,
        multiplies=True,
        launches=launches,
    )


def elementwise(
    name: str,
    elements: float,
    *,
    flops: float = 1.0,
    inputs: float = 1,
    backward_passes: float = 1.5,
    parameters: float = 0.0,
    launches: float = 1.0,
) -> NetworkOp:
    """Make an operation on each element of `inputs` tensors; `flops` are per element.

    The default backward pass is that of an activation: it reads gradient and output and writes the gradient, 3
    transfers for the 2 of the forward pass.
    """
    return NetworkOp(
        name=name,
        flops=flops * elements,
        reads=inputs * elements,
        writes=elements,
        parameters=parameters,
        backward_passes=backward_passes,
        launches=launches,
    )


def training_phases(
    operations: Iterable[NetworkOp], *, batch_size: int, pipe: Pipe, optimizer: Optimizer = SGD
) -> tuple[Phase, ...]:
    """Make the phases of a step: forward in order, backward in reverse order, then the optimizer."""
    operations = tuple(operations)
    return (*gradient_phases(operations, batch_size=batch_size, pipe=pipe), update_phase(operations, optimizer))


def gradient_phases(operations: Iterable[NetworkOp], *, batch_size: int, pipe: Pipe) -> tuple[Phase, ...]:
    """Make the phases of a micro-step of gradient accumulation: forward, and backward in reverse order."""
    operations = tuple(operations)
    forward = inference_phases(operations, batch_size=batch_size, pipe=pipe)
    return (*forward, *(backward_phase(operation, batch_size, pipe) for operation in reversed(operations)))


def inference_phases(operations: Iterable[NetworkOp], *, batch_size: int, pipe: Pipe) -> tuple[Phase, ...]:
    """Make the phases of an evaluation: forward in order."""
    return tuple(forward_phase(operation, batch_size, pipe) for operation in operations)


def update_phase(operations: Iterable[NetworkOp], optimizer: Optimizer) -> Phase:
    """Make the phase of the optimizer's step over all parameters."""
    return optimizer_phase(sum(operation.parameters for operation in operations), optimizer)


def forward_phase(operation: NetworkOp, batch_size: int, pipe: Pipe) -> Phase:
    """Make the forward phase of a batch; weights are read once."""
    elements = batch_size * (operation.reads + operation.writes) + operation.weight_traffic
    return Phase(
        name=f"forward/{operation.name}",
        flops=batch_size * operation.flops,
        pipe=pipe if operation.multiplies else Pipe.FP32,
        dram_bytes=elements * element_bytes(pipe),
        launches=operation.launches,
    )


def backward_phase(operation: NetworkOp, batch_size: int, pipe: Pipe) -> Phase:
    """Make the backward phase; a layer with weights takes one kernel for its inputs and one for its weights."""
    forward = forward_phase(operation, batch_size, pipe)
    fill_bytes = operation.gradient_fill * element_bytes(pipe)
    return Phase(
        name=f"backward/{operation.name}",
        flops=forward.flops * (operation.backward_passes + operation.recomputed),
        pipe=forward.pipe,
        dram_bytes=forward.dram_bytes * operation.backward_passes + fill_bytes,
        launches=operation.launches * (2 if operation.multiplies else 1),
    )


def element_bytes(pipe: Pipe) -> int:
    """Return the bytes of a number in memory; TF32 numbers are stored as FP32."""
    return 2 if pipe is Pipe.FP16 else 4


# Operations per byte between kinds: element-wise work, and convolutions below, around and above the ridges of current
# GPUs (15 to 100 in practice).
_INTENSITIES = (10.0, 50.0, 150.0)


def merged(phases: tuple[Phase, ...], intervals: int) -> tuple[Phase, ...]:
    """Join phases, with the same totals: at most `intervals` intervals per pass, each with a phase per kind."""
    if intervals < 1:
        raise ValueError(f"a pass has at least one interval, not {intervals}")
    result: list[Phase] = []
    for _, part in groupby(phases, key=lambda phase: phase.name.split("/", 1)[0]):
        for interval in _cut(list(part), intervals):
            result += _by_kind(interval)
    return tuple(result)


def joined(first: Phase, second: Phase) -> Phase:
    """Add up two phases of one pipe; the result has the name of the first."""
    return replace(
        first,
        flops=first.flops + second.flops,
        dram_bytes=first.dram_bytes + second.dram_bytes,
        launches=first.launches + second.launches,
        host_stall_s=first.host_stall_s + second.host_stall_s,
    )


def _cut(phases: list[Phase], intervals: int) -> list[list[Phase]]:
    """Split into contiguous intervals of about equal traffic."""
    total = sum(phase.dram_bytes for phase in phases)
    if not total:
        return [phases]
    cuts: list[list[Phase]] = [[] for _ in range(intervals)]
    before = 0.0
    for phase in phases:
        middle = (before + phase.dram_bytes / 2) / total
        cuts[min(int(middle * intervals), intervals - 1)].append(phase)
        before += phase.dram_bytes
    return [cut for cut in cuts if cut]


def _by_kind(interval: list[Phase]) -> list[Phase]:
    kinds: dict[tuple[Pipe, int], list[Phase]] = {}
    for phase in interval:
        kinds.setdefault(_kind(phase), []).append(phase)
    return [reduce(joined, alike) for alike in kinds.values()]


def _kind(phase: Phase) -> tuple[Pipe, int]:
    intensity = phase.flops / phase.dram_bytes if phase.dram_bytes else float("inf")
    return phase.pipe, bisect(_INTENSITIES, intensity)
