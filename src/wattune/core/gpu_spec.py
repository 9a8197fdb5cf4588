"""The specification of a GPU: its name, clocks, limits and sensors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from wattune.core.errors import NotSupported, SettingRefused
from wattune.core.setting import Setting

_MARK = " (simulated)"


def labelled(name: str, simulated: bool) -> str:
    """Return the name of a GPU, marked as simulated if it is."""
    return name if not simulated or "simulated" in name else f"{name}{_MARK}"


@dataclass(frozen=True, slots=True)
class ClockTable:
    """A memory clock and the core clocks that it allows, ascending.

    The memory clock is None where it is not known, as in a table of measurements without that column.
    """

    mem_mhz: int | None
    sm_mhz: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PowerLimits:
    """The range of power limits."""

    min_w: float
    default_w: float
    max_w: float


@dataclass(frozen=True, slots=True)
class Sensors:
    """Refresh periods and windows of a GPU's sensors; None where not known.

    `counter_period_s` is how often the energy counter moves, `power_period_s` how often a new power value appears and
    `power_window_s` over how long that value is averaged.
    """

    counter_period_s: float | None = None
    power_period_s: float | None = None
    power_window_s: float | None = None


@dataclass(frozen=True, slots=True)
class Switching:
    """Time from a call until the new clock holds; None where not known."""

    sm_s: float | None = None
    mem_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """Name, clocks, limits, sensors and switching times of one GPU."""

    name: str
    uuid: str
    simulated: bool = False
    architecture: str | None = None
    clocks: tuple[ClockTable, ...]
    """One table per memory clock, the default (highest) first; empty where clocks cannot be set."""
    power_limits: PowerLimits | None
    """None where the power limit cannot be set, as on laptops."""
    can_lock_mem: bool = False
    sensors: Sensors = field(default_factory=Sensors)
    switching: Switching = field(default_factory=Switching)

    @property
    def sm_clocks_mhz(self) -> tuple[int, ...]:
        """The core clocks at the default memory clock, ascending."""
        return self.clocks[0].sm_mhz if self.clocks else ()

    @property
    def mem_clocks_mhz(self) -> tuple[int, ...]:
        """Highest first."""
        return tuple(table.mem_mhz for table in self.clocks if table.mem_mhz is not None)

    @property
    def label(self) -> str:
        """The name, marked as simulated if it is."""
        return labelled(self.name, self.simulated)

    @property
    def model_name(self) -> str:
        """The name as the catalogue has it: the emulated library marks its own as simulated."""
        return self.name.removesuffix(_MARK) if self.simulated else self.name

    def check(self, setting: Setting) -> None:
        """Raise an error that names what the GPU has, unless it has this setting."""
        table = self._check_mem(setting.mem_mhz)
        if setting.sm_mhz is not None:
            self._check_sm(setting.sm_mhz, table.sm_mhz if table else ())
        if setting.power_limit_w is not None:
            self._check_limit(setting.power_limit_w)

    def _check_mem(self, mem_mhz: int | None) -> ClockTable | None:
        if mem_mhz is None:
            return self.clocks[0] if self.clocks else None
        known = self.mem_clocks_mhz
        if not known or (mem_mhz in known and mem_mhz != self.clocks[0].mem_mhz and not self.can_lock_mem):
            raise NotSupported(f"{self.label} does not let its memory clock be set", hint="leave it to the driver")
        if mem_mhz not in known:
            has = ", ".join(map(str, known))
            raise SettingRefused(f"{self.label} has no memory clock of {mem_mhz} MHz", hint=f"it has {has} MHz")
        return next(table for table in self.clocks if table.mem_mhz == mem_mhz)

    def _check_sm(self, sm_mhz: int, clocks_mhz: tuple[int, ...]) -> None:
        if not clocks_mhz:
            raise NotSupported(f"{self.label} does not let its core clock be set", hint="try a power limit instead")
        if sm_mhz not in clocks_mhz:
            near = " and ".join(str(mhz) for mhz in nearest(sm_mhz, clocks_mhz))
            hint = f"it has {clocks_mhz[0]} to {clocks_mhz[-1]} MHz; nearest to yours: {near}"
            raise SettingRefused(f"{self.label} has no core clock of {sm_mhz} MHz", hint=hint)

    def _check_limit(self, power_limit_w: float) -> None:
        limits = self.power_limits
        if limits is None:
            raise NotSupported(f"{self.label} does not let its power limit be set", hint="lock the core clock instead")
        if not limits.min_w <= power_limit_w <= limits.max_w:
            raise SettingRefused(
                f"{self.label} takes no power limit of {power_limit_w:g} W",
                hint=f"choose one from {limits.min_w:g} to {limits.max_w:g} W",
            )


def nearest(wanted: int, ascending: Iterable[int]) -> tuple[int, ...]:
    """Return the one or two values around `wanted`."""
    values = tuple(ascending)
    place = bisect_left(values, wanted)
    return tuple(sorted({values[max(place - 1, 0)], values[min(place, len(values) - 1)]}))


SM_CLOCK, MEM_CLOCK, POWER_LIMIT = "sm_clock", "mem_clock", "power_limit"
KNOBS = (SM_CLOCK, MEM_CLOCK, POWER_LIMIT)


def limited_to(spec: GpuSpec, knobs: frozenset[str]) -> GpuSpec:
    """Return the spec with only these knobs to set."""
    clocks = spec.clocks
    if SM_CLOCK not in knobs:
        clocks = tuple(replace(table, sm_mhz=table.sm_mhz[-1:]) for table in clocks)
        if MEM_CLOCK not in knobs or not spec.can_lock_mem:
            clocks = ()
    if MEM_CLOCK not in knobs:
        clocks = clocks[:1]
    return replace(
        spec,
        clocks=clocks,
        can_lock_mem=spec.can_lock_mem and MEM_CLOCK in knobs,
        power_limits=spec.power_limits if POWER_LIMIT in knobs else None,
    )


def without(spec: GpuSpec, setting: Setting) -> GpuSpec:
    """Return the spec without a setting that the GPU refused.

    A core clock is removed from the tables. A setting with a lower memory clock removes that memory clock, since core
    clocks are also tried alone. Power limits are one range: a refused one removes all.
    """
    if setting.mem_mhz is not None and len(spec.clocks) > 1 and setting.mem_mhz != spec.clocks[0].mem_mhz:
        kept = tuple(table for table in spec.clocks if table.mem_mhz != setting.mem_mhz)
        return replace(spec, clocks=kept, can_lock_mem=spec.can_lock_mem and len(kept) > 1)
    if setting.sm_mhz is not None:
        return replace(spec, clocks=tuple(_without_clock(table, setting.sm_mhz) for table in spec.clocks))
    if setting.power_limit_w is not None:
        return replace(spec, power_limits=None)
    return spec


def can_set(spec: GpuSpec) -> bool:
    """Return whether there is more than one setting to choose from."""
    clocks = sum(len(table.sm_mhz) for table in spec.clocks)
    return clocks > 1 or spec.power_limits is not None


def _without_clock(table: ClockTable, sm_mhz: int) -> ClockTable:
    rest = tuple(mhz for mhz in table.sm_mhz if mhz != sm_mhz)
    return replace(table, sm_mhz=rest or table.sm_mhz)


def evenly(values: Iterable[int], points: int) -> tuple[int, ...]:
    """Return at most `points` of the values, from the lowest to the highest in steps as equal as they allow."""
    ascending = sorted(set(values))
    if points == 1:
        return (ascending[-1],)
    wanted = spaced(ascending[0], ascending[-1], points)
    return tuple(sorted({min(ascending, key=lambda value: abs(value - aim)) for aim in wanted}))


def spaced(low: float, high: float, points: int) -> tuple[float, ...]:
    """Return evenly spaced values as `numpy.linspace` does, without the import, which every --help would wait for."""
    step = (high - low) / (points - 1)
    return (*(low + step * place for place in range(points - 1)), float(high))
