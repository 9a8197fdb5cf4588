"""Small pipelines for tests: stage profiles as CSV, and frontiers planned from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from wattune.core.frontier import Frontier
from wattune.core.setting import Setting
from wattune.levels.pipeline.planned import PlannedPipeline, Source, choose, default_trial, plan_profile
from wattune.levels.pipeline.solver.plan_cost import timed
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import Order
from wattune.plans.shape import shape_of_order
from wattune.plans.stage_profile import StageProfile, parse_stage_profile

BLOCKING_W = 60.0
CLOCKS = (1400, 1200, 1000, 800)
HEADER = "stage,instruction,frequency,time,energy"


def profile_rows(
    stages: int = 3, clocks: tuple[int, ...] = CLOCKS, instructions: tuple[str, ...] = ("forward", "backward")
) -> list[str]:
    """Rows in which a higher clock is faster and costs more, and each stage differs a little from the others."""
    rows = []
    for stage in range(stages):
        for size, instruction in enumerate(instructions, 1):
            for mhz in clocks:
                share = mhz / max(clocks)
                time_s = 0.01 * size * (1 + 0.1 * stage) * (0.3 + 0.7 / share)
                energy_j = time_s * (80 + 220 * share**3)
                rows.append(f"{stage},{instruction},{mhz},{time_s!r},{energy_j!r}")
    return rows


def profile_csv(
    stages: int = 3, clocks: tuple[int, ...] = CLOCKS, instructions: tuple[str, ...] = ("forward", "backward")
) -> str:
    """The rows under their header."""
    return "\n".join((HEADER, *profile_rows(stages, clocks, instructions))) + "\n"


def small_profile(stages: int = 3) -> StageProfile:
    """The profile of those rows."""
    return parse_stage_profile(profile_csv(stages), file="p.csv")


def planned_pipeline(
    profile: StageProfile | None = None,
    *,
    schedule: str = "1f1b",
    microbatches: int = 4,
    chunks: int = 1,
    points: int = 12,
) -> PlannedPipeline:
    """The frontier of a profile, by default that of a small one."""
    profile = profile or small_profile()
    shape = profile.shape(schedule, microbatches, chunks=chunks)
    source = Source(profile.file, "0" * 64, profile.simulated)
    return choose(plan_profile(profile, shape, source=source, blocking_power_w=BLOCKING_W, points=points))


def planned_at(order: Order, clocks_mhz: Sequence[int]) -> PlannedPipeline:
    """A single plan: the pieces of each rank at these clocks, one after another, over and over."""
    shape, clocks = shape_of_order(order), cycle(clocks_mhz)
    instructions = tuple({piece.instruction: None for rank in order for piece in rank})
    text = profile_csv(shape.stages, tuple(dict.fromkeys(clocks_mhz)), instructions)
    profile, graph = parse_stage_profile(text, file="p.csv"), shape.graph
    trials = {
        piece.name: profile.trial(piece.kind, StageChoice(Setting(next(clocks)))) for rank in order for piece in rank
    }
    return PlannedPipeline(
        shape,
        BLOCKING_W,
        Source(profile.file, "0" * 64, profile.simulated),
        default_trial(graph, profile, blocking_power_w=BLOCKING_W),
        Frontier(
            (timed(graph, (trials[operation.name] for operation in graph.operations), blocking_power_w=BLOCKING_W),)
        ),
        "a test",
    )
