"""Measures the layers of a PyTorch model: each by itself, on real inputs, at each setting.

On a GPU the layers themselves run. A GPU that is simulated runs no PyTorch: it runs the traced work of each layer, and
what comes out carries `simulated`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wattune.core.errors import InputError
from wattune.core.setting import Setting
from wattune.core.workload import Workload
from wattune.devices.gpu import Gpu
from wattune.integrations.torch.iteration import arguments_of, training
from wattune.integrations.torch.layers.calls import OPTIMIZER, WHOLE, plain_model
from wattune.integrations.torch.layers.tracing import trace_layers
from wattune.integrations.torch.rules import tensors
from wattune.levels.layer.costs import BACKWARD, LayerCosts
from wattune.levels.layer.profiling import PRECISION, LayerProgress, LayerRunner, RunsWork, TracedLayers, measure_cells
from wattune.levels.layer.table_file import LayerTable, table_text


@dataclass(frozen=True, slots=True)
class LayerMeasurement:
    """Costs of all layers at all settings, and the same as the text of a CSV file."""

    costs: LayerCosts
    csv: str


def measure_layers(
    model: torch.nn.Module,
    inputs: Any,
    gpu: Gpu,
    settings: Sequence[Setting],
    *,
    optimizer: Any = None,
    file: Path | None = None,
    precision: float = PRECISION,
    progress: Callable[[LayerProgress], None] | None = None,
    runner: LayerRunner | None = None,
) -> LayerMeasurement:
    """Measure forward and backward pass of each layer at each setting, and the step of the optimizer if it is given.

    What has been measured is appended to `file`; a run that was stopped continues there. `precision` is the largest
    relative error of an energy by the counter. Operations between layers are not measured. `runner` runs the layers
    in another way, as `EmulatedLayers` does on a GPU of the emulated NVML library.
    """
    traced = trace_layers(model, inputs)
    with _unchanged(plain_model(model)):
        if runner is None:
            runner = _runner(model, inputs, gpu, traced, optimizer)
        found = measure_cells(
            gpu, runner, settings, workload=traced.name, precision=precision, file=file, progress=progress
        )
    table = LayerTable.of(found.cells, names=runner.names)
    costs = table.costs(
        workload=traced.name, gpu=gpu.spec.name, simulated=gpu.spec.simulated, waiting_w=found.waiting_w
    )
    return LayerMeasurement(costs, table_text(found.cells, simulated=gpu.spec.simulated))


def _runner(model: torch.nn.Module, inputs: Any, gpu: Gpu, traced: Workload, optimizer: Any) -> LayerRunner:
    if isinstance(gpu, RunsWork):
        return TracedLayers(gpu, traced)
    devices = {tensor.device.type for tensor in (*model.parameters(), *tensors(inputs))}
    if devices != {"cuda"}:
        raise InputError(
            f"the model or its inputs are on {', '.join(sorted(devices))}, where {gpu.spec.label} does not run them",
            hint="move both to the GPU, or measure on a simulated one: sim:NAME",
        )
    return TorchLayers(model, inputs, names=[phase.name for phase in traced.phases], optimizer=optimizer)


class TorchLayers:
    """Runs the layers of a model on the device that it is on, each with the inputs that a step gives it."""

    def __init__(self, model: torch.nn.Module, inputs: Any, *, names: Sequence[str], optimizer: Any = None) -> None:
        plain = plain_model(model)
        self.names = tuple(name for name in names if name != OPTIMIZER or optimizer is not None)
        self._calls = _captured(plain, inputs, {name.partition("/")[2] for name in names})
        self._update = None if optimizer is None else _update_of(optimizer)
        self._devices = {weight.device for weight in plain.parameters() if weight.device.type == "cuda"}

    def prepare(self, name: str) -> Callable[[int], None]:
        """Return a function that runs a layer; the graph of a backward pass is made here."""
        kind, _, layer = name.partition("/")
        with torch.enable_grad():
            if kind == OPTIMIZER and self._update is not None:
                work = self._update
            else:
                work = self._calls[layer].backward() if kind == BACKWARD else self._calls[layer].forward
        self._synchronise()

        def run(times: int) -> None:
            with torch.enable_grad():
                for _ in range(times):
                    work()
            self._synchronise()

        return run

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _synchronise(self) -> None:
        for device in self._devices:
            torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True)
class _Call:
    """A module and the inputs of one of its calls."""

    module: torch.nn.Module
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    differentiated: tuple[bool, ...]
    """Whether each tensor among the inputs needed a gradient."""

    def forward(self) -> Any:
        return self.module(*self.arguments, **self.options)

    def backward(self) -> Callable[[], object]:
        """Return a function that runs the backward pass of a new forward pass, as often as it is called."""
        needs = iter(self.differentiated)
        roots: list[torch.Tensor] = []

        def fresh(tensor: torch.Tensor) -> torch.Tensor:
            if not next(needs):
                return tensor
            roots.append(tensor.detach().clone().requires_grad_())
            return roots[-1].clone()  # an operation in place needs a tensor that is no leaf

        arguments, options = _mapped((self.arguments, dict(self.options)), fresh)
        outputs = [tensor for tensor in tensors(self.module(*arguments, **options)) if tensor.grad_fn is not None]
        weights = [weight for weight in self.module.parameters() if weight.requires_grad]
        gradients = [torch.ones_like(tensor) for tensor in outputs]
        return partial(
            torch.autograd.grad, outputs, (*roots, *weights), gradients, retain_graph=True, allow_unused=True
        )


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Change every tensor in a nest of tuples, lists and dictionaries, in the order of `tensors`."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(part, change) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_mapped(part, change) for part in value)
    return value


def _captured(model: torch.nn.Module, inputs: Any, layers: Collection[str]) -> dict[str, _Call]:
    """Run the model once and keep a copy of the inputs of these layers."""
    calls: dict[str, _Call] = {}

    def keep(path: str, module: torch.nn.Module, arguments: Any, options: Any) -> None:
        count = sum(layer.partition("#")[0] == path for layer in calls) + 1
        layer = path if count == 1 else f"{path}#{count}"
        needs = tuple(tensor.requires_grad for tensor in tensors((arguments, options)))
        copied = _mapped((arguments, options), lambda tensor: tensor.detach().clone())
        calls[layer] = _Call(module, copied[0], copied[1], needs)

    with ExitStack() as stack:
        paths = {layer.partition("#")[0] for layer in layers}
        for path, module in model.named_modules():
            if (path or WHOLE) in paths:
                hook = module.register_forward_pre_hook(partial(keep, path or WHOLE), with_kwargs=True)
                stack.callback(hook.remove)
        arguments, options = arguments_of(inputs)
        with torch.enable_grad():
            model(*arguments, **options)
    return calls


def _update_of(optimizer: Any) -> Callable[[], object]:
    """Return a step of a copy of the optimizer, on copies of its weights."""
    own = copy.deepcopy(optimizer)
    for group in own.param_groups:
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    return partial(own.step)


@contextmanager
def _unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Put the model into training mode; afterwards restore that, its buffers and the state of random numbers."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(), training(model):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
