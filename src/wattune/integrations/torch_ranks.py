"""The ranks of a PyTorch job, for `recurring_job(..., ranks=TorchRanks())` and `tuned(..., ranks=TorchRanks())`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

try:
    import torch
    from torch import distributed
except ModuleNotFoundError as error:
    raise ImportError("ranks of PyTorch need PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import InputError


class TorchRanks:
    """The ranks of a process group, connected by a gloo group of their own.

    With its own group a rank that stops tuning never mixes up the collectives of training, and no exchange waits for a
    GPU. All ranks must create it at the same point of the program. An exchange waits for other ranks as long as the
    collectives of the process group do.
    """

    def __init__(self, group: Any = None) -> None:
        if not distributed.is_initialized():
            raise InputError(
                "PyTorch has no process group yet", hint="call torch.distributed.init_process_group() before"
            )
        self.rank = int(distributed.get_rank(group))
        """The number of this process, from 0."""
        self.size = int(distributed.get_world_size(group))
        """The number of processes."""
        members = distributed.get_process_group_ranks(group or distributed.group.WORLD)
        self._first = members[0]
        self._group: Any = distributed.new_group(
            members,
            backend="gloo",
            timeout=timeout_of(group),
            use_local_synchronization=True,
        )

    def broadcast(self, text: str) -> str:
        """Return the text of rank 0 on every rank."""
        payload = list(f"{text}\n".encode())  # never empty
        length = torch.tensor([len(payload)])
        distributed.broadcast(length, src=self._first, group=self._group)
        characters = torch.tensor(payload if self.rank == 0 else [0] * int(length), dtype=torch.uint8)
        distributed.broadcast(characters, src=self._first, group=self._group)
        return bytes(characters.tolist()).decode()[:-1]

    def sum_and_max(self, values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the sum and the maximum over all ranks of each value, the same on every rank."""
        total = torch.tensor(list(values), dtype=torch.float64)
        largest = total.clone()
        distributed.all_reduce(total, op=distributed.ReduceOp.SUM, group=self._group)
        distributed.all_reduce(largest, op=distributed.ReduceOp.MAX, group=self._group)
        return tuple(total.tolist()), tuple(largest.tolist())


def timeout_of(group: Any) -> timedelta | None:
    """Return how long the collectives of a group wait for other ranks; None where this PyTorch does not tell."""
    device = torch.device("cuda" if "nccl" in distributed.get_backend(group) else "cpu")
    try:
        timeout = (group or distributed.group.WORLD)._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        return None
    return timeout if isinstance(timeout, timedelta) else None
