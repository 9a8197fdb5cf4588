"""What one training iteration asks of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Pipe(Enum):
    """The arithmetic unit that does a phase's work."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    """Numbers of two bytes with sums of four: FP16 and BF16 alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of kernels alike: arithmetic, traffic, launches, and the wait for the host that follows."""

    name: str
    flops: float = 0.0
    pipe: Pipe = Pipe.FP32
    dram_bytes: float = 0.0
    launches: float = 0.0
    host_stall_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("flops", "dram_bytes", "launches", "host_stall_s"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"{field} of phase {self.name!r} is not negative, not {getattr(self, field)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The phases of one iteration, in the order in which they run."""

    name: str
    phases: tuple[Phase, ...]
    batch_size: int | None = None
    parameters: float | None = None
    loading_s: float = 0.0
    """What the host needs to prepare an iteration while the GPU runs the one before; the GPU waits for the rest."""

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError(f"workload {self.name!r} has no phases")
        if not self.loading_s >= 0:
            raise ValueError(f"loading_s of workload {self.name!r} is not negative, not {self.loading_s}")

    @property
    def flops(self) -> float:
        """Floating-point operations of one iteration."""
        return sum(phase.flops for phase in self.phases)

    @property
    def dram_bytes(self) -> float:
        """Bytes moved to and from memory in one iteration."""
        return sum(phase.dram_bytes for phase in self.phases)
