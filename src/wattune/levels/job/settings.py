"""Which power limits or core clocks a job's GPUs may be held at while it is profiled."""

from __future__ import annotations

from enum import Enum

from wattune.control.sweep import evenly
from wattune.core.errors import InputError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting

POINTS = 13
"""Clocks or limits among which the best is searched: a twentieth of the highest apart, so that the best of them costs
some tenths of a percent more than the best of all."""

LOWEST_SHARE = 0.4
"""Of the highest clock: below it no training job on public record spends less (Kareus, Perseus, GPOEO)."""

STEP_W = 25.0
"""Between two power limits, as Zeus has them (You et al., NSDI'23); wider on parts with a wide range."""


class JobKnob(Enum):
    """What is set on the GPUs of a job."""

    AUTO = "auto"
    """Core clocks where the part locks them, else power limits."""
    SM_CLOCK = "sm-clock"
    POWER_LIMIT = "power-limit"
    NONE = "none"
    """Nothing: the GPUs are only measured."""


def knob_named(name: str) -> JobKnob:
    """The knob of that name; one line says which there are."""
    for knob in JobKnob:
        if knob.value == name:
            return knob
    raise InputError(f"there is no knob {name!r}", hint=f"choose one of {', '.join(knob.value for knob in JobKnob)}")


def job_settings(spec: GpuSpec, knob: JobKnob, *, limit_w: float | None) -> tuple[Setting, ...]:
    """The settings to choose from, ascending; none where the part has nothing to set.

    `limit_w` is the power limit that was found: whoever set it had a reason, so no setting goes above it.
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
    clocks_mhz = [mhz for mhz in spec.sm_clocks_mhz if mhz >= LOWEST_SHARE * spec.sm_clocks_mhz[-1]]
    return tuple(Setting(sm_mhz=mhz) for mhz in evenly(clocks_mhz, POINTS)) if clocks_mhz else ()


def _limits(spec: GpuSpec, limit_w: float | None) -> tuple[Setting, ...]:
    """Limits in whole watts, from the one that was found downwards."""
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
