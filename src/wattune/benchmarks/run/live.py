"""`wattune bench run --live`: what the control loop costs in real time.

The loop runs in a thread; its CPU time is that of the thread and includes reading the GPUs through NVML, finding
periods, deciding and setting clocks. The first minute costs most, since that is when it searches.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import ModuleType

from wattune.benchmarks.result import Bench, Row, at_most
from wattune.benchmarks.run.contention import contended_goals, contended_rows
from wattune.control.injected import wattune_hook
from wattune.control.step_file import StepFile
from wattune.core.objective import LeastEnergy
from wattune.devices.open import Surroundings, open_gpus
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import build_library
from wattune.emulator.node import Node, emulated
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

GPU_COUNTS = (1, 8)
WORKLOAD = "bert-large"
MOST_PERCENT = 1.0
SHORT_STEP_S, MOST_HOOK_PERCENT = 1e-3, 0.5


def bench_live(
    gpu: str,
    *,
    seconds: float,
    slowdown: float,
    cache_dir: Path,
    contended: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> Bench:
    """Tune one GPU, and eight as one, for so many seconds each; then `contended` programs at once on a busy host."""
    library, rows = build_library(cache_dir), []
    for count in GPU_COUNTS:
        if on_step is not None:
            on_step(f"tunes {count} {'GPU' if count == 1 else 'GPUs'} for {seconds:g} s")
        rows.append(_row(gpu, count, library, seconds=seconds, slowdown=slowdown))
    costliest = max(row["control_core_percent"] for row in rows)
    hook_percent = 100 * hook_s() / SHORT_STEP_S
    busy: tuple[Row, ...] = ()
    if contended:
        busy = contended_rows(gpu, runs=contended, seconds=seconds, slowdown=slowdown, on_step=on_step)
    return Bench(
        bench="run",
        simulated=True,
        rows=(*rows, *busy),
        goals=(
            at_most("control loop, of one core", costliest, MOST_PERCENT, unit=" %"),
            at_most("counting steps inside the program, of a step of 1 ms", hook_percent, MOST_HOOK_PERCENT, unit=" %"),
            *(contended_goals(busy) if busy else ()),
        ),
        notes=("Simulated GPUs behind the emulated NVML library; a real driver's calls take longer.",),
        figures={"gpu": load_model(gpu).name, "seconds": seconds},
    )


def hook_s(calls: int = 20_000) -> float:
    """Measure the CPU time of one counted optimizer step: the median of several rounds."""
    found: list[Callable[[object, object, object], None]] = []
    module = ModuleType("torch.optim.optimizer")
    module.__dict__["register_optimizer_step_post_hook"] = found.append
    with StepFile.made() as file:
        wattune_hook.HOOKS["torch.optim.optimizer"](wattune_hook.Steps(str(file.path)), module)
        hook, optimizer, rounds = found[0], object(), []
        for _ in range(9):
            start_s = time.thread_time()
            for _ in range(calls):
                hook(optimizer, (), {})
            rounds.append((time.thread_time() - start_s) / calls)
    return median(rounds)


def _row(gpu: str, count: int, library: Path, *, seconds: float, slowdown: float) -> Row:
    model = load_model(gpu)
    tables = tabulate(model, make_workload(WORKLOAD))
    with tempfile.TemporaryDirectory() as folder:
        gpus = [EmulatedGpu.of(model, index) for index in range(count)]
        with Node.create(Path(folder) / "node", gpus, library=library, clock="wall") as node, emulated(node):
            for index in range(count):
                node.play(index, tables)
            names = tuple(f"nvml:{index}" for index in range(count))
            with open_gpus(names, Surroundings(Path(folder), None)) as opened:
                session = RunSession(opened, objective=LeastEnergy(slowdown))
                with session:
                    time.sleep(seconds)
                thread = session.background
                share = thread.cpu_s / thread.wall_s if thread is not None and thread.wall_s else 0.0
                return {
                    "policy": session.policy.name,
                    "workload": WORKLOAD,
                    "gpus": count,
                    "time_s": session.progress.time_s,
                    "windows": len(session.progress.windows),
                    "changes": session.loop.changes,
                    "control_core_percent": 100 * share,
                }
