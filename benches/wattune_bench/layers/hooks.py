"""The overhead of the hooks that play a plan of layers, on a real training loop on the CPU."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.levels.layer.costs import simulated_costs
from wattune.levels.layer.planner import SEGMENTS, plan_layers
from wattune.levels.layer.switching import SwitchCost, switches_of
from wattune.physics.catalog import load_model
from wattune_bench.result import Bench, Goal, at_most

if TYPE_CHECKING:
    from wattune.integrations.torch.layers.overhead import HookedStep

GPU = "a4000"
STEPS = 60
_MOST_OVERHEAD = 0.01
STEP_OVERHEAD, CORE_OVERHEAD = "hook overhead, of the step time", "hook overhead, of the time on a core"
FAST = SwitchCost(sm_latency_s=1e-4, mem_latency_s=1e-4, sm_stall_s=0.0, mem_stall_s=0.0)
"""A hundred times as fast as GPUs are: a plan for a step of 6 ms then has several segments."""

_NOTE = (
    "Hooks: the plan is for switching in 0.1 ms, which GPUs do not reach, so that it changes clocks several times per "
    "step. Steps with and without hooks alternate; overheads are medians of pairs: of the step time, and of the time "
    "of the training thread on a core, which scatters less on a busy machine. Calls of the driver are left out: they "
    "run in another thread. In the first two steps all layers are compared with the plan; they are not counted."
)


def bench_hooks(*, steps: int = STEPS, on_step: Callable[[int], None] | None = None) -> Bench:
    """Train a ResNet-18 for small images in turns with and without hooks, and compare times and results."""
    if importlib.util.find_spec("torch") is None:
        notes = ("PyTorch is not installed here: pip install 'wattune[torch]'",)
        goals = (at_most(STEP_OVERHEAD, None, _MOST_OVERHEAD),)
        return Bench(bench="layers", simulated=True, rows=(), goals=goals, notes=notes)
    from wattune.integrations.torch.layers.overhead import NetworkSize, hooked_steps, sample_workload

    size, model = NetworkSize(), load_model(GPU)
    workload = sample_workload(size)
    costs = simulated_costs(model, workload)
    plan = plan_layers(costs, FAST, SEGMENTS).within(1.05 * costs.default.time_s).choice
    found = list(hooked_steps(size, plan, SilentGpu(model.spec()), switching=FAST, steps=steps, on_step=on_step))
    figures = _figures(found)
    row = {
        "case": "hooks",
        "network": workload.name,
        "device": "CPU",
        "layers": len(workload.phases),
        "switches_per_step": switches_of(plan),
        **figures,
    }
    return Bench(bench="layers", simulated=True, rows=(row,), goals=_goals(figures), notes=(_NOTE,))


def _figures(found: Sequence[HookedStep]) -> dict[str, float]:
    walls = [step.hooked.wall_s / step.plain.wall_s - 1.0 for step in found]
    cores = [step.hooked.cpu_s / step.plain.cpu_s - 1.0 for step in found]
    return {
        "steps": len(found),
        "plain_ms": 1e3 * median(step.plain.wall_s for step in found),
        "hooked_ms": 1e3 * median(step.hooked.wall_s for step in found),
        "step_overhead": median(walls),
        "step_overhead_error": _median_error(walls),
        "core_overhead": median(cores),
        "core_overhead_error": _median_error(cores),
        "identical": sum(step.identical for step in found) / len(found),
    }


def _median_error(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of a median, by the median absolute deviation."""
    middle = median(values)
    deviation = 1.4826 * median(abs(value - middle) for value in values)
    return SIGMAS_95 * 1.2533 * deviation / sqrt(len(values))


def _goals(figures: Mapping[str, float]) -> tuple[Goal, ...]:
    identical = figures["identical"]
    return (
        _overhead_goal(STEP_OVERHEAD, figures["step_overhead"], figures["step_overhead_error"]),
        _overhead_goal(CORE_OVERHEAD, figures["core_overhead"], figures["core_overhead_error"]),
        Goal("share of steps with the same bits in outputs, loss and gradients", identical, "= 1", identical == 1.0),
    )


def _overhead_goal(name: str, overhead: float, error: float) -> Goal:
    """Make a goal of time, undecided where the machine is too busy to tell."""
    goal = at_most(name, overhead, _MOST_OVERHEAD, note=f"± {100 * error:.1f} points by the scatter of steps")
    is_open = overhead - error <= _MOST_OVERHEAD < overhead + error
    return replace(goal, met=None) if is_open else goal


class SilentGpu:
    """A GPU whose driver does nothing: the hooks and the thread that sets clocks are all that costs time."""

    def __init__(self, spec: GpuSpec) -> None:
        self.spec = spec
        self.refresh: Refresh | None = None

    def read(self) -> Reading:
        return Reading(time_s=time.monotonic())

    def count(self) -> Count:
        return Count(time.monotonic(), 0.0)

    def apply(self, setting: Setting) -> None:
        pass

    def restore(self) -> None:
        pass
