"""The ranks of a data-parallel job in PyTorch, for `recurring_job(..., ranks=TorchRanks())`."""

from __future__ import annotations

from collections.abc import Sequence

try:
    import torch
    from torch import distributed
except ModuleNotFoundError as error:
    raise ImportError("ranks of PyTorch need PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import InputError


class TorchRanks:
    """The ranks of the default process group. What they exchange is a few numbers and lines, on the group's device."""

    def __init__(self) -> None:
        if not distributed.is_initialized():
            raise InputError(
                "PyTorch has no process group yet", hint="call torch.distributed.init_process_group() before"
            )
        self.rank = int(distributed.get_rank())
        """Which of them this is, from 0."""
        self.size = int(distributed.get_world_size())
        """How many they are."""
        self._device = torch.device("cuda" if "nccl" in distributed.get_backend() else "cpu")

    def broadcast(self, text: str) -> str:
        """The text of rank 0, on every rank."""
        told = [text]
        distributed.broadcast_object_list(told, src=0, device=self._device)
        return str(told[0])

    def sum_and_max(self, values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For each place the sum and the largest of what the ranks pass in, the same on every rank."""
        total = torch.tensor(list(values), dtype=torch.float64, device=self._device)
        largest = total.clone()
        distributed.all_reduce(total, op=distributed.ReduceOp.SUM)
        distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
        return tuple(total.tolist()), tuple(largest.tolist())
