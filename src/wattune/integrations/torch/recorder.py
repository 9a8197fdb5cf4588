"""Records the GPU kernels of the operators that PyTorch runs on the meta device.

Fused attention on the meta device, where PyTorch has only the unfused form.

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
from torch.utils._python_dispatch import TorchDispatchMode

from wattune.core.workload import Pipe
from wattune.integrations.torch import rules
from wattune.workloads.kernel_fusion import Fusion, Kernel, Use

_FULL_BYTES, _HALF_BYTES = 4, 2


class Recorder(TorchDispatchMode):
    """A dispatch mode that records a kernel for every operator that moves or computes something."""

    def __init__(self, pipe: Pipe | None) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self._pipe = pipe
        self._path: list[str] = [""]
        self._modules: dict[int, str] = {}
        """The layer that made each node of the backward graph, by the number of the node."""
        # Storages are identified by address; a reference keeps an address from being reused. They are empty.
        self._storages: dict[int, Any] = {}

    @contextmanager
    def inside(self, model: torch.nn.Module) -> Iterator[None]:
        """Record, within the block, which layer of the model is active."""
        handles = [handle for name, module in model.named_modules() for handle in self._hooks(name, module)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hooks(self, name: str, module: torch.nn.Module) -> Iterator[Any]:
        yield module.register_forward_pre_hook(lambda *_: self._path.append(name))
        yield module.register_forward_hook(lambda *_: self._leave(), always_call=True)

    def _leave(self) -> None:
        self._path.pop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        options = kwargs or {}
        module = self._module()
        result = func(*args, **options)
        if not rules.moves_no_data(func):
            self._record(module, func, args, options, result)
        return result

    def _record(
        self, module: str, operator: Any, arguments: tuple[Any, ...], options: dict[str, Any], result: Any
    ) -> None:
        self.kernels.append(
            Kernel(
                name=operator.overloadpacket.__name__,
                module=module,
                backward=torch._C._current_autograd_node() is not None,
                fusion=rules.fusion(operator),
                pipe=self._unit(arguments) if rules.on_tensor_cores(operator, arguments) else Pipe.FP32,
                flops=rules.flops(operator, arguments, options, result),
                reads=tuple(map(self._use, rules.read_tensors(operator, arguments, options, result))),
                writes=tuple(map(self._use, rules.tensors(result))),
                launches=rules.launches(operator, result),
            )
        )

    def record_attention(
        self, *, query: Any, reads: tuple[Any, ...], writes: tuple[Any, ...], flops: float, extra_elements: float
    ) -> None:
        """Record a fused attention kernel, for which the meta device has no operator."""
        self.kernels.append(
            Kernel(
                name="attention",
                module=self._module(),
                backward=torch._C._current_autograd_node() is not None,
                fusion=Fusion.ALONE,
                pipe=self._unit((query,)),
                flops=flops,
                reads=tuple(map(self._use, reads)),
                writes=tuple(map(self._use, writes)),
                unfused_extra_bytes=extra_elements * self._element_bytes(query),
            )
        )

    def _module(self) -> str:
        """The innermost active layer; in the backward pass, the one whose forward pass made the active node."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self._modules.get(node._sequence_nr(), "")
        innermost = self._path[-1]
        # Nodes are numbered as they are made. The newest belongs to the active operator, unless that needs no node;
        # then the newest has an owner already.
        self._modules.setdefault(torch._C._autograd._get_sequence_nr() - 1, innermost)
        return innermost

    def _unit(self, arguments: tuple[Any, ...]) -> Pipe:
        """The requested pipe, or that of the data type."""
        if self._pipe is not None:
            return self._pipe
        halves = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in rules.tensors(arguments))
        return Pipe.FP16 if halves else Pipe.TF32

    def _use(self, tensor: Any) -> Use:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        # Elements that a broadcast repeats are in memory once.
        elements = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            elements *= size if stride else 1
        return Use(storage._cdata, float(elements * self._element_bytes(tensor)))

    def _element_bytes(self, tensor: Any) -> int:
        """Bytes of one number; FP32 counts half where half precision was requested."""
        size: int = tensor.element_size()
        halved = self._pipe is Pipe.FP16 and tensor.is_floating_point() and size == _FULL_BYTES
        return _HALF_BYTES if halved else size


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
