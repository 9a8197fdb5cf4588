"""Durations of phases at every core clock.

Notation
    t_c     time the arithmetic needs alone, t_m the time the memory traffic needs alone
    p       the smoothness of the GPU
    t       time of a phase: launches + (t_c^p + t_m^p)^(1/p)

A smooth maximum plus a constant fits measured kernels several times better than a hard roofline (0.3 against 3.8 % on
33 workloads of a V100; docs/explanation/physics.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from wattune.core.workload import Phase
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats


@dataclass(frozen=True, slots=True, eq=False)
class PhaseTimes:
    """Phases without their waits for the host, at every core clock."""

    duration_s: Floats
    """(phases, clocks)"""
    compute_s: Floats
    """(phases, clocks): time of the arithmetic alone."""


def phase_times(
    model: GpuModel,
    phases: Sequence[Phase],
    sm_mhz: Floats,
    *,
    mem_mhz: int,
    sm_share: float = 1.0,
    spare_bytes_per_s: Floats | float = 0.0,
) -> PhaseTimes:
    """Compute the durations of phases on a share of the SMs, with some bandwidth used by others."""
    flops = np.stack([model.unit(phase.pipe).flops(sm_mhz) for phase in phases]) * sm_share
    compute_s = column(phase.flops for phase in phases) / flops
    bandwidth = bandwidth_bytes_per_s(model, sm_mhz, mem_mhz)
    # A phase gets at least half of the bandwidth: the memory arbiter is fair.
    memory_s = column(phase.dram_bytes for phase in phases) / np.maximum(bandwidth - spare_bytes_per_s, bandwidth / 2)
    launching_s = column(phase.launches for phase in phases) * model.launch_s
    return PhaseTimes(launching_s + smooth_maximum(compute_s, memory_s, model.smoothness), compute_s)


def column(values: Iterable[float]) -> Floats:
    """(values, 1): one number per phase, to broadcast over clocks."""
    return np.array(list(values), dtype=np.float64)[:, np.newaxis]


def smooth_maximum(first: Floats, second: Floats, p: float) -> Floats:
    """Compute the p-norm of two times: at least the larger, at most 2^(1/p) of it."""
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    ratio = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0)
    return np.asarray(larger * (1.0 + ratio**p) ** (1.0 / p))


def bandwidth_bytes_per_s(model: GpuModel, sm_mhz: Floats, mem_mhz: int) -> Floats:
    """(clocks,): bandwidth of good kernels, limited by the memory or by the path to it."""
    memory = model.memory
    best = memory.bandwidth_bytes_per_s * memory.efficiency
    path = best * (sm_mhz / memory.knee_mhz) ** memory.knee_exponent
    return np.asarray(np.minimum(best * mem_mhz / model.default_mem_mhz, path))
