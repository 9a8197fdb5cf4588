"""Time and power of a workload on a GPU at every core and memory clock.

Powers are those at the temperature at which the GPU settles when it repeats the workload. A wait for the host is a row
of its own after its phase, at the power of a GPU that holds a context and runs no kernel. Where the host takes longer
to load an iteration than the GPU to run it, such a row is added at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    units_w_per_ghz = column(model.unit(phase.pipe).w_per_ghz * phase.activity for phase in phases) * used
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


def tabulate(model: GpuModel, workload: Workload, *, temperature_c: float | None = None) -> tuple[LoadTable, ...]:
    """Make one table per memory clock, the highest first, at a temperature or where the GPU settles at each clock."""
    parts = [part for phase in workload.phases for part in _parts(phase)]
    if not parts:
        raise InputError(f"workload {workload.name!r} has no work", hint="give a phase some work or a stall")
    if workload.loading_s:
        parts.append(Phase(name="loading"))
    clocks = zip(model.mem_clocks_mhz, model.clocks, strict=True)
    return tuple(_tabulate(model, workload, parts, mem_mhz, table.sm_mhz, temperature_c) for mem_mhz, table in clocks)


def _parts(phase: Phase) -> list[Phase]:
    """Split a phase into its work and its wait for the host, as far as it has them."""
    work = [replace(phase, host_stall_s=0.0)] if phase.flops or phase.dram_bytes or phase.launches else []
    return [*work, Phase(name=phase.name, host_stall_s=phase.host_stall_s)] if phase.host_stall_s else work


def _tabulate(
    model: GpuModel,
    workload: Workload,
    parts: list[Phase],
    mem_mhz: int,
    clocks_mhz: tuple[int, ...],
    temperature_c: float | None,
) -> LoadTable:
    sm_mhz = np.array(clocks_mhz, dtype=np.float64)
    waits_s = column(part.host_stall_s for part in parts) * np.ones_like(sm_mhz)
    work = phase_times(model, parts, sm_mhz, mem_mhz=mem_mhz)
    if workload.loading_s:
        left_s = workload.loading_s - (work.duration_s + waits_s).sum(axis=0)
        waits_s[-1] = np.maximum(left_s, _NO_WAIT_S)
    times = PhaseTimes(work.duration_s + waits_s, work.compute_s)
    busy = waits_s[:, 0] == 0
    added_w = np.where(busy[:, np.newaxis], kernel_w(model, parts, sm_mhz, times=times), 0.0)
    power_w = model.awake_w(sm_mhz, mem_mhz) + added_w
    mean_w = (times.duration_s * power_w).sum(axis=0) / times.duration_s.sum(axis=0)
    warm_c = model.settled_c(sm_mhz, mean_w) if temperature_c is None else temperature_c
    full_bytes_per_s = model.memory.bandwidth_bytes_per_s * mem_mhz / model.default_mem_mhz
    bytes_per_s = column(part.dram_bytes for part in parts) / times.duration_s
    used = times.compute_s / times.duration_s
    plain = column(float(model.unit(part.pipe).pipe is Pipe.FP32) for part in parts)
    return LoadTable(
        name=workload.name,
        mem_mhz=mem_mhz,
        sm_mhz=clocks_mhz,
        duration_s=times.duration_s,
        power_w=power_w + model.leak_w(sm_mhz, warm_c),
        sm_util=busy.astype(np.float64),
        mem_util=np.minimum(bytes_per_s / full_bytes_per_s, 1.0),
        tensor_util=used * (1.0 - plain),
        fp32_util=used * plain,
    )
