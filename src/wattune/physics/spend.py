"""Time and power of a workload on a GPU at every core and memory clock.

Powers are those at the temperature at which the GPU settles when it repeats the workload. A wait for the host is a row
of its own after its phase, at the power of a GPU that holds a context and runs no kernel. Where the host takes longer
to load an iteration than the GPU to run it, such a row is added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTable
from wattune.physics.timing import PhaseTimes, column, phase_times

# Tiles of 128×128 elements: 2·128³ operations for 2·128² elements of 4 or of 2 bytes.
_FLOPS_PER_CACHE_BYTE = {Pipe.FP32: 32.0, Pipe.TF32: 32.0, Pipe.FP16: 64.0}


def kernel_w(
    model: GpuModel, phases: Sequence[Phase], sm_mhz: Floats, *, times: PhaseTimes, sm_share: float = 1.0
) -> Floats:
    """(phases, clocks): power that each phase, on a share of the SMs, adds to an idle GPU with a context."""
    used = times.compute_s / times.duration_s
    units_w_per_ghz = column(model.unit(phase.pipe).w_per_ghz for phase in phases) * used
    core_w = model.core_w(sm_mhz, sm_share * (model.core.busy_clock_w_per_ghz + units_w_per_ghz))
    cache_rate = column(cache_bytes(phase) for phase in phases) / times.duration_s
    cache_w = model.memory.l2_j_per_byte * cache_rate * model.voltage(sm_mhz) ** 2
    dram_w = model.memory.j_per_byte * column(phase.dram_bytes for phase in phases) / times.duration_s
    return np.asarray(core_w + cache_w + dram_w)


def cache_bytes(phase: Phase) -> float:
    """Return the bytes through the L2 cache: the memory traffic and the tiles of the arithmetic."""
    return phase.dram_bytes + phase.flops / _FLOPS_PER_CACHE_BYTE[phase.pipe]


# Every phase of a table has a positive duration.
_NO_WAIT_S = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _PhaseRows:
    """Phases and the waits after them at every core clock; power without leakage."""

    duration_s: Floats
    power_w: Floats
    mem_util: Floats
    sm_util: Floats
    tensor_util: Floats
    fp32_util: Floats


def tabulate(model: GpuModel, workload: Workload, *, temperature_c: float | None = None) -> tuple[LoadTable, ...]:
    """Make one table per memory clock, the highest first, at a temperature or where the GPU settles at each clock."""
    clocks = zip(model.mem_clocks_mhz, model.clocks, strict=True)
    return tuple(_tabulate(model, workload, mem_mhz, table.sm_mhz, temperature_c) for mem_mhz, table in clocks)


def _tabulate(
    model: GpuModel, workload: Workload, mem_mhz: int, clocks_mhz: tuple[int, ...], temperature_c: float | None
) -> LoadTable:
    sm_mhz = np.array(clocks_mhz, dtype=np.float64)
    rows = _rows(model, workload, sm_mhz, mem_mhz)
    mean_w = (rows.duration_s * rows.power_w).sum(axis=0) / rows.duration_s.sum(axis=0)
    warm_c = model.settled_c(sm_mhz, mean_w) if temperature_c is None else temperature_c
    return LoadTable(
        name=workload.name,
        mem_mhz=mem_mhz,
        sm_mhz=clocks_mhz,
        duration_s=rows.duration_s,
        power_w=rows.power_w + model.leak_w(sm_mhz, warm_c),
        sm_util=rows.sm_util,
        mem_util=rows.mem_util,
        tensor_util=rows.tensor_util,
        fp32_util=rows.fp32_util,
    )


def _rows(model: GpuModel, workload: Workload, sm_mhz: Floats, mem_mhz: int) -> _PhaseRows:
    """A row for every phase that runs something, followed by one for its wait; the wait for the host's loading last."""
    working = [phase for phase in workload.phases if phase.flops or phase.dram_bytes or phase.launches]
    waiting = [phase for phase in workload.phases if phase.host_stall_s]
    if not working and not waiting:
        raise InputError(f"workload {workload.name!r} has no work", hint="give a phase some work or a stall")
    stalls_s = column(phase.host_stall_s for phase in waiting) * np.ones_like(sm_mhz)
    if working:
        work = _work(model, working, sm_mhz, mem_mhz)
        rows = _joined(work, _waits(model, stalls_s, sm_mhz, mem_mhz), _order(workload, working, waiting))
    else:
        rows = _waits(model, stalls_s, sm_mhz, mem_mhz)
    if workload.loading_s:
        left_s = np.maximum(workload.loading_s - rows.duration_s.sum(axis=0), _NO_WAIT_S)
        last = _waits(model, left_s[np.newaxis, :], sm_mhz, mem_mhz)
        rows = _joined(rows, last, list(range(len(rows.sm_util) + 1)))
    return rows


def _work(model: GpuModel, phases: Sequence[Phase], sm_mhz: Floats, mem_mhz: int) -> _PhaseRows:
    times = phase_times(model, phases, sm_mhz, mem_mhz=mem_mhz)
    power_w = model.awake_w(sm_mhz, mem_mhz) + kernel_w(model, phases, sm_mhz, times=times)
    full_bytes_per_s = model.memory.bandwidth_bytes_per_s * mem_mhz / model.default_mem_mhz
    bytes_per_s = column(phase.dram_bytes for phase in phases) / times.duration_s
    used = times.compute_s / times.duration_s
    plain = column(float(model.unit(phase.pipe).pipe is Pipe.FP32) for phase in phases)
    return _PhaseRows(
        times.duration_s,
        power_w,
        np.minimum(bytes_per_s / full_bytes_per_s, 1.0),
        np.ones(len(phases)),
        used * (1.0 - plain),
        used * plain,
    )


def _waits(model: GpuModel, duration_s: Floats, sm_mhz: Floats, mem_mhz: int) -> _PhaseRows:
    power_w = np.broadcast_to(model.awake_w(sm_mhz, mem_mhz), duration_s.shape)
    nothing = np.zeros_like(duration_s)
    return _PhaseRows(duration_s, power_w, nothing, np.zeros(len(duration_s)), nothing, nothing)


def _order(workload: Workload, working: Sequence[Phase], waiting: Sequence[Phase]) -> list[int]:
    """The index of each row of the table in the rows of all work followed by those of all waits."""
    order: list[int] = []
    work, wait = iter(range(len(working))), iter(range(len(working), len(working) + len(waiting)))
    for phase in workload.phases:
        if phase.flops or phase.dram_bytes or phase.launches:
            order.append(next(work))
        if phase.host_stall_s:
            order.append(next(wait))
    return order


def _joined(first: _PhaseRows, second: _PhaseRows, order: list[int]) -> _PhaseRows:
    pairs = ((getattr(first, field.name), getattr(second, field.name)) for field in fields(_PhaseRows))
    return _PhaseRows(*(np.concatenate(pair)[order] for pair in pairs))
