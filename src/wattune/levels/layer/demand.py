"""What each layer asks of a GPU, and what limits it: the roofline at any pair of clocks.

Notation (Williams, Waterman and Patterson 2009)
    I       arithmetic intensity of a layer, operations per byte of memory traffic
    ridge   intensity from which arithmetic takes longer than traffic: achievable rate over achievable bandwidth

Layers are the phases of a workload: one per layer and pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

import numpy as np

from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.timing import bandwidth_bytes_per_s, phase_times


class Limit(Enum):
    """What a layer waits for most."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    """Starting kernels takes longer than running them."""


def intensity(phase: Phase) -> float:
    """Return I; infinite for a layer without memory traffic."""
    return phase.flops / phase.dram_bytes if phase.dram_bytes else inf


@dataclass(frozen=True, slots=True)
class Roofline:
    """The achievable rates of a GPU at one pair of clocks."""

    sm_mhz: int
    mem_mhz: int
    flops_per_s: dict[Pipe, float]
    bytes_per_s: float

    @classmethod
    def of(cls, model: GpuModel, sm_mhz: int, mem_mhz: int) -> Roofline:
        clock = np.array([float(sm_mhz)])
        rates = {pipe: float(model.unit(pipe).flops(clock)[0]) for pipe in Pipe}
        return cls(sm_mhz, mem_mhz, rates, float(bandwidth_bytes_per_s(model, clock, mem_mhz)[0]))

    def ridge(self, pipe: Pipe) -> float:
        return self.flops_per_s[pipe] / self.bytes_per_s

    def reached(self, phase: Phase) -> float:
        """Return the rate that the roofline allows a layer."""
        return min(self.flops_per_s[phase.pipe], intensity(phase) * self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class LayerDemand:
    """One layer at one pair of clocks."""

    phase: Phase
    limit: Limit
    time_s: float
    rate: float
    """Floating-point operations per second, with launches and the rounded corner of the roofline."""


def demands(model: GpuModel, workload: Workload, roofline: Roofline) -> tuple[LayerDemand, ...]:
    """Return what each layer of a workload takes at the clocks of a roofline, and what limits it."""
    clock = np.array([float(roofline.sm_mhz)])
    times = phase_times(model, workload.phases, clock, mem_mhz=roofline.mem_mhz)
    return tuple(
        LayerDemand(
            phase, limit_of(phase, roofline, launch_s=model.launch_s), time_s, phase.flops / time_s if time_s else 0.0
        )
        for phase, time_s in zip(workload.phases, times.duration_s[:, 0].tolist(), strict=True)
    )


def limit_of(phase: Phase, roofline: Roofline, *, launch_s: float = 0.0) -> Limit:
    """Return what takes longest: arithmetic, memory traffic or launches."""
    compute_s = phase.flops / roofline.flops_per_s[phase.pipe]
    memory_s = phase.dram_bytes / roofline.bytes_per_s
    if phase.launches * launch_s > max(compute_s, memory_s):
        return Limit.LAUNCH
    return Limit.COMPUTE if compute_s >= memory_s else Limit.MEMORY
