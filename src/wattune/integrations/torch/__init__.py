"""PyTorch: `trace` computes the work of a training iteration of a model, without a GPU and without its weights.

The model runs on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("tracing needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.workload import Phase, Pipe, Workload
from wattune.integrations.torch.iteration import run_on_meta
from wattune.integrations.torch.recorder import Recorder
from wattune.workloads.kernel_fusion import Group, Kernel, fused, unfused_phase
from wattune.workloads.operation import SGD, Optimizer, merged, optimizer_phase

__all__ = ["ModuleCost", "Traced", "trace"]

# As for the built-in networks: fine enough for a power trace to show the network.
_INTERVALS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCost:
    """The work of one module, with all modules in it, in one training iteration."""

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
    """Trainable ones."""
    optimizer: Optimizer
    kernels: tuple[Kernel, ...]

    @property
    def fused(self) -> Workload:
        """The iteration with element-wise kernels fused, as a good compiler does."""
        return self._workload(tuple(group.phase() for group in self.groups))

    @property
    def unfused(self) -> Workload:
        """The iteration with every kernel launched separately."""
        return self._workload(tuple(unfused_phase(kernel) for kernel in self.kernels))

    @property
    def groups(self) -> tuple[Group, ...]:
        return fused(self.kernels)

    @property
    def forward_flops(self) -> float:
        return sum(kernel.flops for kernel in self.kernels if not kernel.backward)

    @property
    def backward_flops(self) -> float:
        return sum(kernel.flops for kernel in self.kernels if kernel.backward)

    def modules(self, *, depth: int | None = None) -> tuple[ModuleCost, ...]:
        """Return the work of each module down to `depth` levels, in the order of their first kernel.

        The model itself comes first. A fused group counts for the module in which it begins.
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
            phases=(*merged(phases, _INTERVALS), update),
            batch_size=self.batch_size,
            parameters=self.parameters,
        )


def _around(module: str, depth: int | None) -> list[str]:
    """The modules that contain a module, from the model to the module itself, down to `depth` levels."""
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


def trace(
    model: torch.nn.Module,
    inputs: Any,
    *,
    pipe: Pipe | None = None,
    optimizer: Optimizer = SGD,
    loss: Callable[[Any], torch.Tensor] | None = None,
    name: str | None = None,
) -> Traced:
    """Trace one training iteration of a model, kernel by kernel, without a GPU and without its weights.

    `inputs` is a tensor, a tuple of positional arguments or a dictionary of named ones; only shapes and types matter.
    `pipe` is the arithmetic of the matrix products: by default TF32 for FP32 numbers and FP16 for those of two bytes;
    Pipe.FP16 for an FP32 model means mixed precision. `loss` reduces the output of the model to one number; by
    default that is its `loss`, if it has one, or the sum of all its outputs.
    """
    recorder = Recorder(pipe)
    title = name or type(model).__name__
    run = run_on_meta(model, inputs, recorder, loss=loss, title=title)
    return Traced(
        name=title,
        batch_size=run.batch_size,
        parameters=float(sum(weight.numel() for weight in model.parameters() if weight.requires_grad)),
        optimizer=optimizer,
        kernels=tuple(recorder.kernels),
    )
