"""The GPUs of a job as one part: what they are called, how many they are, and what they may draw."""

from __future__ import annotations

from collections.abc import Sequence

from wattune.control.ranks import Alone, Ranks
from wattune.core.errors import InputError
from wattune.core.job import JobGpu
from wattune.devices.gpu import Gpu


def part_of(gpus: Sequence[Gpu], ranks: Ranks | None = None) -> JobGpu:
    """The part that a job runs on: all GPUs of all its processes together. They are of one kind."""
    if not gpus:
        raise InputError("a job needs a GPU", hint="name one, such as nvml:0 or sim:a100")
    names = sorted({gpu.spec.name for gpu in gpus})
    if len(names) > 1:
        raise InputError(
            f"the GPUs of a job are of one kind, not {' and '.join(names)}", hint="name those of one kind alone"
        )
    (max_power_w, count), _ = (ranks or Alone()).sum_and_max((sum(map(highest_limit_w, gpus)), len(gpus)))
    spec = gpus[0].spec
    # An emulated GPU says in its name that it is; a part that is marked as simulated needs that no second time.
    name = spec.name.removesuffix(" (simulated)") if spec.simulated else spec.name
    return JobGpu(name=name, simulated=spec.simulated, max_power_w=max_power_w, count=round(count))


def highest_limit_w(gpu: Gpu) -> float:
    """The highest power limit of a GPU, or the one that holds where none can be set; 0 where it tells neither."""
    limits = gpu.spec.power_limits
    return limits.max_w if limits is not None else gpu.read().power_limit_w or 0.0


def found_limit_w(gpus: Sequence[Gpu], ranks: Ranks) -> float | None:
    """The lowest power limit that holds now on any GPU of the job; None where none of them tells."""
    limits_w = [limit_w for gpu in gpus if (limit_w := gpu.read().power_limit_w) is not None]
    _, (below_zero,) = ranks.sum_and_max((-min(limits_w, default=_NONE),))
    return None if below_zero <= -_NONE else -below_zero


_NONE = 1e9
"""More than any limit: stands for none where numbers are exchanged."""
