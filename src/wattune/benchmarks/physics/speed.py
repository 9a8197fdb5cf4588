"""How fast the physics itself is: iterations tabulated for all clocks at once, and stepped time against simulated."""

from __future__ import annotations

import time
from statistics import median

from wattune.benchmarks.result import Goal, at_least
from wattune.core.workload import Workload
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.spend import tabulate
from wattune.physics.stepped import Machine, simulated_seconds_per_second
from wattune.workloads.catalog import make_workload

CASES = (("a100", "resnet50"), ("a100-80gb", "gpt3-175b@1/8:1"))


def judge_speed() -> tuple[list[Goal], list[str]]:
    """The goal that stepped time runs a thousand times faster than what it simulates, and how long a table takes."""
    goals, notes = [], []
    for gpu, name in CASES:
        model, workload = load_model(gpu), make_workload(name)
        what = f"{workload.name} on {gpu} (simulated)"
        faster = simulated_seconds_per_second(Machine.of(model, workload))
        goals.append(at_least(f"stepped time, {what}: simulated seconds per second", faster, 1000))
        milliseconds = median(_tabulate_ms(model, workload) for _ in range(9))
        clocks = len(model.clocks[0].sm_mhz)
        notes.append(f"An iteration of {what} at all {clocks} clocks at once: {milliseconds:.2f} ms.")
    return goals, notes


def _tabulate_ms(model: GpuModel, workload: Workload) -> float:
    start_s = time.perf_counter()
    tabulate(model, workload)
    return (time.perf_counter() - start_s) * 1000
