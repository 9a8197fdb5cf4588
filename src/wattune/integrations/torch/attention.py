"""Fused attention on the meta device, where PyTorch has only the unfused form.

Notation: B heads over all samples, S queries, T keys, D width of a head. The forward pass does two products of S×T×D;
the backward pass does five, because it computes the scores again (Dao et al. 2022, FlashAttention). Causal attention
needs half of each. A program without such a kernel writes the S×T scores and reads them again: for the product, the
softmax and the weighted sum of the forward pass 4 transfers, in the backward pass 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from wattune.integrations.torch.recorder import Recorder

_FORWARD_TRANSFERS, _BACKWARD_TRANSFERS = 4, 8
_FORWARD_PRODUCTS, _BACKWARD_PRODUCTS = 2, 5


class _Attention(torch.autograd.Function):
    """An operation of the right shapes that records itself, forward and backward."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, causal: bool, recorder: Recorder) -> Any:
        ctx.save_for_backward(query, key, value)
        ctx.causal, ctx.recorder = causal, recorder
        result = query.new_empty((*query.shape[:-1], value.shape[-1]))
        recorder.record_attention(
            query=query,
            reads=(query, key, value),
            writes=(result,),
            flops=_flops(query, key, value, causal) * _FORWARD_PRODUCTS,
            extra_elements=_scores(query, key) * _FORWARD_TRANSFERS,
        )
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        (gradient,) = gradients
        query, key, value = ctx.saved_tensors
        results = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
        # The output is read as well; it has the gradient's shape.
        ctx.recorder.record_attention(
            query=query,
            reads=(query, key, value, gradient, gradient),
            writes=results,
            flops=_flops(query, key, value, ctx.causal) * _BACKWARD_PRODUCTS,
            extra_elements=_scores(query, key) * _BACKWARD_TRANSFERS,
        )
        return (*results, None, None)


def _scores(query: Any, key: Any) -> float:
    """B·S·T."""
    return float(query.numel() // query.shape[-1] * key.shape[-2])


def _flops(query: Any, key: Any, value: Any, causal: bool) -> float:
    """Of one product of S×T×D."""
    width = float(query.shape[-1] + value.shape[-1]) / 2
    return 2.0 * _scores(query, key) * width * (0.5 if causal else 1.0)


class _Calls(TorchFunctionMode):
    """Replaces the attention operator in every call, also where its name was imported."""

    def __init__(self, operator: Any, replacement: Any) -> None:
        super().__init__()
        self._operator, self._replacement = operator, replacement

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        return (self._replacement if func is self._operator else func)(*args, **(kwargs or {}))


@contextmanager
def gpu_kernels(recorder: Recorder) -> Iterator[None]:
    """Replace attention and dropout, within the block, by the fused kernels of a GPU.

    They are replaced in their module too, where functions of PyTorch find them.
    """
    attention, dropout = functional.scaled_dot_product_attention, functional.dropout

    def fused_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        del attn_mask, dropout_p, scale, enable_gqa
        return _Attention.apply(query, key, value, is_causal, recorder)

    def fused_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        del inplace
        return torch.native_dropout(input, p, training)[0] if training and p else input

    functional.scaled_dot_product_attention, functional.dropout = fused_attention, fused_dropout
    try:
        with _Calls(attention, fused_attention):
            yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = attention, dropout
