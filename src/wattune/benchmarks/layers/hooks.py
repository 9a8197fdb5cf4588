"""The overhead of the hooks that play a plan of layers, on a real training loop on the CPU."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from wattune.benchmarks.result import Bench, Goal, at_most
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.levels.layer.costs import simulated_costs
from wattune.levels.layer.planner import IDEAL, plan_layers
from wattune.levels.layer.switching import FREE, switches_of
from wattune.physics.catalog import load_model

if TYPE_CHECKING:
    from wattune.integrations.torch.layers.overhead import HookedStep, NetworkSize

GPU = "a4000"
STEPS = 60
_WARM_UP, _TINY_STEPS = 2, 200
_MOST_OVERHEAD = 0.01
STEP_OVERHEAD = "hook overhead, of the step time"
_MOST_CHANGES = (
    "The plan of the hooks is the one for free switching, which changes clocks more often than any plan for a real GPU."
)
_ESTIMATE = (
    "Steps with and without hooks alternate; overheads are medians of pairs. On shared cores the step time scatters by "
    "more than the hooks cost. Their cost does not depend on the sizes of tensors, so it is also measured on the same "
    "layers with tiny ones, as time of the training thread, and divided by that of a step of the real network."
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
    plan = plan_layers(costs, FREE, IDEAL).within(1.05 * costs.default.time_s).choice

    def train(size: NetworkSize, steps: int, on_step: Callable[[int], None] | None) -> list[HookedStep]:
        gpu = SilentGpu(model.spec())
        return list(hooked_steps(size, plan, gpu, switching=FREE, steps=steps + _WARM_UP, on_step=on_step))[_WARM_UP:]

    real, tiny = train(size, steps, on_step), train(TINY, _TINY_STEPS, None)
    row = {"layers": len(workload.phases), "switches_per_step": switches_of(plan), **_figures(real, tiny)}
    return Bench(
        bench="layers",
        simulated=True,
        rows=({"case": "hooks", "network": workload.name, "device": "CPU", **row},),
        goals=_goals(row),
        notes=(_MOST_CHANGES, _ESTIMATE),
    )


def _figures(real: Sequence[HookedStep], tiny: Sequence[HookedStep]) -> dict[str, float]:
    plain_s = median(step.plain.wall_s for step in real)
    hooks_s = median(step.hooked.cpu_s - step.plain.cpu_s for step in tiny)
    return {
        "steps": len(real),
        "plain_ms": 1e3 * plain_s,
        "hooked_ms": 1e3 * median(step.hooked.wall_s for step in real),
        "step_overhead": median(step.hooked.wall_s / step.plain.wall_s - 1.0 for step in real),
        "hooks_ms": 1e3 * hooks_s,
        "hooks_over_step": hooks_s / median(step.plain.cpu_s for step in real),
        "identical": sum(step.identical for step in (*real, *tiny)) / (len(real) + len(tiny)),
    }


def _goals(row: Mapping[str, float]) -> tuple[Goal, ...]:
    identical = row["identical"]
    return (
        at_most(STEP_OVERHEAD, row["step_overhead"], _MOST_OVERHEAD, note="scatters where cores are shared"),
        at_most("time in hooks over step time", row["hooks_over_step"], _MOST_OVERHEAD),
        Goal("share of steps with the same bits in outputs, loss and gradients", identical, "= 1", identical == 1.0),
    )


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
