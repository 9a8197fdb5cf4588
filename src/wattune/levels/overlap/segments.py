"""Segments of a transformer layer: the computation between two collectives, for one nanobatch on one GPU.

The passes of a layer are cyclic: the sum and the norm after a layer are the first operations of the next, so all
layers have the same segments. A segment ends with a collective, or has none where the layer needs none.
Operations have slots, at which a collective of another nanobatch can be launched: neighbours that the memory limits
(norm, rope, activation) share one, and each product and attention has its own. Source: ml-energy/kareus, whose names
of partitions and slots are used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

from wattune.core.workload import Phase, Pipe
from wattune.levels.overlap.layout import ParallelLayout
from wattune.physics.overlap import Communication
from wattune.workloads.operation import (
    NetworkOp,
    backward_phase,
    element_bytes,
    forward_phase,
    joined,
)
from wattune.workloads.transformer import TransformerShape

PIPE = Pipe.FP16
"""BF16 training."""

ACTIVITY = 0.26
"""Of products and attention in BF16. With it, and with nothing else fitted, an A100 40 GB spends what ten iterations of
Llama 3.2 3B and Qwen 3 1.7B did (ml-energy/kareus). Stages of GPT-3 on an A100 80 GB draw more."""

_GROUPS = {
    "add": "norm",
    "norm": "norm",
    "head-norm": "rope",
    "rotary": "rope",
    "attention": "attn",
    "silu": "activation",
    "gelu": "activation",
    "combine": "norm",
}
_EACH_ITS_SLOT = ("linear", "attn")


@dataclass(frozen=True, slots=True)
class SlottedOp:
    """Computation, and the slot at whose beginning a collective can be launched."""

    phase: Phase
    slot: str


@dataclass(frozen=True, slots=True)
class ModelSegment:
    """The computation of one nanobatch up to a collective, and that collective."""

    name: str
    operations: tuple[SlottedOp, ...]
    communication: Communication | None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A named part of a pass and the collective that follows it, if any."""

    name: str
    operations: tuple[NetworkOp, ...]
    communication: Communication | None


def forward_segments(
    operations: dict[str, NetworkOp], shape: TransformerShape, layout: ParallelLayout, *, sequence: int, samples: int
) -> tuple[ModelSegment, ...]:
    """Make the segments of the forward pass of a layer."""
    pieces = _forward_pieces(operations, _Collectives(shape, layout, sequence, samples))
    return tuple(_segments(pieces, samples, forward=True))


def backward_segments(
    operations: dict[str, NetworkOp], shape: TransformerShape, layout: ParallelLayout, *, sequence: int, samples: int
) -> tuple[ModelSegment, ...]:
    """Make the segments of the backward pass of a layer, without recomputation."""
    pieces = _backward_pieces(operations, _Collectives(shape, layout, sequence, samples))
    return tuple(_segments(pieces, samples, forward=False))


