"""What may still be set on a GPU after it refused something: a policy chooses among the rest."""

from __future__ import annotations

from dataclasses import replace

from wattune.core.gpu_spec import ClockTable, GpuSpec
from wattune.core.setting import Setting

SM_CLOCK, MEM_CLOCK, POWER_LIMIT = "sm_clock", "mem_clock", "power_limit"
KNOBS = (SM_CLOCK, MEM_CLOCK, POWER_LIMIT)


def limited_to(spec: GpuSpec, knobs: frozenset[str]) -> GpuSpec:
    """The spec of a part on which nothing but these knobs is set."""
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
    """The spec without a setting that the part did not take.

    A clock alone is taken out of its table. Where a memory clock was part of it, that memory clock goes, since core
    clocks are tried by themselves more often. Limits are one range: a refused one ends them.
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
    """Whether there is anything left to choose."""
    clocks = sum(len(table.sm_mhz) for table in spec.clocks)
    return clocks > 1 or spec.power_limits is not None


def _without_clock(table: ClockTable, sm_mhz: int) -> ClockTable:
    rest = tuple(mhz for mhz in table.sm_mhz if mhz != sm_mhz)
    return replace(table, sm_mhz=rest or table.sm_mhz)
