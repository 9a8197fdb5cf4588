"""The overhead of the hooks that play a plan of layers, on a real training loop on the CPU."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING, Any

from wattune.benchmarks.result import Bench, Goal, at_most
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95
from wattune.core.plan import Plan
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.levels.layer.costs import simulated_costs
from wattune.levels.layer.planner import SEGMENTS, plan_layers
from wattune.levels.layer.switching import FREE, SwitchCost, switches_of
from wattune.physics.catalog import load_model

if TYPE_CHECKING:
    from wattune.integrations.torch.layers.overhead import HookedStep, NetworkSize

GPU = "a4000"
STEPS = 60
_WARM_UP, _TINY_STEPS = 2, 200
_MOST_OVERHEAD = 0.01
STEP_OVERHEAD = "hook overhead, of the step time"
FAST = SwitchCost(sm_latency_s=1e-4, mem_latency_s=1e-4, sm_stall_s=0.0, mem_stall_s=0.0)
"""A hundred times as fast as GPUs are: a plan for a step of 6 ms then has several segments."""

_NOTE = (
    "Hooks: the plan is for switching in 0.1 ms, which GPUs do not reach; that for free switching changes clocks at "
    "most layers and is the worst case. Steps with and without hooks alternate; overheads are medians of pairs. On "
    "shared cores the step time scatters by more than the hooks cost. Their cost does not depend on the sizes of "
    "tensors, so it is also measured on the same layers with tiny ones, as time of the training thread on a core, and "
    "divided by that of a step of the real network. Calls of the driver are left out: they run in another thread."
)


def bench_hooks(*, steps: int = STEPS, on_step: Callable[[int], None] | None = None) -> Bench:
    """Train a ResNet-18 for small images in turns with and without hooks, and compare times and results."""
    if importlib.util.find_spec("torch") is None:
        notes = ("PyTorch is not installed here: pip install 'wattune[torch]'",)
        goals = (at_most(STEP_OVERHEAD, None, _MOST_OVERHEAD),)
        return Bench(bench="layers", simulated=True, rows=(), goals=goals, notes=notes)
    from wattune.integrations.torch.layers.overhead import TINY, NetworkSize, hooked_steps, sample_workload

    size, model = NetworkSize(), load_model(GPU)
    workload = sample_workload(size)
    costs = simulated_costs(model, workload)

    def plan_for(switching: SwitchCost) -> Plan:
        return plan_layers(costs, switching, SEGMENTS).within(1.05 * costs.default.time_s).choice

    def train(
        size: NetworkSize, switching: SwitchCost, steps: int, on_step: Callable[[int], None] | None = None
    ) -> list[HookedStep]:
        plan, gpu = plan_for(switching), SilentGpu(model.spec())
        trained = hooked_steps(size, plan, gpu, switching=switching, steps=steps + _WARM_UP, on_step=on_step)
        return list(trained)[_WARM_UP:]

    def row(switching: SwitchCost, figures: Mapping[str, float]) -> dict[str, Any]:
        changes = switches_of(plan_for(switching))
        head = {"case": "hooks", "network": workload.name, "device": "CPU", "layers": len(workload.phases)}
        return {**head, "switches_per_step": changes, **figures}

    real = train(size, FAST, steps, on_step)
    figures = _figures(real, train(TINY, FAST, _TINY_STEPS))
    worst = _figures(real, train(TINY, FREE, _TINY_STEPS))
    # The steps of the real network had the first of the plans.
    worst = {name: worst[name] for name in ("plain_ms", "hooks_ms", "hooks_over_step", "identical")}
    rows = (row(FAST, figures), row(FREE, worst))
    return Bench(bench="layers", simulated=True, rows=rows, goals=_goals(figures), notes=(_NOTE,))


def _figures(real: Sequence[HookedStep], tiny: Sequence[HookedStep]) -> dict[str, float]:
    hooks_s = median(step.hooked.cpu_s - step.plain.cpu_s for step in tiny)
    overheads = [step.hooked.wall_s / step.plain.wall_s - 1.0 for step in real]
    return {
        "steps": len(real),
        "plain_ms": 1e3 * median(step.plain.wall_s for step in real),
        "hooked_ms": 1e3 * median(step.hooked.wall_s for step in real),
        "step_overhead": median(overheads),
        "step_overhead_error": _median_error(overheads),
        "core_overhead": median(step.hooked.cpu_s / step.plain.cpu_s - 1.0 for step in real),
        "hooks_ms": 1e3 * hooks_s,
        "hooks_over_step": hooks_s / median(step.plain.cpu_s for step in real),
        "identical": sum(step.identical for step in (*real, *tiny)) / (len(real) + len(tiny)),
    }


def _median_error(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of a median, by the median absolute deviation."""
    middle = median(values)
    deviation = 1.4826 * median(abs(value - middle) for value in values)
    return SIGMAS_95 * 1.2533 * deviation / sqrt(len(values))


def _goals(figures: Mapping[str, float]) -> tuple[Goal, ...]:
    identical = figures["identical"]
    return (
        _step_goal(figures["step_overhead"], figures["step_overhead_error"]),
        at_most("time in hooks over step time", figures["hooks_over_step"], _MOST_OVERHEAD),
        Goal("share of steps with the same bits in outputs, loss and gradients", identical, "= 1", identical == 1.0),
    )


def _step_goal(overhead: float, error: float) -> Goal:
    """Make the goal of the step time, undecided where the machine is too busy to tell."""
    goal = at_most(STEP_OVERHEAD, overhead, _MOST_OVERHEAD, note=f"± {100 * error:.1f} points by the scatter of steps")
    return replace(goal, met=None) if overhead - error <= _MOST_OVERHEAD < overhead else goal


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
