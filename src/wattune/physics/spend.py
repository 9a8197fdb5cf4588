"""What a workload takes and spends on a GPU, at every core and memory clock at once.

Notation
    t_c     time the arithmetic needs alone, t_m the time the memory traffic needs alone
    p       the smoothness of the GPU
    t       time of a phase: launches + (t_c^p + t_m^p)^(1/p)

A smooth maximum plus a constant fits measured kernels several times better than a hard roofline (0.3 against 3.8 % on
33 workloads of a V100; docs/explanation/physics.md). A wait for the host follows its phase as a row of its own, at the
power of an idle GPU that holds a context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Workload
from wattune.physics.gpu_model import Floats, GpuModel
from wattune.physics.load_table import LoadTable


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A phase, or the stall after it, at every core clock."""

    duration_s: Floats
    power_w: Floats
    mem_util: Floats
    sm_util: float


def tabulate(model: GpuModel, workload: Workload) -> tuple[LoadTable, ...]:
    """One table per memory clock, the highest first."""
    clocks = zip(model.mem_clocks_mhz, model.clocks, strict=True)
    return tuple(_tabulate(model, workload, mem_mhz, table.sm_mhz) for mem_mhz, table in clocks)


def _tabulate(model: GpuModel, workload: Workload, mem_mhz: int, clocks_mhz: tuple[int, ...]) -> LoadTable:
    sm_mhz = np.array(clocks_mhz, dtype=np.float64)
    rows = [row for phase in workload.phases for row in _rows(model, phase, sm_mhz, mem_mhz)]
    if not rows:
        raise InputError(f"workload {workload.name!r} asks for nothing", hint="give a phase some work or a stall")
    return LoadTable(
        name=workload.name,
        mem_mhz=mem_mhz,
        sm_mhz=clocks_mhz,
        duration_s=np.stack([row.duration_s for row in rows]),
        power_w=np.stack([row.power_w for row in rows]),
        sm_util=np.array([row.sm_util for row in rows]),
        mem_util=np.stack([row.mem_util for row in rows]),
    )


def _rows(model: GpuModel, phase: Phase, sm_mhz: Floats, mem_mhz: int) -> list[_Row]:
    rows = []
    if phase.flops or phase.dram_bytes or phase.launches:
        rows.append(_work(model, phase, sm_mhz, mem_mhz))
    if phase.host_stall_s:
        stall_s = np.full_like(sm_mhz, phase.host_stall_s)
        rows.append(_Row(stall_s, model.context_idle_w(sm_mhz, mem_mhz), np.zeros_like(sm_mhz), 0.0))
    return rows


def _work(model: GpuModel, phase: Phase, sm_mhz: Floats, mem_mhz: int) -> _Row:
    unit = model.unit(phase.pipe)
    compute_s = phase.flops / unit.flops(sm_mhz)
    memory_s = phase.dram_bytes / bandwidth_bytes_per_s(model, sm_mhz, mem_mhz)
    duration_s = phase.launches * model.launch_s + smooth_maximum(compute_s, memory_s, model.smoothness)
    bytes_per_s = phase.dram_bytes / duration_s
    core_w = model.core_w(sm_mhz, model.core.busy_clock_w_per_ghz + unit.w_per_ghz * compute_s / duration_s)
    power_w = model.context_idle_w(sm_mhz, mem_mhz) + core_w + model.memory.j_per_byte * bytes_per_s
    full_bytes_per_s = model.memory.bandwidth_bytes_per_s * mem_mhz / model.default_mem_mhz
    return _Row(duration_s, power_w, np.minimum(bytes_per_s / full_bytes_per_s, 1.0), 1.0)


def smooth_maximum(first: Floats, second: Floats, p: float) -> Floats:
    """The p-norm of two times, element by element: no less than the larger and no more than 2^(1/p) of it."""
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    ratio = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0)
    return np.asarray(larger * (1.0 + ratio**p) ** (1.0 / p))


def bandwidth_bytes_per_s(model: GpuModel, sm_mhz: Floats, mem_mhz: int) -> Floats:
    """(clocks,): the memory bandwidth that good kernels reach: what the memory gives, or the way to it lets through."""
    memory = model.memory
    best = memory.bandwidth_bytes_per_s * memory.efficiency
    way = best * (sm_mhz / memory.knee_mhz) ** memory.knee_exponent
    return np.asarray(np.minimum(best * mem_mhz / model.default_mem_mhz, way))
