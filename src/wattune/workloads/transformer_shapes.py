"""Shapes of named transformers.

Sources: BERT, Devlin et al. 2019, table of model sizes; GPT-2 (124 M), Radford et al. 2019; GPT-3 175B, Brown et al.
2020, table 2.1; the base model for translation, Vaswani et al. 2017, table 3; Llama 3.2 3B, Llama 3.3 70B and Qwen3
1.7B, the configuration files of their model cards. Sequences have the length of training: 128 tokens (BERT's
first phase), the whole context (GPT-2 and GPT-3), 4096 tokens (the newer ones).
"""

from __future__ import annotations

from dataclasses import dataclass


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
    """Whether the feed-forward part has a third, gating matrix, as in SwiGLU."""
    biases: bool = True
    """Whether dense layers and norms have them."""
    head_norms: bool = False
    """Whether queries and keys are normed per head."""
    tied: bool = True
    """Whether the projection to the vocabulary uses the weights of the embedding."""
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


def _classic(
    *,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    positions: int,
    sequence: int,
    segments: int = 0,
    causal: bool = True,
    head_dense: int = 0,
) -> TransformerShape:
    """Every head has its own keys, the inner width is four times the outer, positions are learned."""
    return TransformerShape(
        layers=layers,
        width=width,
        heads=heads,
        key_heads=heads,
        head_width=width // heads,
        inner=4 * width,
        vocabulary=vocabulary,
        sequence=sequence,
        positions=positions,
        segments=segments,
        causal=causal,
        head_dense=head_dense,
    )


def _modern(
    *,
    layers: int,
    width: int,
    heads: int,
    inner: int,
    vocabulary: int,
    head_norms: bool = False,
    tied: bool = True,
) -> TransformerShape:
    """Eight key heads of width 128, a gated inner part, no biases, rotary positions."""
    return TransformerShape(
        layers=layers,
        width=width,
        heads=heads,
        key_heads=8,
        head_width=128,
        inner=inner,
        vocabulary=vocabulary,
        sequence=4096,
        gated=True,
        biases=False,
        head_norms=head_norms,
        tied=tied,
    )


def _bert(*, layers: int, width: int, heads: int) -> TransformerShape:
    return _classic(
        layers=layers,
        width=width,
        heads=heads,
        vocabulary=30522,
        positions=512,
        sequence=128,
        segments=2,
        causal=False,
        head_dense=1,
    )


TRANSFORMERS = {
    "bert-base": _bert(layers=12, width=768, heads=12),
    "bert-large": _bert(layers=24, width=1024, heads=16),
    "gpt2": _classic(layers=12, width=768, heads=12, vocabulary=50257, positions=1024, sequence=1024),
    "gpt3-175b": _classic(layers=96, width=12288, heads=96, vocabulary=50257, positions=2048, sequence=2048),
    "llama3.2-3b": _modern(layers=28, width=3072, heads=24, inner=8192, vocabulary=128256),
    "llama3.3-70b": _modern(layers=80, width=8192, heads=64, inner=28672, vocabulary=128256, tied=False),
    "qwen3-1.7b": _modern(layers=28, width=2048, heads=16, inner=6144, vocabulary=151936, head_norms=True),
}

TRANSLATOR = _classic(layers=12, width=512, heads=8, vocabulary=37000, positions=256, sequence=64)
"""The base model for translation, its six encoder and six decoder layers as one stack of twelve."""
