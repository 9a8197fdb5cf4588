"""Collectives on CUDA streams of our own: for functions that run on the current stream, as those on symmetric memory.

beside = torch.cuda.Stream(priority=-1)
transport = StreamTransport(symmetric_all_reduce(group), beside, size=8)
transport = StreamTransport(symmetric_all_reduce(group), GreenStreams(beside), size=8)    # as many SMs as the plan says
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
    """Runs a collective on a stream, once the current stream has got there.

    All collectives run on one stream, or each on that of its number of SMs.
    """

    def __init__(self, run: StreamCollective, streams: Any, *, size: int) -> None:
        self._run, self._streams, self.size = run, streams, size

    def start(self, kind: str, tensor: Any, *, dim: int, sms: int | None) -> StreamTransfer:
        stream = self._streams.of(sms) if isinstance(self._streams, GreenStreams) else self._streams
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._run(kind, tensor, dim, sms)
            done = stream.record_event()
        return StreamTransfer(result, done, tensor)


class GreenStreams:
    """A stream per number of SMs, each of a green context that has so many, made when it is first needed.

    A collective that may use any number runs on the stream that is given.
    """

    def __init__(self, other: Any, *, device: int | None = None) -> None:
        contexts = getattr(torch.cuda, "green_contexts", None)
        if not getattr(contexts, "SUPPORTED", False):
            raise NotSupported("this PyTorch has no green contexts", hint="limit SMs by NCCL: GroupTransport")
        self._other, self._device = other, device
        self._contexts: dict[int, Any] = {}  # kept, since a stream lives as long as its context

    def of(self, sms: int | None) -> Any:
        """Return the stream for so many SMs; the driver may round their number up."""
        if sms is None:
            return self._other
        if sms not in self._contexts:
            try:
                self._contexts[sms] = torch.cuda.GreenContext.create(num_sms=sms, device_id=self._device)
            except RuntimeError as error:
                raise NotSupported(
                    f"the driver makes no green context of {sms} SMs: {error}", hint="limit SMs by NCCL: GroupTransport"
                ) from None
        return self._contexts[sms].Stream()


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
            joined = symmetric_memory.rendezvous(buffers[key], group or distributed.group.WORLD)
            if not getattr(joined, "multicast_ptr", 0):
                del buffers[key]
                raise NotSupported("these GPUs have no switch that adds up", hint="use GroupTransport")
        buffer = buffers[key].copy_(tensor)
        operations.multimem_all_reduce_(buffer, "sum", (group or distributed.group.WORLD).group_name)
        return tensor.copy_(buffer)

    return run
