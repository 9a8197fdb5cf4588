"""Partitions of a model in training: the computation of one nanobatch beside the collective of another.

A microbatch is divided into nanobatches. While one of them computes segment i of a layer, the collective that ended the
segment of the nanobatch before runs beside it: that of segment i, or for the first nanobatch that of segment i − 1 of
the last. A partition is such a pair. Partitions that are equal count as one type, with the number of times that it runs
per layer in the forward and in the backward pass. The first partition of a stage has no collective, and that of the
last one has no computation beside it; both are counted as one more ordinary partition.

With one nanobatch there is nothing to overlap with: a partition is a segment followed by its collective.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wattune.core.errors import InputError
from wattune.core.workload import Phase
from wattune.levels.overlap.layout import ParallelLayout, layer_operations, layers_of, shape_named
from wattune.levels.overlap.segments import (
    PIPE,
    ModelSegment,
    SlottedOp,
    backward_segments,
    forward_segments,
    in_training,
)
from wattune.physics.overlap import Communication
from wattune.plans.schedules import BACKWARD, FORWARD
from wattune.workloads.operation import NetworkOp, backward_phase, element_bytes, forward_phase
from wattune.workloads.transformer import TransformerPart, TransformerShape, transformer

SUFFIXES = {"all-reduce": "ar", "all-gather": "ag", "reduce-scatter": "rs", "all-to-all": "a2a"}

NONE = "none"
"""The launch slot of a collective that follows its computation."""


@dataclass(frozen=True, slots=True)
class KernelPartition:
    """Computation of one nanobatch, the collective of another, and how often a layer runs the pair."""

    name: str
    operations: tuple[SlottedOp, ...]
    communication: Communication | None
    forward_per_layer: int
    backward_per_layer: int
    """Recomputation included."""
    launches: tuple[str, ...]
    """Slots at which the collective can be launched; none with one nanobatch."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(operation.phase for operation in self.operations)

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(operation.slot for operation in self.operations)

    def per_layer(self, instruction: str) -> int:
        """Return how often a layer runs the partition in an instruction."""
        return {FORWARD: self.forward_per_layer, BACKWARD: self.backward_per_layer}.get(instruction, 0)


