"""A pre-norm transformer block as in Llama, split over the ranks of a tensor-parallel group.

Each rank has some heads of the attention and some columns of the feed-forward network. Describe blocks of your own in
the same way: one operation per kernel or group of kernels, and the collectives where your ranks add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

try:
    import torch
    from torch import nn
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import InputError
from wattune.integrations.overlap.steps import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    BlockOperation,
    BlockStep,
    Collective,
    State,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Sizes of a block, before it is split."""

    width: int
    heads: int
    kv_heads: int
    feedforward: int
    epsilon: float = 1e-5
    rope_base: float = 500000.0

    def __post_init__(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads or self.head_width % 2:
            raise InputError(
                f"a width of {self.width} does not divide into {self.heads} heads with {self.kv_heads} for keys",
                hint="heads divide the width into even numbers, and key heads divide the heads",
            )

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    def check_ranks(self, ranks: int) -> None:
        """Refuse a number of ranks over which heads or columns cannot be spread."""
        for name, count in (("heads", self.heads), ("key heads", self.kv_heads), ("columns", self.feedforward)):
            if count % ranks:
                raise InputError(
                    f"{count} {name} cannot be split over {ranks} ranks", hint="use a divisor of all of them"
                )


class LlamaBlock(nn.Module):  # type: ignore[misc]
    """The part of a block that one of several ranks has."""

    def __init__(self, shape: LlamaShape, *, ranks: int = 1, dtype: Any = None, device: Any = None) -> None:
        super().__init__()
        shape.check_ranks(ranks)
        self.shape = shape
        self.heads, self.kv_heads = shape.heads // ranks, shape.kv_heads // ranks
        rows = (self.heads + 2 * self.kv_heads) * shape.head_width
        columns = shape.feedforward // ranks

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=False, dtype=dtype, device=device)

        self.attention_norm = nn.Parameter(torch.ones(shape.width, dtype=dtype, device=device))
        self.qkv = linear(shape.width, rows)
        self.projection = linear(self.heads * shape.head_width, shape.width)
        self.mlp_norm = nn.Parameter(torch.ones(shape.width, dtype=dtype, device=device))
        self.gate_up = linear(shape.width, 2 * columns)
        self.down = linear(columns, shape.width)

    def steps(self) -> tuple[BlockStep, ...]:
        return (
            BlockOperation("attn_norm", "norm", self._normed(self.attention_norm), (self.attention_norm,)),
            Collective("attn", backward=ALL_REDUCE),
            _linear("qkv", self.qkv),
            BlockOperation("rope", "rope", self._rotate),
            BlockOperation("attention", "attn", _attend),
            _linear("projection", self.projection),
            Collective("attn", forward=ALL_REDUCE),
            BlockOperation("attn_add", "norm", _add, saves=False),
            BlockOperation("mlp_norm", "norm", self._normed(self.mlp_norm), (self.mlp_norm,)),
            Collective("mlp", backward=ALL_REDUCE),
            _linear("gate_up", self.gate_up),
            BlockOperation("swiglu", "activation", _gate),
            _linear("down", self.down),
            Collective("mlp", forward=ALL_REDUCE),
            BlockOperation("mlp_add", "norm", _add, saves=False),
        )

    def forward(self, hidden: Any) -> Any:
        """Run the block as one rank alone: its share of the sums, without the other ranks."""
        state: State = (hidden,)
        for step in self.steps():
            state = step.run(state) if isinstance(step, BlockOperation) else state
        return state[0]

    def shard(self, rank: int, ranks: int) -> LlamaBlock:
        """Return the part of a whole block that one of several ranks has."""
        part = LlamaBlock(self.shape, ranks=ranks, dtype=self.down.weight.dtype, device=self.down.weight.device)
        width = self.shape.head_width

        def own(rows: Any, dim: int = 0) -> Any:
            return rows.chunk(ranks, dim=dim)[rank]

        with torch.no_grad():
            sizes = [heads * width for heads in (self.heads, self.kv_heads, self.kv_heads)]
            part.qkv.weight.copy_(torch.cat([own(rows) for rows in self.qkv.weight.split(sizes)]))
            part.gate_up.weight.copy_(torch.cat([own(rows) for rows in self.gate_up.weight.chunk(2)]))
            part.projection.weight.copy_(own(self.projection.weight, dim=1))
            part.down.weight.copy_(own(self.down.weight, dim=1))
            part.attention_norm.copy_(self.attention_norm)
            part.mlp_norm.copy_(self.mlp_norm)
        return part

    def _normed(self, weight: Any) -> Any:
        def run(state: State) -> State:
            (hidden,) = state
            scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.shape.epsilon)
            return hidden, hidden * scale * weight

        return run

    def _rotate(self, state: State) -> State:
        """Split heads, (batch, heads, tokens, head width), and rotate queries and keys by their positions."""
        residual, joint = state
        batch, tokens, _ = joint.shape
        heads = joint.view(batch, tokens, -1, self.shape.head_width).transpose(1, 2)
        queries, keys, values = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        half = self.shape.head_width // 2
        speeds = self.shape.rope_base ** (-torch.arange(half, device=joint.device, dtype=torch.float64) / half)
        angles = torch.outer(torch.arange(tokens, device=joint.device, dtype=torch.float64), speeds)
        cosines, sines = angles.cos().to(joint.dtype), angles.sin().to(joint.dtype)
        return residual, _rotated(queries, cosines, sines), _rotated(keys, cosines, sines), values


class SequenceParallelBlock:
    """A block whose ranks hold parts of the sequence outside of attention and feed-forward network.

    Inputs and outputs are the part of this rank. Gradients of the norms' weights are those of its part: add them up
    over the ranks.
    """

    def __init__(self, block: LlamaBlock, *, sequence_dim: int = 1) -> None:
        self._block, self._dim = block, sequence_dim

    def steps(self) -> tuple[BlockStep, ...]:
        return tuple(self._scattered(step) if isinstance(step, Collective) else step for step in self._block.steps())

    def _scattered(self, step: Collective) -> Collective:
        inner, outer = step.segment, f"{step.segment}_norm"
        if step.forward is None:
            return Collective(outer, ALL_GATHER, REDUCE_SCATTER, self._dim, backward_segment=inner)
        return Collective(inner, REDUCE_SCATTER, ALL_GATHER, self._dim, backward_segment=outer)


def _linear(name: str, module: nn.Linear) -> BlockOperation:
    def run(state: State) -> State:
        residual, value = state
        return residual, module(value)

    return BlockOperation(name, "linear", run, (module.weight,))


def _rotated(heads: Any, cosines: Any, sines: Any) -> Any:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, first * sines + second * cosines), dim=-1)


def _attend(state: State) -> State:
    residual, queries, keys, values = state
    groups = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)
    found = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    return residual, found.transpose(1, 2).flatten(2)


def _gate(state: State) -> State:
    residual, joint = state
    gate, up = joint.chunk(2, dim=-1)
    return residual, nn.functional.silu(gate) * up


def _add(state: State) -> State:
    residual, value = state
    return (residual + value,)
