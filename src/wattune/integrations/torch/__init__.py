"""PyTorch: `trace` computes the work of a training iteration of a model, without a GPU and without its weights.

The model runs on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

try:
    import torch
    from torch.func import functional_call
except ModuleNotFoundError as error:
    raise ImportError("tracing needs PyTorch: pip install 'wattune[torch]'") from error

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.integrations.torch.recorder import Recorder, gpu_kernels
from wattune.integrations.torch.rules import tensors
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
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"a {type(model).__name__} is no torch.nn.Module", hint="give the model itself")
    recorder = Recorder(pipe)
    title = name or type(model).__name__
    arguments, options = _arguments(_on_meta(inputs))
    iteration = _Iteration(model, loss)
    weights = _on_meta({**dict(iteration.named_parameters()), **dict(iteration.named_buffers())}, of_weights=True)
    with _training(model), recorder.inside(model), recorder, gpu_kernels(recorder), _plain_errors(title):
        functional_call(iteration, weights, (arguments, options))
    return Traced(
        name=title,
        batch_size=_batch_size((arguments, options)),
        parameters=float(sum(weight.numel() for weight in model.parameters() if weight.requires_grad)),
        optimizer=optimizer,
        kernels=tuple(recorder.kernels),
    )


class _Iteration(torch.nn.Module):
    """Forward and backward pass in one module, since recomputed layers need the replaced weights in both."""

    def __init__(self, model: torch.nn.Module, loss: Callable[[Any], torch.Tensor] | None) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        _scalar(self.model(*arguments, **options), self.loss).backward()


def _on_meta(value: Any, *, of_weights: bool = False) -> Any:
    """Copy a nest of tensors to the meta device; weights keep requires_grad, inputs do not."""
    if isinstance(value, torch.Tensor):
        empty = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return empty.requires_grad_(value.requires_grad) if of_weights else empty
    if isinstance(value, Mapping):
        return {key: _on_meta(part, of_weights=of_weights) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_on_meta(part, of_weights=of_weights) for part in value)
    return value


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split the inputs into positional and named arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def _batch_size(inputs: Any) -> int | None:
    """The first dimension of the first input that has one."""
    return next((int(tensor.shape[0]) for tensor in tensors(inputs) if tensor.dim()), None)


def _scalar(outputs: Any, loss: Callable[[Any], torch.Tensor] | None) -> torch.Tensor:
    """Reduce the outputs to the number that is differentiated."""
    if loss is not None:
        return loss(outputs)
    own = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    parts = [tensor.sum() for tensor in tensors(outputs) if tensor.requires_grad]
    if not parts:
        raise InputError("the model returns nothing that can be trained", hint="give loss=, a function of its output")
    return torch.stack(parts).sum() if len(parts) > 1 else parts[0]


@contextmanager
def _training(model: torch.nn.Module) -> Iterator[None]:
    """Put the model into training mode, and restore each of its modules afterwards."""
    before = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def _plain_errors(title: str) -> Iterator[None]:
    """Turn failures on the meta device into one line and a hint."""
    try:
        yield
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"{title} cannot be traced: {reason}",
            hint="shapes must fit, and no step may depend on the values of tensors; trace the part that does not",
        ) from error
