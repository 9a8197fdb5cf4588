"""The work of one training iteration on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Pipe(Enum):
    """The arithmetic unit that a phase uses."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    """FP16 or BF16: numbers of two bytes, sums of four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """An interval of similar kernels: arithmetic, traffic, launches, and the wait for the host that follows."""

    name: str
    flops: float = 0.0
    pipe: Pipe = Pipe.FP32
    dram_bytes: float = 0.0
    launches: float = 0.0
    host_stall_s: float = 0.0
    activity: float = 1.0
    """Power of the arithmetic unit over what it draws in the kernels that set the GPU's numbers."""

    def __post_init__(self) -> None:
        for field in ("flops", "dram_bytes", "launches", "host_stall_s", "activity"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"{field} of phase {self.name!r} is {getattr(self, field)}, and must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The phases of one iteration, in the order in which they run."""

    name: str
    phases: tuple[Phase, ...]
    batch_size: int | None = None
    parameters: float | None = None
    loading_s: float = 0.0
    """Host time to prepare an iteration while the GPU runs the one before; the GPU waits for the excess."""

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError(f"workload {self.name!r} has no phases")
        if not self.loading_s >= 0:
            raise ValueError(f"loading_s of workload {self.name!r} is {self.loading_s}, and must not be negative")

    @property
    def flops(self) -> float:
        return sum(phase.flops for phase in self.phases)

    @property
    def dram_bytes(self) -> float:
        return sum(phase.dram_bytes for phase in self.phases)
