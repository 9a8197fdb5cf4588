"""How operators of PyTorch become kernels: which move nothing, which can be fused, and what each reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from wattune.workloads.kernel_fusion import Fusion

aten = torch.ops.aten

# Allocation moves nothing; an unsafe view is a view that its schema does not call one.
_NOTHING = {
    aten.empty,
    aten.empty_like,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
    aten._unsafe_view,
    aten.lift_fresh,
}
_FILLS = {aten.bernoulli_, aten.fill_, aten.zero_, aten.normal_, aten.uniform_}
# Row by row, copied, or summed into little: fused by compilers with what is element-wise around it.
_ROWS = {
    aten._softmax,
    aten._softmax_backward_data,
    aten._log_softmax,
    aten._log_softmax_backward_data,
    aten.native_layer_norm,
    aten.native_layer_norm_backward,
    aten.native_dropout,
    aten.native_dropout_backward,
    aten.nll_loss_forward,
    aten.nll_loss_backward,
    aten.sum,
    aten.mean,
    aten.clone,
    aten.cat,
    aten._to_copy,
    aten.copy_,
    aten.slice_backward,
    aten.select_backward,
}
_STARTS = {aten.native_batch_norm, aten.native_batch_norm_backward, aten.embedding, aten.max_pool2d_with_indices}
# The arguments that the kernel reads a second time: batch norm for its statistics, a backward convolution for the
# gradients of its weights.
_READ_TWICE: Mapping[Any, tuple[int, ...]] = {
    aten.native_batch_norm: (0,),
    aten.native_batch_norm_backward: (0, 1),
    aten.convolution_backward: (0,),
}
# Of these only the rows that are asked for are read, as many as come out.
_LOOK_UPS = {aten.embedding, aten.index, aten.index_select, aten.gather}
_NORMS = {aten.native_batch_norm, aten.native_layer_norm, aten._softmax, aten._log_softmax}
_NORM_FLOPS = 8.0


def moves_nothing(operator: Any) -> bool:
    """Whether the operator only allocates or looks at a tensor in another way."""
    returns = operator._schema.returns
    views = [result.alias_info for result in returns if result.alias_info is not None]
    return operator.overloadpacket in _NOTHING or any(not alias.is_write for alias in views)


def multiplies(operator: Any) -> bool:
    """Whether the operator is a product of matrices or a convolution."""
    return operator.overloadpacket in flop_registry


def flops(operator: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any) -> float:
    """Arithmetic: the counter's own formula for products, else some operations per element."""
    packet = operator.overloadpacket
    if packet in flop_registry:
        return float(flop_registry[packet](*arguments, **options, out_val=result))
    elements = max((tensor.numel() for tensor in tensors(result)), default=0)
    return elements * (_NORM_FLOPS if packet in _NORMS else 1.0)


def fusion(operator: Any) -> Fusion:
    """What the operator's kernel can be fused with."""
    if multiplies(operator):
        return Fusion.ALONE
    if operator.overloadpacket in _STARTS:
        return Fusion.STARTS
    if torch.Tag.pointwise in operator.tags or operator.overloadpacket in _ROWS or operator.overloadpacket in _FILLS:
        return Fusion.JOINS
    return Fusion.ALONE


def on_tensor_cores(operator: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether tensor cores can do it; a convolution of single channels is none of theirs."""
    if not multiplies(operator):
        return False
    if operator.overloadpacket in (aten.convolution, aten.convolution_backward):
        weight = arguments[1] if operator.overloadpacket is aten.convolution else arguments[2]
        return bool(weight.shape[1] > 1 or weight.shape[0] == 1)
    return True


def launches(operator: Any, result: Any) -> int:
    """Kernels: a backward convolution has one for its input and one for its weights, as far as both are asked for."""
    if operator.overloadpacket is aten.convolution_backward:
        return sum(1 for _ in tensors(result[:2]))
    return 1


def read_tensors(operator: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any) -> list[Any]:
    """The tensors that the kernel reads, twice where it reads them twice."""
    packet = operator.overloadpacket
    if packet in _FILLS:
        return []
    if packet in _LOOK_UPS:
        return [*tensors(arguments[1:]), *tensors(result)]
    found = [*tensors(arguments), *tensors(tuple(options.values()))]
    again = [arguments[place] for place in _READ_TWICE.get(packet, ())]
    if packet is aten.convolution_backward and launches(operator, result) == 1:
        again = []
    return [*found, *again]


def tensors(value: Any) -> Iterator[Any]:
    """All tensors in a nest of tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
