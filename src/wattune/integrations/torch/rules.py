"""Rules that map operators of PyTorch to kernels: which move data, which can be fused, what each reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from wattune.workloads.kernel_fusion import Fusion

aten = torch.ops.aten

# Allocation moves no data; an unsafe view is a view that its schema does not declare.
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
# Row operations, copies and reductions: compilers fuse them with element-wise neighbours.
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
# Arguments that a kernel reads twice: batch norm for its statistics, a backward convolution for the gradients of its
# weights.
_READ_TWICE: Mapping[Any, tuple[int, ...]] = {
    aten.native_batch_norm: (0,),
    aten.native_batch_norm_backward: (0, 1),
    aten.convolution_backward: (0,),
}
# These read only the selected rows, as many as the result has.
_LOOK_UPS = {aten.embedding, aten.index, aten.index_select, aten.gather}
_NORMS = {aten.native_batch_norm, aten.native_layer_norm, aten._softmax, aten._log_softmax}
_NORM_FLOPS = 8.0


def moves_no_data(operator: Any) -> bool:
    """Return whether the operator only allocates or makes a view."""
    returns = operator._schema.returns
    views = [result.alias_info for result in returns if result.alias_info is not None]
    return operator.overloadpacket in _NOTHING or any(not alias.is_write for alias in views)


def multiplies(operator: Any) -> bool:
    """Return whether the operator is a matrix product or a convolution."""
    return operator.overloadpacket in flop_registry


def flops(operator: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any) -> float:
    """Count the arithmetic: PyTorch's formula for products, else some operations per element."""
    packet = operator.overloadpacket
    if packet in flop_registry:
        return float(flop_registry[packet](*arguments, **options, out_val=result))
    elements = max((tensor.numel() for tensor in tensors(result)), default=0)
    return elements * (_NORM_FLOPS if packet in _NORMS else 1.0)


def fusion(operator: Any) -> Fusion:
    """Return how the operator's kernel can be fused."""
    if multiplies(operator):
        return Fusion.ALONE
    if operator.overloadpacket in _STARTS:
        return Fusion.STARTS
    if torch.Tag.pointwise in operator.tags or operator.overloadpacket in _ROWS or operator.overloadpacket in _FILLS:
        return Fusion.JOINS
    return Fusion.ALONE


def on_tensor_cores(operator: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether tensor cores can run it; they cannot run a convolution of single channels."""
    if not multiplies(operator):
        return False
    if operator.overloadpacket in (aten.convolution, aten.convolution_backward):
        weight = arguments[1] if operator.overloadpacket is aten.convolution else arguments[2]
        return bool(weight.shape[1] > 1 or weight.shape[0] == 1)
    return True


def launches(operator: Any, result: Any) -> int:
    """Count the kernels: a backward convolution has one each for the gradients of input and weights, where needed."""
    if operator.overloadpacket is aten.convolution_backward:
        return sum(1 for _ in tensors(result[:2]))
    return 1


def read_tensors(operator: Any, arguments: tuple[Any, ...], options: Mapping[str, Any], result: Any) -> list[Any]:
    """Return the tensors that the kernel reads, with repeats."""
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
    """Yield all tensors in a nest of tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
