"""The GPUs of a training job: which of them a process uses, and which process counts each.

Several processes may share a GPU. The lowest rank on a GPU counts its energy and sets it; the others only read it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattune.config import Config
from wattune.control.ranks import Alone, Ranks
from wattune.core.errors import DeviceError, InputError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu, PlaysWorkloads, time_of
from wattune.devices.open import Surroundings, expand


def ranks_of_program() -> Ranks:
    """Return the ranks of the process group, where the program has imported PyTorch and made one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return Alone()
    from wattune.integrations.torch_ranks import TorchRanks

    return TorchRanks()


def uses_cuda() -> bool:
    """Return whether the program has imported a PyTorch that finds GPUs."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def own_names(config: Config, around: Surroundings, *, local: int, of_several: bool) -> tuple[str, ...]:
    """Return the GPUs of this process, the `local`th on its host: that of the `device` setting, or that of CUDA."""
    if config.device != "auto":
        return (config.device,)
    names = expand(("auto",), around)
    if uses_cuda() and sys.modules["torch"].cuda.is_initialized():
        place = int(sys.modules["torch"].cuda.current_device())
    elif of_several or uses_cuda():
        place = local
    else:
        return names
    return (names[place % len(names)],)


def gathered(ranks: Ranks, value: Any) -> tuple[Any, ...]:
    """Return the values of all ranks, in their order; each must have a JSON form. All ranks call it together."""
    text = json.dumps(value).encode()
    if ranks.size == 1:
        return (json.loads(text),)
    longest = int(ranks.sum_and_max((float(len(text)),))[1][0])
    slots = [0.0] * (longest * ranks.size)
    slots[ranks.rank * longest : ranks.rank * longest + len(text)] = map(float, text)
    letters = bytes(map(int, ranks.sum_and_max(slots)[0]))
    each = (letters[start : start + longest].rstrip(b"\0") for start in range(0, len(letters), longest))
    return tuple(json.loads(one) for one in each)


def local_place(hosts: Sequence[str], rank: int) -> int:
    """Return how many lower ranks are on the same host."""
    return hosts[:rank].count(hosts[rank])


def key_of(gpu: Gpu) -> str:
    """Return what tells a GPU from all others of the job; one that this process simulates is its own."""
    inside = f"/{os.getpid()}/{id(gpu)}" if isinstance(gpu, PlaysWorkloads) else ""
    return f"{socket.gethostname()}/{gpu.spec.uuid}{inside}"


def is_first(keys: Sequence[Sequence[str]], rank: int, place: int) -> bool:
    """Return whether no earlier rank, and no earlier GPU of this one, has the key of a rank's GPU."""
    key = keys[rank][place]
    return key not in keys[rank][:place] and not any(key in other for other in keys[:rank])


def check_ranks(each: Sequence[Mapping[str, Any]], *, tunes: bool) -> None:
    """Raise an error on every rank where one of them has no GPU, or where GPUs to tune are of several kinds."""
    for rank, one in enumerate(each):
        if one["problem"] is not None:
            raise DeviceError(f"rank {rank}: {one['problem']}", hint="see the log of that rank")
    kinds = sorted({kind for one in each for kind in one["kinds"]})
    if tunes and len(kinds) > 1:
        raise InputError(
            f"ranks that are tuned as one have GPUs of one kind, not {' and '.join(kinds)}",
            hint="leave out max_slowdown and objective to measure only",
        )


@dataclass(slots=True)
class ReadOnlyGpu:
    """A GPU that another rank sets: it is read, and settings are left to that rank."""

    gpu: Gpu

    @property
    def spec(self) -> GpuSpec:
        return self.gpu.spec

    @property
    def refresh(self) -> Refresh | None:
        return self.gpu.refresh

    @refresh.setter
    def refresh(self, refresh: Refresh | None) -> None:
        self.gpu.refresh = refresh

    def gpu_time_s(self) -> float:
        return time_of(self.gpu)()

    def read(self) -> Reading:
        return self.gpu.read()

    def count(self) -> Count:
        return self.gpu.count()

    def apply(self, setting: Setting) -> None:
        self.spec.check(setting)

    def restore(self) -> None:
        """Leave it to the rank that set it."""
