"""The GPUs of a job: their name, number and power limits, and the settings to choose from."""

from __future__ import annotations

from collections.abc import Sequence

from wattune.control.ranks import Alone, Ranks
from wattune.core.errors import InputError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.job import JobGpu
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.levels.job.options import JobKnob
from wattune.response.points import candidates_of


def job_gpu_of(gpus: Sequence[Gpu], ranks: Ranks | None = None) -> JobGpu:
    """Describe all GPUs of all processes of a job; they must be of one model."""
    if not gpus:
        raise InputError("a job needs a GPU", hint="name one, such as nvml:0 or sim:a100")
    names = sorted({gpu.spec.name for gpu in gpus})
    if len(names) > 1:
        raise InputError(
            f"the GPUs of a job are of one kind, not {' and '.join(names)}", hint="name those of one kind alone"
        )
    (max_power_w, count), _ = (ranks or Alone()).sum_and_max((sum(map(highest_limit_w, gpus)), len(gpus)))
    spec = gpus[0].spec
    return JobGpu(
        name=spec.model_name,
        simulated=spec.simulated,
        max_power_w=max_power_w,
        count=round(count),
        memory_bytes=gpus[0].read().memory_total_bytes,
    )


def highest_limit_w(gpu: Gpu) -> float:
    """Return the highest power limit of a GPU, or the current one where none can be set; 0 where it reports neither."""
    limits = gpu.spec.power_limits
    return limits.max_w if limits is not None else gpu.read().power_limit_w or 0.0


def found_limit_w(gpus: Sequence[Gpu], ranks: Ranks) -> float | None:
    """Return the lowest current power limit of any GPU of the job; None where none reports one."""
    limits_w = [limit_w for gpu in gpus if (limit_w := gpu.read().power_limit_w) is not None]
    _, (below_zero,) = ranks.sum_and_max((-min(limits_w, default=_NONE),))
    return None if below_zero <= -_NONE else -below_zero


_NONE = 1e9
"""Larger than any limit; stands for none between ranks."""


POINTS = 13
"""Power limits to choose from, at steps of a twentieth of the highest: the best of them costs some tenths of a percent
more than the best of all."""

LOWEST_SHARE = 0.4
"""Share of the highest clock below which no published training job uses less energy (Kareus, Perseus, GPOEO)."""

STEP_W = 25.0
"""Between two power limits, as in Zeus (You et al., NSDI'23); wider on GPUs with a wide range."""


def job_settings(spec: GpuSpec, knob: JobKnob, *, limit_w: float | None) -> tuple[Setting, ...]:
    """Return the settings to choose from, ascending; none where the GPU has nothing to set.

    `limit_w` is the power limit that was found; no setting exceeds it.
    """
    match knob:
        case JobKnob.NONE:
            return ()
        case JobKnob.SM_CLOCK:
            return _clocks(spec)
        case JobKnob.POWER_LIMIT:
            return _limits(spec, limit_w)
        case JobKnob.AUTO:
            return _clocks(spec) or _limits(spec, limit_w)


def _clocks(spec: GpuSpec) -> tuple[Setting, ...]:
    """Return the core clocks that a running program may get too, at the highest memory clock, ascending."""
    return tuple(
        setting
        for setting in candidates_of(spec)
        if setting.sm_mhz is not None
        and setting.mem_mhz is None
        and setting.sm_mhz >= LOWEST_SHARE * spec.sm_clocks_mhz[-1]
    )


def _limits(spec: GpuSpec, limit_w: float | None) -> tuple[Setting, ...]:
    """Return limits in whole watts, from the one that was found downwards."""
    limits = spec.power_limits
    if limits is None:
        return ()
    highest_w = min(limit_w or limits.default_w, limits.max_w)
    if highest_w <= limits.min_w:
        return (Setting(power_limit_w=highest_w),)
    step_w = max(STEP_W, (highest_w - limits.min_w) / POINTS)
    below = [highest_w - step_w * place for place in range(1, POINTS + 1)]
    whole = {float(round(watts)) for watts in below if watts >= limits.min_w}
    return tuple(Setting(power_limit_w=watts) for watts in sorted({*whole, highest_w}))