@dataclass(frozen=True, slots=True)
class ExtraWork:
    """Work of a stage outside of its layers, for one microbatch: its collectives follow its computation."""

    phases: tuple[Phase, ...] = ()
    communications: tuple[Communication, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedModel:
    """A model on one GPU of each stage, as partitions and the work outside of them."""

    name: str
    shape: TransformerShape
    layout: ParallelLayout
    microbatch_size: int
    sequence: int
    nanobatches: int
    recompute: bool
    stage_layers: tuple[int, ...]
    partitions: tuple[KernelPartition, ...]
    forward_extras: tuple[ExtraWork, ...]
    """One per stage."""
    backward_extras: tuple[ExtraWork, ...]

    @property
    def stages(self) -> int:
        return len(self.stage_layers)

    def partition(self, name: str) -> KernelPartition:
        for partition in self.partitions:
            if partition.name == name:
                return partition
        known = ", ".join(partition.name for partition in self.partitions)
        raise InputError(f"{self.name} has no partition {name!r}", hint=f"it has {known}")

    def counts(self, stage: int, instruction: str) -> dict[str, int]:
        """Return how often an instruction of a stage runs each partition."""
        layers = self.stage_layers[stage]
        counted = {partition.name: layers * partition.per_layer(instruction) for partition in self.partitions}
        return {name: count for name, count in counted.items() if count}

    def extra(self, stage: int, instruction: str) -> ExtraWork:
        return (self.forward_extras if instruction == FORWARD else self.backward_extras)[stage]


def partition_model(
    name: str,
    layout: ParallelLayout,
    *,
    microbatch_size: int,
    sequence: int | None = None,
    nanobatches: int = 2,
    recompute: bool = True,
    stage_layers: tuple[int, ...] | None = None,
) -> PartitionedModel:
    """Derive the partitions of a transformer; without `stage_layers` stages get about equal work."""
    shape = shape_named(name)
    sequence = shape.sequence if sequence is None else sequence
    if sequence < 1:
        raise InputError(f"a sequence cannot have {sequence} tokens", hint="give its length")
    layout.check_model(shape, sequence=sequence)
    samples = _nanobatch(microbatch_size, nanobatches)
    operations = layer_operations(shape, layout, sequence=sequence)
    forward = forward_segments(operations, shape, layout, sequence=sequence, samples=samples)
    backward = backward_segments(operations, shape, layout, sequence=sequence, samples=samples)
    extras = _Extras(shape, layout, sequence, microbatch_size)
    return PartitionedModel(
        name=name,
        shape=shape,
        layout=layout,
        microbatch_size=microbatch_size,
        sequence=sequence,
        nanobatches=nanobatches,
        recompute=recompute,
        stage_layers=layers_of(shape, stage_layers, stages=layout.pp),
        partitions=(
            *(_repeated(part, recompute) for part in _paired("fwd", forward, nanobatches)),
            *(_turned(part) for part in _paired("bwd", backward, nanobatches)),
        ),
        forward_extras=tuple(extras.forward(stage) for stage in range(layout.pp)),
        backward_extras=tuple(extras.backward(stage) for stage in range(layout.pp)),
    )


def _nanobatch(microbatch_size: int, nanobatches: int) -> int:
    if nanobatches < 1:
        raise InputError(f"a microbatch cannot have {nanobatches} nanobatches", hint="one or more; 2 is usual")
    if microbatch_size < 1 or microbatch_size % nanobatches:
        raise InputError(
            f"a microbatch of {microbatch_size} cannot be split into {nanobatches} equal nanobatches",
            hint=f"use a multiple of {nanobatches}",
        )
    return microbatch_size // nanobatches


def _paired(direction: str, segments: tuple[ModelSegment, ...], nanobatches: int) -> Iterable[KernelPartition]:
    """Pair every segment with the collectives that run beside it; as many as run per layer forward."""
    for place, segment in enumerate(segments):
        before, own = segments[place - 1].communication, segment.communication
        name = f"{direction}_{segment.name}"
        if nanobatches == 1 or own is None or before is None:
            yield KernelPartition(name, segment.operations, own, nanobatches, 0, ())
        elif before == own:
            yield _overlapping(name, segment, own, nanobatches)
        else:
            yield _overlapping(f"{name}_{SUFFIXES[before.name]}", segment, before, 1)
            yield _overlapping(f"{name}_{SUFFIXES[own.name]}", segment, own, nanobatches - 1)


def _overlapping(name: str, segment: ModelSegment, communication: Communication, count: int) -> KernelPartition:
    return KernelPartition(name, segment.operations, communication, count, 0, _launches(name, segment, communication))


def _launches(name: str, segment: ModelSegment, communication: Communication) -> tuple[str, ...]:
    """Leave out the last slot for all-reduces, as Kareus does everywhere but in `bwd_qkv_ar`."""
    slots = tuple(operation.slot for operation in segment.operations)
    shortened = communication.name == "all-reduce" and len(slots) > 1 and name != "bwd_qkv_ar"
    return slots[:-1] if shortened else slots


def _repeated(partition: KernelPartition, recompute: bool) -> KernelPartition:
    return replace(partition, backward_per_layer=partition.forward_per_layer) if recompute else partition


def _turned(partition: KernelPartition) -> KernelPartition:
    return replace(partition, forward_per_layer=0, backward_per_layer=partition.forward_per_layer)


@dataclass(frozen=True, slots=True)
class _Extras:
    """Embedding, head and loss of whole microbatches."""

    shape: TransformerShape
    layout: ParallelLayout
    sequence: int
    samples: int

    def _operations(self, prefix: str) -> tuple[NetworkOp, ...]:
        local = replace(self.shape, layers=1, sequence=self.sequence // self.layout.cp)
        made = transformer(local, TransformerPart(shards=self.layout.tp))
        return tuple(operation for operation in made if operation.name.startswith(prefix))

    def _summed(self) -> tuple[Communication, ...]:
        """Join what tensor-parallel GPUs found in their rows of the vocabulary."""
        tensor_bytes = self.samples * self.sequence / self.layout.cp * self.shape.width * element_bytes(PIPE)
        return (Communication.all_reduce(tensor_bytes, gpus=self.layout.tp),) if self.layout.tp > 1 else ()

    def forward(self, stage: int) -> ExtraWork:
        first, last = stage == 0, stage == self.layout.pp - 1
        operations = (*(self._operations("embedding") if first else ()), *(self._operations("head") if last else ()))
        phases = tuple(in_training(forward_phase(operation, self.samples, PIPE)) for operation in operations)
        return ExtraWork(phases, self._summed() if first else ())

    def backward(self, stage: int) -> ExtraWork:
        first, last = stage == 0, stage == self.layout.pp - 1
        operations = (*(self._operations("head") if last else ()), *(self._operations("embedding") if first else ()))
        phases = tuple(in_training(backward_phase(operation, self.samples, PIPE)) for operation in operations)
        return ExtraWork(phases, self._summed() if last else ())
