"""What a trace says: workloads for the simulated GPU, and costs per module."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.core.workload import Phase, Workload
from wattune.workloads.kernel_fusion import Group, Kernel, fused, unfused_phase
from wattune.workloads.merge import merged
from wattune.workloads.optimizer import Optimizer, optimizer_phase

# As for the networks that have a name: fine enough for a power trace to show the network.
_STRETCHES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCost:
    """What one module, with all that is in it, asks for in one training iteration."""

    name: str
    """Its path in the model; empty for the model itself."""
    forward_flops: float
    backward_flops: float
    fused_bytes: float
    unfused_bytes: float
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One training iteration of a model: every kernel of it, forward and backward, and the optimizer after them."""

    name: str
    batch_size: int | None
    parameters: float
    """Those that are trained."""
    optimizer: Optimizer
    kernels: tuple[Kernel, ...]

    @property
    def fused(self) -> Workload:
        """The iteration with element-wise kernels fused: what a good program would do."""
        return self._workload(tuple(group.phase() for group in self.groups))

    @property
    def unfused(self) -> Workload:
        """The iteration with every kernel by itself: what a program does at worst."""
        return self._workload(tuple(unfused_phase(kernel) for kernel in self.kernels))

    @property
    def groups(self) -> tuple[Group, ...]:
        """The kernels as they would be fused."""
        return fused(self.kernels)

    @property
    def forward_flops(self) -> float:
        """Arithmetic of the forward pass."""
        return sum(kernel.flops for kernel in self.kernels if not kernel.backward)

    @property
    def backward_flops(self) -> float:
        """Arithmetic of the backward pass."""
        return sum(kernel.flops for kernel in self.kernels if kernel.backward)

    def modules(self, *, depth: int | None = None) -> tuple[ModuleCost, ...]:
        """The cost of each module down to `depth` levels, the model itself first, in the order of their first kernel.

        A fused group counts for the module in which it begins.
        """
        places: dict[str, list[Group]] = {}
        for group in self.groups:
            for module in _around(group.kernels[0].module, depth):
                places.setdefault(module, []).append(group)
        return tuple(_cost(module, groups) for module, groups in places.items())

    def _workload(self, phases: tuple[Phase, ...]) -> Workload:
        update = optimizer_phase(self.parameters, self.optimizer)
        return Workload(
            name=self.name,
            phases=(*merged(phases, _STRETCHES), update),
            batch_size=self.batch_size,
            parameters=self.parameters,
        )


def _around(module: str, depth: int | None) -> list[str]:
    """The modules that a module lies in, from the model itself to the module, down to `depth` levels."""
    parts = module.split(".") if module else []
    parts = parts if depth is None else parts[:depth]
    return [".".join(parts[:count]) for count in range(len(parts) + 1)]


def _cost(module: str, groups: list[Group]) -> ModuleCost:
    kernels = [kernel for group in groups for kernel in group.kernels]
    return ModuleCost(
        name=module,
        forward_flops=sum(kernel.flops for kernel in kernels if not kernel.backward),
        backward_flops=sum(kernel.flops for kernel in kernels if kernel.backward),
        fused_bytes=sum(group.dram_bytes for group in groups),
        unfused_bytes=sum(kernel.unfused_bytes for kernel in kernels),
        kernels=len(kernels),
    )
