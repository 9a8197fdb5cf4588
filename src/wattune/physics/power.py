"""What a GPU draws while kernels run, for all phases at every core clock at once.

Notation
    v       core voltage over its floor, f the core clock in MHz
    u       share of the arithmetic unit's achievable rate in use
    B       bytes per second to and from the memory, C bytes per second through the L2 cache
    e       energy of a byte from the memory, c of a byte through the cache at floor voltage

    P = board + memory_idle + leak·v²·exp(k·(T − T0))
        + v²·f/1000·(idle_clock + busy_clock + unit·u) + v²·c·C + e·B

Tiles of a matrix product are read from the cache again and again; each byte that is fetched serves so many operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattune.core.workload import Phase, Pipe
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.timing import PhaseTimes, column

# Tiles of 128×128 elements: 2·128³ operations for 2·128² elements of 4 or of 2 bytes.
_FLOPS_PER_CACHE_BYTE = {Pipe.FP32: 32.0, Pipe.TF32: 32.0, Pipe.FP16: 64.0}


def kernel_w(
    model: GpuModel, phases: Sequence[Phase], sm_mhz: Floats, *, times: PhaseTimes, sm_share: float = 1.0
) -> Floats:
    """(phases, clocks): what running each phase on a share of the SMs adds to an idle GPU with a context."""
    used = times.compute_s / times.duration_s
    units_w_per_ghz = column(model.unit(phase.pipe).w_per_ghz for phase in phases) * used
    core_w = model.core_w(sm_mhz, sm_share * (model.core.busy_clock_w_per_ghz + units_w_per_ghz))
    cache_rate = column(cache_bytes(phase) for phase in phases) / times.duration_s
    cache_w = model.memory.l2_j_per_byte * cache_rate * model.voltage(sm_mhz) ** 2
    dram_w = model.memory.j_per_byte * column(phase.dram_bytes for phase in phases) / times.duration_s
    return np.asarray(core_w + cache_w + dram_w)


def cache_bytes(phase: Phase) -> float:
    """Bytes through the L2 cache: all that the memory moves, and the tiles of the arithmetic."""
    return phase.dram_bytes + phase.flops / _FLOPS_PER_CACHE_BYTE[phase.pipe]
