"""Small pipelines for tests: stage profiles as CSV, and frontiers planned from them."""

from __future__ import annotations

from wattune.levels.kernel.planned import PlannedPipeline, Source, choose, default_trial
from wattune.levels.kernel.planner import plan_pipeline
from wattune.levels.kernel.stage_profile import StageProfile, parse_stage_profile

BLOCKING_W = 60.0
CLOCKS = (1400, 1200, 1000, 800)
HEADER = "stage,instruction,frequency,time,energy"


def profile_rows(
    stages: int = 3, clocks: tuple[int, ...] = CLOCKS, instructions: tuple[str, ...] = ("forward", "backward")
) -> list[str]:
    """Rows in which a higher clock is faster and dearer, and each stage differs a little from the others."""
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
    graph = shape.graph
    frontier = plan_pipeline(graph, profile.options, blocking_power_w=BLOCKING_W, points=points)
    default = default_trial(graph, profile, blocking_power_w=BLOCKING_W)
    source = Source(profile.file, "0" * 64, profile.simulated)
    return choose(PlannedPipeline(shape, graph, BLOCKING_W, source, default, frontier, "wattune"))
