"""Records the GPU kernels of the operators that PyTorch runs on the meta device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
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
