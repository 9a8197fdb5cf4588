"""One tool on one node of simulated GPUs, in a process of its own: `python -m wattune_bench.meter.probe …`.

Prints one JSON document. A process of its own keeps each tool's caches and NVML state apart, and a node of its own
keeps the counted calls apart.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from wattune.core.measurement import Measurement
from wattune.devices.gpu import Gpu
from wattune.devices.meter import measured
from wattune.devices.open import Surroundings, open_gpus
from wattune.devices.sampler import Sampler
from wattune.emulator.node import Node
from wattune.integrations.training import TrainingEnergy
from wattune.process.injected import wattune_hook
from wattune.process.step_file import StepFile

Window = Callable[[Callable[[], None]], tuple[float, float | None]]
"""Runs some work in a window of the tool and gives joules and, where the tool reports one, their error."""


def main(arguments: list[str]) -> None:
    """Print what one probe found."""
    probe, tool, node_file, library, repetitions = arguments
    with Node.attach(Path(node_file), library=Path(library)) as node:
        probes = {"cost": _cost, "accuracy": _accuracy, "sampler": _sampler, "callback": _callback}
        print(json.dumps(probes[probe](tool, node, int(repetitions))))


@contextmanager
def _gpus(node: Node) -> Iterator[tuple[Gpu, ...]]:
    with open_gpus(("nvml",), Surroundings(node.path.parent / "state")) as gpus:
        yield gpus


def _cost(tool: str, node: Node, repetitions: int) -> dict[str, Any]:
    """Microseconds and NVML calls of one window around nothing."""
    if tool == "zeus":
        monitor = _zeus_monitor(node)

        def window() -> None:
            monitor.begin_window("bench", sync_execution=False)
            monitor.end_window("bench", sync_execution=False)

        return {"span_us": _microseconds(window, repetitions), **_calls(node, window)}
    with _gpus(node) as gpus:

        def span() -> None:
            with measured(*gpus):
                pass

        def span_and_result() -> Measurement:
            with measured(*gpus) as made:
                pass
            return made.measurement

        span_and_result()
        return {
            "span_us": _microseconds(span, repetitions),
            "with_result_us": _microseconds(span_and_result, repetitions),
            **_calls(node, span_and_result),
        }


def _callback(tool: str, node: Node, repetitions: int) -> dict[str, Any]:
    """Microseconds that a callback takes in the training thread: at every step, and for a row of figures."""
    del tool
    said: list[str] = []
    with (
        _gpus(node) as gpus,
        TrainingEnergy(gpus=gpus, max_slowdown=0.05, store=False, notify=said.append) as energy,
    ):

        def step() -> None:
            energy.resume()
            energy.step()

        return {
            "step_us": _microseconds(step, repetitions),
            "figures_us": _microseconds(energy.figures, max(repetitions // 20, 1)),
            "hook_us": _hook_us(repetitions),
        }


def _hook_us(repetitions: int) -> float:
    """Microseconds that counting a step takes inside a program under `wattune run`, with steps of 1 ms."""
    registered: list[Callable[[object, object, object], None]] = []
    module = ModuleType("torch.optim.optimizer")
    module.__dict__["register_optimizer_step_post_hook"] = registered.append
    with StepFile.made() as file:
        shared = wattune_hook.SharedFile.named(file.place)
        steps = wattune_hook.Steps(shared)
        steps.now_ns = _spaced(steps.now_ns, 1_000_000)
        wattune_hook.HOOKS[module.__name__](steps, module)
        hook, optimizer = registered[0], object()
        taken_us = _microseconds(lambda: hook(optimizer, (), {}), repetitions)
        shared.close()
    return taken_us


def _spaced(clock_ns: Callable[[], int], step_ns: int) -> Callable[[], int]:
    """Return a clock that goes on by a step at each call, and asks this one as well, for the cost of that."""
    now_ns = clock_ns()

    def spaced_ns() -> int:
        nonlocal now_ns
        clock_ns()
        now_ns += step_ns
        return now_ns

    return spaced_ns


def _zeus_monitor(node: Node) -> Any:
    from zeus.monitor import ZeusMonitor

    return ZeusMonitor(gpu_indices=list(range(node.count)))


def _microseconds(window: Callable[[], object], repetitions: int) -> float:
    """Return the mean CPU time of a window, driver calls included, in the batch that was disturbed least.

    Elapsed time would count other programs on a busy machine, and these slow down CPU time as well.
    """
    batches = []
    for _ in range(15):
        start_s = time.thread_time()
        for _ in range(repetitions):
            window()
        batches.append((time.thread_time() - start_s) / repetitions * 1e6)
    return min(batches)


def _calls(node: Node, window: Callable[[], object]) -> dict[str, float]:
    before = sum(node.calls().values())
    for _ in range(100):
        window()
    return {"nvml_calls": (sum(node.calls().values()) - before) / 100}


def _accuracy(tool: str, node: Node, repetitions: int) -> dict[str, Any]:
    """Errors of many windows of several lengths against the node's truth, in virtual time."""
    warnings.simplefilter("ignore")  # zeus warns of every window that reads zero
    if tool == "zeus":
        return _errors(node, _zeus_window(_zeus_monitor(node)), repetitions)
    with _gpus(node) as gpus:
        return _errors(node, _wattune_window(gpus[0], node), repetitions)


