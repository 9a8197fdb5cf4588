"""One training iteration of a model on the meta device, where tensors have shapes and no contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.func import functional_call

from wattune.core.errors import InputError
from wattune.integrations.torch.recorder import Recorder, gpu_kernels
from wattune.integrations.torch.rules import tensors


@dataclass(frozen=True, slots=True)
class MetaRun:
    """What an iteration on the meta device showed, beside its kernels."""

    batch_size: int | None
    trained: float
    """Parameters that got a gradient."""


def run_on_meta(
    model: torch.nn.Module,
    inputs: Any,
    recorder: Recorder,
    *,
    loss: Callable[[Any], torch.Tensor] | None,
    title: str,
) -> MetaRun:
    """Run forward and backward pass once, in training mode and without weights, and record the kernels."""
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"a {type(model).__name__} is no torch.nn.Module", hint="give the model itself")
    arguments, options = arguments_of(_on_meta(inputs))
    iteration = _Iteration(model, loss)
    weights = _weights_on_meta(iteration)
    with training(model), recorder.inside(model), recorder, gpu_kernels(recorder), _plain_errors(title):
        # With `tie_weights`, a module that has two paths would keep the meta tensors afterwards (torch 2.13).
        functional_call(iteration, weights, (arguments, options), tie_weights=False)
    trained = sum(weight.numel() for weight in set(weights.values()) if weight.grad is not None)
    return MetaRun(batch_size_of((arguments, options)), float(trained))


def _weights_on_meta(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copy parameters and buffers of all modules, each module once; a tensor that modules share is copied once."""
    copies: dict[int, torch.Tensor] = {}
    weights = {}
    for path, module in model.named_modules():
        own = (*module.named_parameters(path, recurse=False), *module.named_buffers(path, recurse=False))
        for name, tensor in own:
            if id(tensor) not in copies:
                copies[id(tensor)] = _on_meta(tensor, of_weights=True)
            weights[name] = copies[id(tensor)]
    return weights


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


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split the inputs into positional and named arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def batch_size_of(inputs: Any) -> int | None:
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
def training(model: torch.nn.Module) -> Iterator[None]:
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
