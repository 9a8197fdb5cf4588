"""Transformers from their shapes: BERT-base (Devlin et al. 2019) and GPT-2 (Radford et al. 2019).

Attention is counted without the S×S matrix in memory, as fused kernels work; causal attention is not halved.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattune.workloads.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The shape of an encoder or decoder stack."""

    layers: int
    width: int
    vocabulary: int
    positions: int
    segments: int
    """Kinds of segment embeddings; 0 for none."""
    sequence: int
    """Tokens per sample that training uses."""
    head_dense: int
    """Dense layers of width × width outside of the stack."""

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the look-up tables."""
        return (self.vocabulary + self.positions + self.segments) * self.width


TRANSFORMERS = {
    "bert-base": Transformer(
        layers=12, width=768, vocabulary=30522, positions=512, segments=2, sequence=128, head_dense=1
    ),
    "gpt2": Transformer(
        layers=12, width=768, vocabulary=50257, positions=1024, segments=0, sequence=1024, head_dense=0
    ),
}


def transformer(name: str) -> tuple[Operation, ...]:
    """The operations of a transformer for one sequence, with the projection back to the vocabulary."""
    shape = TRANSFORMERS[name]
    tokens = shape.sequence * shape.width
    operations = [
        Operation(
            name="embedding",
            flops=tokens,
            reads=tokens,
            writes=tokens,
            parameters=shape.embedding_parameters,
            backward_passes=1.0,
        )
    ]
    operations.append(_norm("embedding/norm", shape))
    for layer in range(shape.layers):
        operations += _layer(f"layer{layer + 1}", shape)
    operations += [
        _linear(f"head/dense{index + 1}", shape, shape.width, shape.width) for index in range(shape.head_dense)
    ]
    return (*operations, _vocabulary(shape))


def _layer(name: str, shape: Transformer) -> list[Operation]:
    width, tokens = shape.width, shape.sequence * shape.width
    return [
        _linear(f"{name}/qkv", shape, width, 3 * width),
        _attention(f"{name}/attention", shape),
        _linear(f"{name}/projection", shape, width, width),
        _add(f"{name}/add1", shape),
        _norm(f"{name}/norm1", shape),
        _linear(f"{name}/up", shape, width, 4 * width),
        Operation(
            name=f"{name}/gelu", flops=8.0 * 4 * tokens, reads=4 * tokens, writes=4 * tokens, backward_passes=1.5
        ),
        _linear(f"{name}/down", shape, 4 * width, width),
        _add(f"{name}/add2", shape),
        _norm(f"{name}/norm2", shape),
    ]


def _add(name: str, shape: Transformer) -> Operation:
    tokens = shape.sequence * shape.width
    return Operation(name=name, flops=tokens, reads=2 * tokens, writes=tokens, backward_passes=1.0)


def _linear(name: str, shape: Transformer, inputs: int, outputs: int) -> Operation:
    return Operation(
        name=name,
        flops=2.0 * shape.sequence * inputs * outputs,
        reads=shape.sequence * inputs,
        writes=shape.sequence * outputs,
        parameters=inputs * outputs + outputs,
        multiplies=True,
    )


def _attention(name: str, shape: Transformer) -> Operation:
    """Scores and the weighted sum: two products of S×S×width."""
    tokens = shape.sequence * shape.width
    return Operation(
        name=name,
        flops=4.0 * shape.sequence * tokens,
        reads=3 * tokens,
        writes=tokens,
        multiplies=True,
    )


def _norm(name: str, shape: Transformer) -> Operation:
    tokens = shape.sequence * shape.width
    return Operation(
        name=name, flops=8.0 * tokens, reads=tokens, writes=tokens, parameters=2 * shape.width, backward_passes=2.0
    )


def _vocabulary(shape: Transformer) -> Operation:
    """The projection to the vocabulary, whose weights are those of the embedding and counted there."""
    return Operation(
        name="head/vocabulary",
        flops=2.0 * shape.sequence * shape.width * shape.vocabulary,
        reads=shape.sequence * shape.width,
        writes=shape.sequence * shape.vocabulary,
        multiplies=True,
    )
