"""How a transformer block is described to the executor: its operations in order, with the collectives between them.

    norm, f, qkv, rope, attention, projection, g, add, norm, f, gate and up, activation, down, g, add

An operation takes the state of a nanobatch, a tuple of tensors, and returns the next. A collective replaces the last
tensor of the state, or of the gradients on the way back. It may act in one direction only: in tensor parallelism g
reduces in the forward pass and f in the backward pass (Shoeybi et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

from wattune.core.errors import InputError

State = tuple[Any, ...]
"""The tensors of one nanobatch between two operations."""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
SUFFIXES = {ALL_REDUCE: "ar", ALL_GATHER: "ag", REDUCE_SCATTER: "rs", ALL_TO_ALL: "a2a"}
"""Kinds of collectives and how the names of partitions abbreviate them."""

MEMORY_BOUND = ("norm", "rope", "activation")
"""Kinds of operations that are short: those in a row share a slot."""


@dataclass(frozen=True, slots=True)
class BlockOperation:
    """A piece of computation before which a collective may be launched."""

    name: str
    kind: str
    """norm, linear, rope, attn or activation, or another word; slots are named after it."""
    run: Callable[[State], State] = field(repr=False)
    """Must not change its tensors in place. Before a collective, its last output must be memory of its own that its
    backward does not need: the collective writes there. That of a linear layer is."""
    parameters: tuple[Any, ...] = field(default=(), repr=False)
    """All weights that it uses."""
    saves: bool = True
    """Whether its backward needs values of the forward pass; an addition needs none."""
    random: bool = False
    """Whether it draws random numbers, which recomputation then repeats."""


@dataclass(frozen=True, slots=True)
class Collective:
    """Communication between the ranks of a group, of the last tensor of the state."""

    segment: str
    """The name of the operations that it ends, such as attn: the partitions are then fwd_attn and bwd_attn."""
    forward: str | None = None
    backward: str | None = None
    dim: int = 0
    """The dimension that is gathered, scattered or exchanged, in equal parts."""
    backward_segment: str | None = None
    """The name in the backward pass, where it differs: other operations come before it there."""
    group: str = "tp"
    """The name of the transport that carries it."""

    def __post_init__(self) -> None:
        for kind in (self.forward, self.backward):
            if kind is not None and kind not in SUFFIXES:
                raise InputError(f"there is no collective {kind!r}", hint=f"use one of {', '.join(SUFFIXES)}")


BlockStep = BlockOperation | Collective


class Block(Protocol):
    """A transformer block that the executor can run."""

    def steps(self) -> Sequence[BlockStep]:
        """Return the operations and collectives in the order of the forward pass."""


@dataclass(frozen=True, slots=True)
class BlockStack:
    """The steps of consecutive blocks."""

    steps: tuple[BlockStep, ...]
    starts: tuple[int, ...]
    """The position of the first step of each block, and behind them the number of steps."""

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> BlockStack:
        """Join the steps of blocks."""
        listed = [tuple(block.steps()) for block in blocks]
        if not listed or not all(listed):
            raise InputError("there are no blocks, or one has no steps", hint="give at least one block with operations")
        return cls(tuple(step for steps in listed for step in steps), (0, *accumulate(map(len, listed))))

    @property
    def blocks(self) -> int:
        return len(self.starts) - 1

    @property
    def parameters(self) -> tuple[Any, ...]:
        """All weights, each once."""
        found = {
            id(weight): weight for step in self.steps if isinstance(step, BlockOperation) for weight in step.parameters
        }
        return tuple(found.values())

    def operation(self, position: int) -> BlockOperation:
        step = self.steps[position]
        if not isinstance(step, BlockOperation):
            raise TypeError(f"step {position} is a collective")
        return step

    def collective(self, position: int) -> Collective:
        step = self.steps[position]
        if not isinstance(step, Collective):
            raise TypeError(f"step {position} is an operation")
        return step