@dataclass(frozen=True, slots=True)
class _Collectives:
    """The collectives of a layer; None where the layout does not need one."""

    shape: TransformerShape
    layout: ParallelLayout
    sequence: int
    samples: int

    @property
    def _activations(self) -> float:
        """Bytes between layers, of the tokens of one context-parallel GPU."""
        return self.samples * self.sequence / self.layout.cp * self.shape.width * element_bytes(PIPE)

    def summed(self) -> Communication | None:
        """Join what tensor-parallel GPUs computed of a row-parallel product, or of its gradient."""
        if self.layout.tp == 1:
            return None
        made = Communication.reduce_scatter if self.layout.sequence_parallel else Communication.all_reduce
        return made(self._activations, gpus=self.layout.tp)

    def gathered(self, tensors: int = 1) -> Communication | None:
        """Collect the tokens that sequence-parallel GPUs share."""
        if not self.layout.sequence_parallel:
            return None
        return Communication.all_gather(tensors * self._activations, gpus=self.layout.tp)

    def _keys(self) -> float:
        """Bytes of the keys and values of whole sequences."""
        width = max(self.shape.key_width // self.layout.tp, self.shape.head_width)
        return 2 * self.samples * self.sequence * width * element_bytes(PIPE)

    def keys_gathered(self) -> Communication | None:
        return Communication.all_gather(self._keys(), gpus=self.layout.cp) if self.layout.cp > 1 else None

    def keys_scattered(self) -> Communication | None:
        return Communication.reduce_scatter(self._keys(), gpus=self.layout.cp) if self.layout.cp > 1 else None

    def exchanged(self) -> Communication | None:
        """Send tokens to their experts or back."""
        experts = self.layout.experts
        if experts is None or experts.parallel == 1:
            return None
        return Communication.all_to_all(self._activations / self.layout.tp * experts.chosen, gpus=experts.parallel)


def _forward_pieces(ops: dict[str, NetworkOp], collectives: _Collectives) -> list[_Piece]:
    first, middle = ("combine", "add2", "norm2"), ("add1", "norm1")
    attention = _taken(ops, "qkv", "head-norm", "rotary")
    pieces = [
        _Piece("attn_norm", _taken(ops, *first), collectives.gathered()),
        _Piece("qkv", attention, collectives.keys_gathered()),
        _Piece("ao", _taken(ops, "attention", "projection"), collectives.summed()),
    ]
    if collectives.layout.experts:
        return [
            *pieces,
            _Piece("router", _taken(ops, *middle, "router"), collectives.exchanged()),
            _Piece("experts", _inner(ops), collectives.exchanged()),
        ]
    return [
        *pieces,
        _Piece("mlp_norm", _taken(ops, *middle), collectives.gathered()),
        _Piece("mlp", _inner(ops), collectives.summed()),
    ]


def _backward_pieces(ops: dict[str, NetworkOp], collectives: _Collectives) -> list[_Piece]:
    last, middle = ("norm2", "add2", "combine"), ("norm1", "add1")
    # Products that gathered their input do so again for the gradient of their weights, beside their output's gradient.
    if collectives.layout.experts:
        pieces = [
            _Piece("experts_norm", _taken(ops, *last), collectives.exchanged()),
            _Piece("experts", _inner(ops)[::-1], collectives.exchanged()),
            _Piece("router", _taken(ops, "router", *middle), collectives.gathered(2)),
        ]
    else:
        pieces = [
            _Piece("mlp_norm", _taken(ops, *last), collectives.gathered(2)),
            _Piece("mlp", _inner(ops)[::-1], collectives.summed()),
            _Piece("attn_norm", _taken(ops, *middle), collectives.gathered(2)),
        ]
    return [
        *pieces,
        _Piece("o", _taken(ops, "projection"), collectives.keys_gathered()),
        _Piece("a", _taken(ops, "attention"), collectives.keys_scattered()),
        _Piece("qkv", _taken(ops, "rotary", "head-norm", "qkv"), collectives.summed()),
    ]


def _segments(pieces: list[_Piece], samples: int, *, forward: bool) -> Iterator[ModelSegment]:
    """Join pieces up to each collective; what follows the last one comes before the first of the next layer."""
    ends = [place for place, piece in enumerate(pieces) if piece.communication is not None]
    turned = pieces if not ends else [*pieces[ends[-1] + 1 :], *pieces[: ends[-1] + 1]]
    held: list[_Piece] = []
    for place, piece in enumerate(turned):
        held.append(piece)
        if piece.communication is not None or place == len(turned) - 1:
            operations = (op for part in held for op in part.operations)
            yield ModelSegment(_name(held), slotted(operations, samples, forward=forward), piece.communication)
            held = []


_JOINED = {"qkv_ao": "attn", "o_a_qkv": "attn", "qkv_ao_mlp": "layer", "mlp_o_a_qkv": "layer"}


def _name(pieces: list[_Piece]) -> str:
    """Name a segment after its pieces; norms are not mentioned beside others."""
    names = [piece.name for piece in pieces]
    joined_names = "_".join(name for name in names if len(names) == 1 or not name.endswith("_norm"))
    return _JOINED.get(joined_names, joined_names)


def slotted(operations: Iterable[NetworkOp], samples: int, *, forward: bool) -> tuple[SlottedOp, ...]:
    """Make the computation of some samples: one phase per slot, and slots numbered within their group."""
    make = forward_phase if forward else backward_phase
    phases = [(_group(op), in_training(make(op, samples, PIPE))) for op in operations]
    found: list[SlottedOp] = []
    counts: dict[str, int] = {}
    for group, together in groupby(phases, key=lambda pair: pair[0]):
        own = [phase for _, phase in together]
        for phase in own if group in _EACH_ITS_SLOT else [reduce(joined, own)]:
            found.append(SlottedOp(phase, f"{group}_{counts.get(group, 0)}"))
            counts[group] = counts.get(group, 0) + 1
    return tuple(found)


def in_training(phase: Phase) -> Phase:
    """Give matrix products the power that they have in training."""
    return replace(phase, activity=ACTIVITY) if phase.pipe is PIPE else phase


def _group(operation: NetworkOp) -> str:
    return _GROUPS.get(operation.name.rpartition("/")[2].rstrip("0123456789"), "linear")


def _taken(ops: dict[str, NetworkOp], *names: str) -> tuple[NetworkOp, ...]:
    return tuple(ops[name] for name in names if name in ops)


def _inner(ops: dict[str, NetworkOp]) -> tuple[NetworkOp, ...]:
    return _taken(ops, "up-gate", "up", "silu", "gelu", "down")
