"""The work of each layer of a PyTorch model, in the order in which its layers run.

A layer is a call of a module that calls no other module and runs at least one kernel. All that runs from its start up
to the start of the next layer of the same pass belongs to it: operations between modules (a sum, a reshape, the loss)
belong to the layer before them. What runs before the first layer of a pass belongs to that one. Kernels count as
launched separately, since plans are played on models that are not compiled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.integrations.torch.iteration import MetaRun, run_on_meta
from wattune.integrations.torch.layers.calls import heard, plain_model
from wattune.integrations.torch.recorder import Recorder
from wattune.levels.layer.costs import BACKWARD, FORWARD
from wattune.workloads.kernel_fusion import Kernel
from wattune.workloads.operation import SGD, Optimizer, optimizer_phase

_SEEDS = (0, 1)
"""Every model is traced with each: layers that differ depend on chance or on earlier calls."""


def trace_layers(
    model: torch.nn.Module,
    inputs: Any,
    *,
    pipe: Pipe | None = None,
    optimizer: Optimizer = SGD,
    loss: Callable[[Any], torch.Tensor] | None = None,
    name: str | None = None,
) -> Workload:
    """Trace one training step, a phase per layer and pass, so that a plan made from it can be played on the model.

    The arguments are those of `trace`. The name of the workload ends with the batch size, such as `ResNet:64`.
    """
    plain = plain_model(model)
    title = name or type(plain).__name__
    runs = [_run(plain, inputs, pipe=pipe, loss=loss, title=title, seed=seed) for seed in _SEEDS]
    phases, run = runs[0]
    _check_same([phase.name for phase in phases], [phase.name for phase in runs[1][0]], title)
    size = "" if run.batch_size is None else f":{run.batch_size}"
    return Workload(
        name=title + size,
        phases=(*phases, optimizer_phase(run.trained, optimizer)),
        batch_size=run.batch_size,
        parameters=run.trained,
    )


def _run(
    model: torch.nn.Module, inputs: Any, *, pipe: Pipe | None, loss: Any, title: str, seed: int
) -> tuple[tuple[Phase, ...], MetaRun]:
    recorder = Recorder(pipe)
    starts = _Starts(recorder.kernels)
    with torch.random.fork_rng(devices=[]), heard(model, starts):
        torch.manual_seed(seed)
        try:
            run = run_on_meta(model, inputs, recorder, loss=loss, title=title)
        except InputError as error:
            inside = starts.innermost
            raise InputError(f"{error}{f' (in {inside})' if inside else ''}", hint=error.hint) from error
    return starts.phases(title), run


class _Starts:
    """Where in the list of kernels each layer begins."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self._open: list[tuple[str, int]] = []
        self._newest = ""
        self._found: list[tuple[str, int]] = []

    @property
    def innermost(self) -> str | None:
        """The call that has not returned, or the layer whose backward pass began last."""
        if self._open:
            return self._open[-1][0]
        return self._found[-1][0] if self._found else None

    def start(self, batch_size: int | None) -> None:
        pass

    def begin(self, name: str) -> None:
        place = len(self._kernels)
        if name.startswith(BACKWARD):
            self._found.append((name, place))
        else:
            self._open.append((name, place))
            self._newest = name

    def end(self, name: str) -> bool:
        while self._open and self._open[-1][0] != name:
            self._open.pop()  # a call that raised, which the model caught
        _, place = self._open.pop()
        is_layer = self._newest == name and len(self._kernels) > place
        if is_layer:
            self._found.append((name, place))
        return is_layer

    def fail(self, error: Exception) -> None:
        raise error

    def phases(self, title: str) -> tuple[Phase, ...]:
        """Make a phase per layer."""
        if not self._found:
            raise InputError(f"{title} calls no module that runs a kernel", hint="give a model made of layers")
        owned: dict[str, list[Kernel]] = {name: [] for name, _ in self._found}
        for kind in (FORWARD, BACKWARD):
            # A pass without layers, as a backward pass of the loss alone, belongs to the layer before it.
            own = [start for start in self._found if start[0].startswith(kind)] or self._found[-1:]
            places = [place for _, place in own]
            for place, kernel in enumerate(self._kernels):
                if kernel.backward == (kind == BACKWARD):
                    owned[own[max(bisect_right(places, place) - 1, 0)][0]].append(kernel)
        return tuple(_phase(name, kernels) for name, kernels in owned.items() if kernels)


def _phase(name: str, kernels: Sequence[Kernel]) -> Phase:
    """Add up the kernels of a layer; its pipe is that of most of its arithmetic."""
    largest = max(kernels, key=lambda kernel: kernel.flops)
    return Phase(
        name=name,
        flops=sum(kernel.flops for kernel in kernels),
        pipe=largest.pipe,
        dram_bytes=sum(kernel.unfused_bytes for kernel in kernels),
        launches=float(sum(kernel.launches for kernel in kernels)),
    )


def _check_same(once: list[str], again: list[str], title: str) -> None:
    for place in range(max(len(once), len(again))):
        one, two = ((names[place] if place < len(names) else "nothing") for names in (once, again))
        if one != two:
            raise InputError(
                f"{title} does not always run the same layers: {one} in one step, {two} in the next",
                hint="a plan needs the same layers in every step; trace the part that always runs",
            )