def _zeus_window(monitor: Any) -> Window:
    def window(work: Callable[[], None]) -> tuple[float, float | None]:
        monitor.begin_window("bench", sync_execution=False)
        work()
        return monitor.end_window("bench", sync_execution=False).gpu_energy[0], None

    return window


def _wattune_window(gpu: Gpu, node: Node) -> Window:
    def window(work: Callable[[], None]) -> tuple[float, float | None]:
        with measured(gpu, wait=node.advance) as span:
            work()
        found = span.measurement
        return found.energy_j, found.energy_error_j

    return window


def _errors(node: Node, window: Window, repetitions: int) -> dict[str, Any]:
    generator = random.Random(1)
    lengths = {"short": (0.02, 1.0), "long": (5.0, 8.0)}
    found: dict[str, Any] = {}
    for kind, (low_s, high_s) in lengths.items():
        errors, bars_hold = [], []
        for _ in range(repetitions):
            node.advance(generator.uniform(0.0, 0.5))
            energy_j, error_j, truth_j = _one(node, window, generator.uniform(low_s, high_s))
            errors.append(abs(energy_j - truth_j) / truth_j * 100)
            if error_j is not None:
                bars_hold.append(abs(energy_j - truth_j) <= error_j)
        found[kind] = {
            "error_mean_percent": statistics.fmean(errors),
            "error_worst_percent": max(errors),
            "inside_bar_percent": 100 * statistics.fmean(bars_hold) if bars_hold else None,
        }
    return found


def _one(node: Node, window: Window, length_s: float) -> tuple[float, float | None, float]:
    truth: list[float] = []

    def work() -> None:
        truth.append(node.truth_j(0))
        node.advance(length_s)
        truth.append(node.truth_j(0))

    energy_j, error_j = window(work)
    return energy_j, error_j, truth[1] - truth[0]


def _sampler(tool: str, node: Node, repetitions: int) -> dict[str, Any]:
    """Share of one core that a sampler takes, over so many seconds of real time."""
    del tool
    with _gpus(node) as gpus:
        start_s, start_cpu_s = time.monotonic(), time.process_time()
        with Sampler(gpus, interval_s=0.02) as sampler:
            time.sleep(repetitions)
        share = (time.process_time() - start_cpu_s) / (time.monotonic() - start_s)
        return {"cpu_percent": 100 * share, "samples": sum(len(trace.readings) for trace in sampler.traces)}


if __name__ == "__main__":
    main(sys.argv[1:])
