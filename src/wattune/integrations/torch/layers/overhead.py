"""The cost of the hooks that play a plan: a residual network that trains on the CPU, with and without them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from wattune.core.workload import Workload
from wattune.devices.gpu import Gpu
from wattune.integrations.torch.layers.playing import played_layers
from wattune.integrations.torch.layers.tracing import trace_layers
from wattune.levels.layer.listener import CHECKED_PASSES
from wattune.levels.layer.switching import SwitchCost
from wattune.plans.plan import Plan

CLASSES = 10


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """Width of the first layers, batch size and pixels per side; the number of layers is always the same."""

    width: int = 64
    batch_size: int = 16
    pixels: int = 32

    def images(self) -> Any:
        return torch.randn(self.batch_size, 3, self.pixels, self.pixels)


BLOCK = 10
"""Steps after which the other network gets the plan."""


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, as in ResNet-18 (He et al. 2016), with activations in place."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, images: Any) -> Any:
        hidden = self.relu(self.norm1(self.conv1(images)))
        return self.relu(self.norm2(self.conv2(hidden)) + self.shortcut(images))


def residual_network(size: NetworkSize) -> nn.Module:
    """Make ResNet-18 for small images."""
    inputs = size.width
    stem = (nn.Conv2d(3, inputs, 3, 1, 1, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
    blocks: list[nn.Module] = []
    for width in (inputs, 2 * inputs, 4 * inputs, 8 * inputs):
        blocks += [ResidualBlock(inputs, width, 1 if width == inputs else 2), ResidualBlock(width, width, 1)]
        inputs = width
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


@dataclass(frozen=True, slots=True)
class TimedStep:
    """Seconds of a step: by the wall, and on a core, in the thread that trains."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedStep:
    """One step without hooks and the same step with them."""

    plain: TimedStep
    hooked: TimedStep
    identical: bool
    """Whether outputs, loss and all gradients have the same bits."""


def sample_workload(size: NetworkSize) -> Workload:
    """Trace the network that `hooked_steps` trains."""
    return trace_layers(residual_network(size), size.images(), name="ResNet-18")


def hooked_steps(
    size: NetworkSize,
    plan: Plan,
    gpu: Gpu,
    *,
    switching: SwitchCost,
    steps: int,
    on_step: Callable[[int], None] | None = None,
) -> Iterator[HookedStep]:
    """Train two equal networks in turns, one of them with the plan, and yield each pair of steps.

    Which one has the plan changes after some steps, since one may lie better in memory, and which one goes first with
    every step. The steps in which every layer is still compared with the plan are not yielded.
    """
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        one = _TrainingLoop(residual_network(size))
        two = _TrainingLoop(copy.deepcopy(one.model))
        done = 0
        while done < steps:
            hooked, plain = (one, two) if done // BLOCK % 2 else (two, one)
            with played_layers(hooked.model, plan, gpu, switching=switching, optimizer=hooked.optimizer) as clocks:
                for number in range(CHECKED_PASSES + min(BLOCK, steps - done)):
                    images, labels = size.images(), torch.randint(CLASSES, (size.batch_size,))
                    order = (plain, hooked) if number % 2 else (hooked, plain)
                    taken = {training is hooked: training.step(images, labels) for training in order}
                    if clocks.disabled is not None:
                        raise RuntimeError(f"the plan was not played: {clocks.disabled}")
                    if number >= CHECKED_PASSES:
                        yield HookedStep(plain=taken[False], hooked=taken[True], identical=plain.is_same_as(hooked))
                        done += 1
                        if on_step is not None:
                            on_step(done)


class _TrainingLoop:
    """A network, its optimizer and the results of its last step."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self._results: list[Any] = []

    def step(self, images: Any, labels: Any) -> TimedStep:
        """Train on a batch."""
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        self.optimizer.zero_grad()
        outputs = self.model(images)
        loss = functional.cross_entropy(outputs, labels)
        loss.backward()
        self.optimizer.step()
        taken = TimedStep(time.perf_counter() - start_s, time.thread_time() - start_cpu_s)
        self._results = [outputs.detach(), loss.detach(), *(weight.grad for weight in self.model.parameters())]
        return taken

    def is_same_as(self, other: _TrainingLoop) -> bool:
        return all(torch.equal(one, two) for one, two in zip(self._results, other._results, strict=True))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let PyTorch use one thread: sums in another order have other last bits, and shared cores make noise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
