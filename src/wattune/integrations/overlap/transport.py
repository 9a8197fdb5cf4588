"""How collectives are carried out: by PyTorch's process groups, with a communicator for each number of SMs.

`Transport` is the seam: whatever starts a collective and returns something to wait for can take its place, such as
collectives on symmetric memory or in a green context (`streams`). NCCL runs a collective on a stream of its own, which
waits for what the current stream has been given before, and `wait` lets the current stream wait for it; gloo runs it in
a thread, and `wait` blocks.
"""

from __future__ import annotations

from typing import Any, Protocol

try:
    import torch
    from torch import distributed
except ModuleNotFoundError as error:
    raise ImportError("overlapping kernels in PyTorch needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import NotSupported
from wattune.integrations.overlap.steps import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL
from wattune.integrations.torch_ranks import timeout_of


class PendingCollective(Protocol):
    """A collective under way."""

    def wait(self) -> Any:
        """Let what follows wait for the collective, and return its result; raises where it failed."""


class Transport(Protocol):
    """Starts collectives between the ranks of one group."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def start(self, kind: str, tensor: Any, *, dim: int, sms: int | None) -> PendingCollective:
        """Start a collective on so many SMs; the tensor may be overwritten. All ranks make the same calls in order."""


class GroupTransfer:
    """A collective of a process group."""

    __slots__ = ("_dim", "_parts", "_result", "_sent", "_work")

    def __init__(self, work: Any, result: Any, *, sent: Any, parts: int, dim: int) -> None:
        self._work, self._result, self._sent = work, result, sent
        self._parts, self._dim = parts, dim

    def wait(self) -> Any:
        self._work.wait()
        self._sent = None  # kept until here, so that its memory is not used again
        if self._parts == 1 or self._dim == 0:
            return self._result
        return torch.cat(self._result.chunk(self._parts), dim=self._dim)


class GroupTransport:
    """Collectives of a PyTorch process group.

    With NCCL each number of SMs has a communicator of its own, made when it is first needed: all ranks need it at the
    same collective. Other back-ends use the CPU, where the number is kept in `budgets` and has no effect.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group or distributed.group.WORLD
        self.size = int(distributed.get_world_size(group))
        self.budgets: dict[int, Any] = {}
        """The communicator of each number of SMs that was asked for, in the order of asking."""
        self._limits_sms = "nccl" in distributed.get_backend(group)

    def start(self, kind: str, tensor: Any, *, dim: int, sms: int | None) -> GroupTransfer:
        group = self._communicator(sms)
        sent, parts = tensor.contiguous(), 1
        if kind == ALL_REDUCE:
            result = sent
            work = distributed.all_reduce(sent, group=group, async_op=True)
        elif kind == ALL_GATHER:
            result, parts = sent.new_empty((self.size * sent.shape[0], *sent.shape[1:])), self.size
            work = distributed.all_gather_into_tensor(result, sent, group=group, async_op=True)
        elif kind == ALL_TO_ALL:
            sent, parts = _parts_first(sent, self.size, dim), self.size
            result = torch.empty_like(sent)
            work = distributed.all_to_all_single(result, sent, group=group, async_op=True)
        else:
            sent = _parts_first(sent, self.size, dim)
            result = sent.new_empty((sent.shape[0] // self.size, *sent.shape[1:]))
            work = distributed.reduce_scatter_tensor(result, sent, group=group, async_op=True)
        return GroupTransfer(work, result, sent=sent, parts=parts, dim=dim)

    def _communicator(self, sms: int | None) -> Any:
        if sms is None:
            return self._group
        if sms not in self.budgets:
            self.budgets[sms] = limited_group(self._group, sms) if self._limits_sms else self._group
        return self.budgets[sms]


def _parts_first(tensor: Any, size: int, dim: int) -> Any:
    """Return the parts for the ranks one behind the other in the first dimension."""
    return torch.cat(tensor.chunk(size, dim=dim)) if dim else tensor


def limited_group(group: Any, sms: int) -> Any:
    """Make an NCCL group of the same ranks whose collectives use exactly so many SMs."""
    return distributed.new_group(
        distributed.get_process_group_ranks(group),
        backend="nccl",
        timeout=timeout_of(group),
        pg_options=limited_options(distributed, sms),
        use_local_synchronization=True,
        group_desc=f"wattune {sms} SMs",
    )


def limited_options(library: Any, sms: int) -> Any:
    """Return options of NCCL that fix its number of blocks, each of which occupies one SM."""
    kind = getattr(library, "ProcessGroupNCCL", None)
    options: Any = None if kind is None else kind.Options()
    if not hasattr(options, "config"):
        raise NotSupported(
            "this PyTorch cannot limit the SMs of NCCL", hint="use PyTorch 2.1 or later, built with NCCL 2.17 or later"
        )
    # Otherwise the blocks of the computation take all SMs before the collective gets any.
    options.is_high_priority_stream = True
    options.config.min_ctas = options.config.max_ctas = sms
    return options


def placeholder(kind: str, tensor: Any, *, dim: int, size: int) -> Any:
    """Return a tensor of the shape that a collective would return, with arbitrary values."""
    if kind in (ALL_REDUCE, ALL_TO_ALL):
        return tensor
    shape = list(tensor.shape)
    shape[dim] = shape[dim] * size if kind == ALL_GATHER else shape[dim] // size
    return tensor.new_empty(shape)
