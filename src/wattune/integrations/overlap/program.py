"""The partitions of a stack of blocks, in the order in which they run.

A segment is the operations up to and including a collective; a partition is the operations of a segment for one
nanobatch, beside the collective of the partition before it, which belongs to another nanobatch. Forward and backward
pass are cut at different places, since other collectives act in them: the first operations of fwd_attn are the last
of the block before, and the first of bwd_attn those of the segment behind it.

With recomputation the forward segments of a block run again before its first backward segment. A collective whose
result no backward needs is then left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from wattune.integrations.overlap.steps import MEMORY_BOUND, BlockOperation, BlockStack, Collective


class Direction(Enum):
    """The pass that a partition belongs to."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"


class Activations(Enum):
    """What the forward pass leaves for the backward pass."""

    SAVE = "save"
    RECOMPUTE = "recompute"
    """Only the input of each block is kept."""
    DROP = "drop"
    """No backward pass follows."""


TRAIL = "trail"
"""Segment of the operations behind the last collective."""


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """The operations of a segment for one nanobatch."""

    partition: str
    direction: Direction
    nanobatch: int
    steps: tuple[int, ...]
    """Positions in the stack, in the order in which they run; a collective among them is left out."""
    collective: int | None
    """Position of the collective that follows, which runs beside the next partition."""


@dataclass(frozen=True, slots=True)
class _Segment:
    direction: Direction
    name: str
    steps: tuple[int, ...]
    collective: int | None

    def runs(self, nanobatches: int) -> Iterator[PartitionRun]:
        for nanobatch in range(nanobatches):
            yield PartitionRun(self.name, self.direction, nanobatch, self.steps, self.collective)


def forward_runs(stack: BlockStack, nanobatches: int) -> tuple[PartitionRun, ...]:
    """Return the partitions of the forward pass."""
    segments = _segments(stack, range(len(stack.steps)), Direction.FORWARD)
    return tuple(run for segment in segments for run in segment.runs(nanobatches))


def backward_runs(stack: BlockStack, nanobatches: int, activations: Activations) -> tuple[PartitionRun, ...]:
    """Return the partitions of the backward pass, with those that recompute before each block."""
    found: list[PartitionRun] = []
    waiting = list(range(stack.blocks)) if activations is Activations.RECOMPUTE else []
    for segment in _segments(stack, reversed(range(len(stack.steps))), Direction.BACKWARD):
        while waiting and min(segment.steps) < stack.starts[waiting[-1] + 1]:
            for again in _recomputed(stack, waiting.pop()):
                found.extend(again.runs(nanobatches))
        found.extend(segment.runs(nanobatches))
    return tuple(found)


def acting(step: Collective, direction: Direction) -> str | None:
    """Return the kind of a collective in a direction, or None where it does nothing."""
    return step.backward if direction is Direction.BACKWARD else step.forward


def collective_kind(stack: BlockStack, run: PartitionRun) -> str | None:
    """Return the kind of the collective that a partition leaves behind, or None."""
    return None if run.collective is None else acting(stack.collective(run.collective), run.direction)


def slots_of(stack: BlockStack, run: PartitionRun) -> tuple[str, ...]:
    """Return the slot of each step of a partition: its kind and a number; short operations in a row share one.

    What follows a collective that is left out belongs to the slot before it.
    """
    slots: list[str] = []
    counts: dict[str, int] = {}
    before = ""
    for place, position in enumerate(run.steps):
        step = stack.steps[position]
        if not isinstance(step, BlockOperation):
            return (*slots, *slots[-1:] * (len(run.steps) - place))
        if step.kind != before or step.kind not in MEMORY_BOUND:
            counts[step.kind] = counts.get(step.kind, -1) + 1
        slots.append(f"{step.kind}_{counts[step.kind]}")
        before = step.kind
    return tuple(slots)


def partition_slots(stack: BlockStack, runs: Sequence[PartitionRun]) -> dict[str, tuple[str, ...]]:
    """Return the slots of each partition that ends with a collective, over all blocks."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.collective is not None or not run.partition.endswith(TRAIL):
            found.setdefault(run.partition, {}).update(dict.fromkeys(slots_of(stack, run)))
    return {name: tuple(slots) for name, slots in found.items()}


def _segments(stack: BlockStack, positions: Iterable[int], direction: Direction) -> list[_Segment]:
    """Cut steps at the collectives that act in this direction."""
    prefix = "bwd" if direction is Direction.BACKWARD else "fwd"
    found, steps = [], list[int]()
    for position in positions:
        step = stack.steps[position]
        if isinstance(step, BlockOperation):
            steps.append(position)
        elif acting(step, direction) is not None:
            name = (direction is Direction.BACKWARD and step.backward_segment) or step.segment
            found.append(_Segment(direction, f"{prefix}_{name}", tuple(steps), position))
            steps = []
    if steps:
        found.append(_Segment(direction, f"{prefix}_{TRAIL}", tuple(steps), None))
    return found


def _recomputed(stack: BlockStack, block: int) -> list[_Segment]:
    """Return the forward segments of one block, without the collectives that no backward needs."""
    segments = _segments(stack, range(*stack.starts[block : block + 2]), Direction.RECOMPUTE)
    tail: tuple[int, ...] = ()
    while segments and not any(stack.operation(position).saves for position in segments[-1].steps):
        last = segments.pop()
        tail = (*last.steps, *(() if last.collective is None else (last.collective,)), *tail)
    if segments:
        last = segments[-1]
        left_out = () if last.collective is None else (last.collective,)
        segments[-1] = _Segment(last.direction, last.name, (*last.steps, *left_out, *tail), None)
    return segments
