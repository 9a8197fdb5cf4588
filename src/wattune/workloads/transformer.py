"""Transformers from their shapes: all of a network or one stage of a pipeline, on one of its tensor-parallel GPUs.

Attention is counted as in fused kernels (Dao et al. 2022): no S×S matrix in memory, causal attention does half of the
products, and the backward pass computes the scores again, so it does 2.5 times the forward arithmetic.

Sources of the shapes: BERT, Devlin et al. 2019, table of model sizes; GPT-2 (124 M), Radford et al. 2019; GPT-3 175B,
Brown et al. 2020, table 2.1; the base model for translation, Vaswani et al. 2017, table 3; Llama 3.2 3B, Llama 3.3 70B
and Qwen3 1.7B, the configuration files of their model cards. Sequences have the length of training: 128 tokens (BERT's
first phase), the whole context (GPT-2 and GPT-3), 4096 tokens (the newer ones).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.core.errors import InputError
from wattune.workloads.operation import NetworkOp, dense, elementwise

# Ratio of the traffic of the backward pass to that of the forward pass.
_ADD, _NORM, _ACTIVATION, _GATE = 1.0, 2.0, 1.5, 5 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """An encoder or decoder stack."""

    layers: int
    width: int
    heads: int
    key_heads: int
    """Heads of keys and values; fewer than `heads` in grouped-query attention."""
    head_width: int
    inner: int
    """Width inside the feed-forward part."""
    vocabulary: int
    sequence: int
    """Tokens per sample in training."""
    positions: int = 0
    """Rows of a learned table of positions; 0 with rotary positions."""
    segments: int = 0
    """Kinds of segment embeddings."""
    causal: bool = True
    gated: bool = False
    """True where the feed-forward part has a third, gating matrix, as in SwiGLU."""
    biases: bool = True
    """True where dense layers and norms have biases."""
    head_norms: bool = False
    """True where queries and keys are normed per head."""
    tied: bool = True
    """True where the projection to the vocabulary uses the weights of the embedding."""
    head_dense: int = 0
    """Dense layers of width × width in the head."""

    @property
    def query_width(self) -> int:
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        return self.key_heads * self.head_width

    @property
    def embedding_parameters(self) -> int:
        return (self.vocabulary + self.positions + self.segments) * self.width


_GPT2 = TransformerShape(
    layers=12,
    width=768,
    heads=12,
    key_heads=12,
    head_width=64,
    inner=4 * 768,
    vocabulary=50257,
    sequence=1024,
    positions=1024,
)
_BERT = replace(_GPT2, vocabulary=30522, positions=512, sequence=128, segments=2, causal=False, head_dense=1)
_LLAMA = TransformerShape(
    layers=28,
    width=3072,
    heads=24,
    key_heads=8,
    head_width=128,
    inner=8192,
    vocabulary=128256,
    sequence=4096,
    gated=True,
    biases=False,
)
_GPT3 = replace(_GPT2, layers=96, width=12288, heads=96, key_heads=96, head_width=128, inner=4 * 12288)

TRANSFORMERS = {
    "bert-base": _BERT,
    "bert-large": replace(_BERT, layers=24, width=1024, heads=16, key_heads=16, inner=4 * 1024),
    "gpt2": _GPT2,
    "gpt3-175b": replace(_GPT3, positions=2048, sequence=2048),
    "llama3.2-3b": _LLAMA,
    "llama3.3-70b": replace(_LLAMA, layers=80, width=8192, heads=64, inner=28672, tied=False),
    "qwen3-1.7b": replace(_LLAMA, width=2048, heads=16, inner=6144, vocabulary=151936, head_norms=True),
}

TRANSLATOR = replace(
    _GPT2, width=512, heads=8, key_heads=8, inner=4 * 512, vocabulary=37000, positions=256, sequence=64
)
"""The base model for translation, its six encoder and six decoder layers as one stack of twelve."""


@dataclass(frozen=True, slots=True)
class TransformerPart:
    """The part of a network on one GPU: a stage of the pipeline, and its share of each matrix."""

    stage: int = 1
    """From 1."""
    stages: int = 1
    shards: int = 1
    """Tensor-parallel GPUs, which divide heads and inner widths among them."""

    def __post_init__(self) -> None:
        if not (1 <= self.stage <= self.stages and self.shards >= 1):
            raise InputError(
                f"there is no stage {self.stage} of {self.stages} in {self.shards} shards",
                hint="stages are counted from 1, as in 1/8 to 8/8",
            )

    def layers(self, count: int) -> range:
        """Return the layers of this stage, from 0; the first stages take the remainder."""
        if self.stages > count:
            raise InputError(f"{count} layers do not fill {self.stages} stages", hint=f"use at most {count} stages")
        each, left = divmod(count, self.stages)
        begin = (self.stage - 1) * each + min(self.stage - 1, left)
        return range(begin, begin + each + (1 if self.stage <= left else 0))


WHOLE = TransformerPart()


def transformer(shape: TransformerShape, part: TransformerPart = WHOLE) -> tuple[NetworkOp, ...]:
    """Make the operations of one sequence: embedding, layers, projection to the vocabulary and loss."""
    operations: list[NetworkOp] = []
    if part.stage == 1:
        operations += _embedding(shape, part)
    for layer in part.layers(shape.layers):
        operations += _attention_half(f"layer{layer + 1}", shape, part)
        operations += _inner_half(f"layer{layer + 1}", shape, part)
    if part.stage == part.stages:
        operations += _head(shape, part)
    return tuple(operations)


def _embedding(shape: TransformerShape, part: TransformerPart) -> list[NetworkOp]:
    """Make look-ups in tables, whose gradients are dense."""
    tokens = shape.sequence * shape.width
    table = shape.embedding_parameters / part.shards
    look_up = NetworkOp(
        name="embedding",
        flops=tokens,
        reads=tokens,
        writes=tokens,
        parameters=table,
        weights_read=0.0,
        gradient_fill=table,
        backward_passes=1.0,
    )
    return [look_up, _norm("embedding/norm", shape)] if _norms_first(shape) else [look_up]


def _attention_half(name: str, shape: TransformerShape, part: TransformerPart) -> list[NetworkOp]:
    query, key = shape.query_width // part.shards, max(shape.key_width // part.shards, shape.head_width)
    operations = [_linear(f"{name}/qkv", shape, shape.width, query + 2 * key)]
    if shape.head_norms:
        weights = 2 * shape.head_width
        operations.append(_elementwise(f"{name}/head-norm", shape, query + key, _NORM, flops=8.0, parameters=weights))
    if not shape.positions:
        operations.append(_elementwise(f"{name}/rotary", shape, query + key, _ADD, flops=3.0))
    return [
        *operations,
        _attention(f"{name}/attention", shape, query, key),
        _linear(f"{name}/projection", shape, query, shape.width),
        _add(f"{name}/add1", shape),
        _norm(f"{name}/norm1", shape),
    ]


def _inner_half(name: str, shape: TransformerShape, part: TransformerPart) -> list[NetworkOp]:
    inner = shape.inner // part.shards
    if shape.gated:
        up = _linear(f"{name}/up-gate", shape, shape.width, 2 * inner)
        middle = elementwise(f"{name}/silu", shape.sequence * inner, flops=6.0, inputs=2, backward_passes=_GATE)
    else:
        up = _linear(f"{name}/up", shape, shape.width, inner)
        middle = _elementwise(f"{name}/gelu", shape, inner, _ACTIVATION, flops=8.0)
    return [
        up,
        middle,
        _linear(f"{name}/down", shape, inner, shape.width),
        _add(f"{name}/add2", shape),
        _norm(f"{name}/norm2", shape),
    ]


def _head(shape: TransformerShape, part: TransformerPart) -> list[NetworkOp]:
    """Make the last norm or dense layers, the projection to the vocabulary, and the loss over it."""
    layers = [_linear(f"head/dense{index + 1}", shape, shape.width, shape.width) for index in range(shape.head_dense)]
    first = [] if _norms_first(shape) else [_norm("head/norm", shape)]
    vocabulary = shape.vocabulary // part.shards
    weights = shape.width * vocabulary
    # The first and the last stage of a pipeline each hold the weights that a tied network has once.
    owned = 0 if shape.tied and part.stages == 1 else weights
    projection = NetworkOp(
        name="head/vocabulary",
        flops=2.0 * shape.sequence * weights,
        reads=shape.sequence * shape.width,
        writes=shape.sequence * vocabulary,
        parameters=owned,
        weights_read=weights,
        multiplies=True,
    )
    return [*first, *layers, projection, _elementwise("head/loss", shape, vocabulary, _ADD, flops=5.0)]


def _norms_first(shape: TransformerShape) -> bool:
    """Return whether there is a norm after the embedding (and each sum, as in BERT) or one before the head."""
    return not shape.causal


def _attention(name: str, shape: TransformerShape, query: int, key: int) -> NetworkOp:
    """Make scores and the weighted sum: two products of S×S×width, of which causal attention needs half."""
    return NetworkOp(
        name=name,
        flops=4.0 * shape.sequence**2 * query * (0.5 if shape.causal else 1.0),
        reads=shape.sequence * (query + 2 * key),
        writes=shape.sequence * query,
        multiplies=True,
        recomputed=0.5,
    )


def _linear(name: str, shape: TransformerShape, inputs: int, outputs: int) -> NetworkOp:
    parameters = inputs * outputs + (outputs if shape.biases else 0)
    return dense(name, inputs, outputs, rows=shape.sequence, parameters=parameters)


def _norm(name: str, shape: TransformerShape) -> NetworkOp:
    return _elementwise(name, shape, shape.width, _NORM, flops=8.0, parameters=(2 if shape.biases else 1) * shape.width)


def _add(name: str, shape: TransformerShape) -> NetworkOp:
    return elementwise(name, shape.sequence * shape.width, inputs=2, backward_passes=_ADD)


def _elementwise(
    name: str, shape: TransformerShape, width: int, backward: float, *, flops: float, parameters: int = 0
) -> NetworkOp:
    elements = shape.sequence * width
    return elementwise(name, elements, flops=flops, backward_passes=backward, parameters=parameters)
