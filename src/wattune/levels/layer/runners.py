"""Layers on simulated GPUs: these run the traced work of each layer, since they cannot run the layer itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from wattune.core.workload import Workload
from wattune.emulator.node import Node
from wattune.levels.layer.costs import unique_names
from wattune.physics.gpu_model import GpuModel
from wattune.physics.spend import tabulate


@runtime_checkable
class RunsWork(Protocol):
    """A GPU that runs described work by itself, as one that is simulated in this process."""

    def run(self, workload: Workload, *, iterations: float = 1) -> None:
        """Run so many iterations, and return when they are done."""

    def idle(self, seconds: float) -> None:
        """Let time pass without work."""


class TracedLayers:
    """Runs the layers of a workload on a GPU that is simulated in this process."""

    def __init__(self, gpu: RunsWork, traced: Workload) -> None:
        self._gpu = gpu
        self._work = _work_of(traced)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._work)

    def prepare(self, name: str) -> Callable[[int], None]:
        return lambda times: self._gpu.run(self._work[name], iterations=times)

    def wait(self, seconds: float) -> None:
        self._gpu.idle(seconds)


class EmulatedLayers:
    """Runs the layers of a workload on a GPU of the emulated NVML library, on behalf of this process."""

    def __init__(self, node: Node, model: GpuModel, traced: Workload, *, index: int = 0) -> None:
        self._node, self._index = node, index
        self._tables = {name: tabulate(model, work) for name, work in _work_of(traced).items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def prepare(self, name: str) -> Callable[[int], None]:
        def run(times: int) -> None:
            self._node.play(self._index, self._tables[name])
            self._node.run(self._index, times)
            self._node.idle(self._index)

        return run

    def wait(self, seconds: float) -> None:
        if self._node.is_virtual:
            self._node.advance(seconds)
        else:
            time.sleep(seconds)


def _work_of(traced: Workload) -> dict[str, Workload]:
    names = unique_names([phase.name for phase in traced.phases])
    return {name: Workload(name=name, phases=(phase,)) for name, phase in zip(names, traced.phases, strict=True)}
