"""Measure a workload at one setting after the other, and choose the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from wattune.core.errors import InputError, NotSupported
from wattune.core.frontier import History, Trial
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.gpu import Gpu

OnTrial = Callable[[Trial[Setting]], None]


class Knob(Enum):
    """A knob that a sweep varies."""

    SM_CLOCK = "sm-clock"
    MEM_CLOCK = "mem-clock"
    POWER_LIMIT = "power-limit"

    @property
    def turns(self) -> str:
        """Its name in `Setting.knobs`."""
        return self.value.replace("-", "_")


def sweep(
    gpu: Gpu,
    settings: Iterable[Setting],
    measure: Callable[[Setting], Measurement],
    *,
    on_trial: OnTrial | None = None,
) -> History[Setting]:
    """Measure each setting in order and return the trials; the GPU is restored afterwards, whatever happens.

    `measure` does the work once at the setting that is applied. It is a whole run, so there is nothing to settle.
    `on_trial` is called with each trial as it ends, so that nothing is lost when a later one fails.
    """
    trials: list[Trial[Setting]] = []
    try:
        for setting in settings:
            gpu.apply(setting)
            trials.append(Trial(setting, measure(setting)))
            if on_trial is not None:
                on_trial(trials[-1])
    finally:
        gpu.restore()
    return tuple(trials)


def sweep_settings(spec: GpuSpec, knob: Knob, *, points: int) -> tuple[Setting, ...]:
    """Return the driver's default, then at most `points` evenly spaced values of the knob, highest first."""
    if points < 1:
        raise InputError(f"a sweep has at least one point, not {points}", hint="leave --points out for 20")
    match knob:
        case Knob.SM_CLOCK:
            values = [Setting(sm_mhz=mhz) for mhz in evenly(_known(spec, spec.sm_clocks_mhz, "core clock"), points)]
        case Knob.MEM_CLOCK:
            values = [Setting(mem_mhz=mhz) for mhz in evenly(_mem_clocks_mhz(spec), points)]
        case Knob.POWER_LIMIT:
            values = [Setting(power_limit_w=watts) for watts in _limits_w(spec, points)]
    return (DRIVER_DEFAULT, *sorted(values, reverse=True))


def recorded_settings(recorded: Iterable[Setting], knob: Knob, *, points: int) -> tuple[Setting, ...]:
    """Return the driver's default if recorded, then at most `points` recorded settings of the knob, highest first."""
    known = sorted(set(recorded), reverse=True)
    turning = [setting for setting in known if knob.turns in setting.knobs]
    if not turning:
        turned = sorted({name.replace("_", "-") for setting in known for name in setting.knobs})
        hint = f"choose --knob {' or '.join(turned)}" if turned else "it has the driver's default alone"
        raise InputError(f"this recording never sets the {knob.value}", hint=hint)
    places = evenly(range(len(turning)), points) if points > 1 else (0,)
    default = (DRIVER_DEFAULT,) if DRIVER_DEFAULT in known else ()
    return (*default, *(turning[place] for place in places))


def evenly(values: Iterable[int], points: int) -> tuple[int, ...]:
    """Return at most `points` of the values, from the lowest to the highest in steps as equal as they allow."""
    ascending = sorted(set(values))
    if points == 1:
        return (ascending[-1],)
    wanted = _spaced(ascending[0], ascending[-1], points)
    return tuple(sorted({min(ascending, key=lambda value: abs(value - aim)) for aim in wanted}))


def _mem_clocks_mhz(spec: GpuSpec) -> tuple[int, ...]:
    if not spec.can_lock_mem:
        raise NotSupported(f"{spec.label} does not let its memory clock be set", hint="sweep --knob sm-clock instead")
    return _known(spec, spec.mem_clocks_mhz, "memory clock")


def _known(spec: GpuSpec, clocks_mhz: tuple[int, ...], what: str) -> tuple[int, ...]:
    if not clocks_mhz:
        raise NotSupported(f"{spec.label} does not let its {what} be set", hint="sweep --knob power-limit instead")
    return clocks_mhz


def _limits_w(spec: GpuSpec, points: int) -> list[float]:
    """Return whole watts from the lowest to the highest limit that may be set."""
    limits = spec.power_limits
    if limits is None:
        raise NotSupported(f"{spec.label} does not let its power limit be set", hint="sweep --knob sm-clock instead")
    spaced = _spaced(limits.min_w, limits.max_w, points) if points > 1 else (limits.max_w,)
    return [min(max(float(round(watts)), limits.min_w), limits.max_w) for watts in dict.fromkeys(spaced)]


def _spaced(low: float, high: float, points: int) -> tuple[float, ...]:
    """Return evenly spaced values as `numpy.linspace` does, without the import, which every --help would wait for."""
    step = (high - low) / (points - 1)
    return (*(low + step * place for place in range(points - 1)), float(high))
