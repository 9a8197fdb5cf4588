"""Collectives on a CUDA stream of our own: for functions that run on the current stream, as those on symmetric memory.

transport = StreamTransport(symmetric_all_reduce(group), torch.cuda.Stream(priority=-1))
transport = StreamTransport(run, green_stream(sms=12))         # in a green context with 12 SMs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import torch
    from torch import distributed
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import NotSupported
from wattune.integrations.overlap.steps import ALL_REDUCE

StreamCollective = Callable[[str, Any, int, int | None], Any]
"""Takes kind, tensor, dimension and SMs, gives the collective to the current stream, and returns its result."""


class StreamTransfer:
    """A collective on another stream; both tensors are kept until the wait has been given to the current stream."""

    __slots__ = ("_done", "_result", "_sent")

    def __init__(self, result: Any, done: Any, sent: Any) -> None:
        self._result, self._done, self._sent = result, done, sent

    def wait(self) -> Any:
        torch.cuda.current_stream().wait_event(self._done)
        self._result.record_stream(torch.cuda.current_stream())
        self._sent = None
        return self._result


class StreamTransport:
    """Runs a collective on a stream, once the current stream has got there."""

    def __init__(self, run: StreamCollective, stream: Any, *, size: int) -> None:
        self._run, self._stream, self.size = run, stream, size

    def start(self, kind: str, tensor: Any, *, dim: int, sms: int | None) -> StreamTransfer:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = self._run(kind, tensor, dim, sms)
            done = self._stream.record_event()
        return StreamTransfer(result, done, tensor)


def green_stream(sms: int, device: int = 0) -> Any:
    """Return a stream of a green context with so many SMs, where PyTorch and the driver have them."""
    kind = getattr(torch.cuda, "GreenContext", None)
    if kind is None or not getattr(torch.cuda.green_contexts, "SUPPORTED", False):
        raise NotSupported("this PyTorch has no green contexts", hint="limit SMs by NCCL: GroupTransport")
    return kind.create(num_sms=sms, device_id=device).Stream()


def symmetric_all_reduce(group: Any) -> StreamCollective:
    """Return an all-reduce within a node by the switch, on symmetric memory; the library chooses its SMs."""
    operations = getattr(torch.ops, "symm_mem", None)
    if operations is None or not hasattr(operations, "multimem_all_reduce_"):
        raise NotSupported("this PyTorch has no symmetric memory", hint="use GroupTransport")
    from torch.distributed import _symmetric_memory as symmetric_memory

    buffers: dict[tuple[tuple[int, ...], Any], Any] = {}

    def run(kind: str, tensor: Any, dim: int, sms: int | None) -> Any:
        del dim, sms
        if kind != ALL_REDUCE:
            raise NotSupported(f"symmetric memory carries {ALL_REDUCE} only, not {kind}", hint="use GroupTransport")
        key = (tuple(tensor.shape), tensor.dtype)
        if key not in buffers:
            buffers[key] = symmetric_memory.empty(*tensor.shape, dtype=tensor.dtype, device=tensor.device)
            symmetric_memory.rendezvous(buffers[key], group)
        buffer = buffers[key].copy_(tensor)
        operations.multimem_all_reduce_(buffer, "sum", (group or distributed.group.WORLD).group_name)
        return tensor.copy_(buffer)

    return run
