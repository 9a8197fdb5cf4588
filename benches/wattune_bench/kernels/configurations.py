"""The ten configurations of Kareus with their published figures, and the same iterations on simulated GPUs.

Source: ml-energy/kareus. Seconds and joules are those of the plan of maximum throughput, which its optimizer predicted
from profiles taken in training; joules are those of one GPU of each of the 2 stages together. All trained on 16 A100
40 GB with 15 and 13 layers on the stages, 8 microbatches, BF16 and full recomputation; a waiting GPU draws 85 W.
The profile of Llama 3.2 3B at 8 × 8192 looks damaged: over a range of clocks of 1.57 its times range over 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from wattune.core.frontier import Frontier
from wattune.core.measurement import Measurement
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import PartitionedModel, partition_model
from wattune.levels.overlap.simulated_stages import at_first_slot, sequentially, stage_profile_of
from wattune.levels.pipeline.planned import default_trial
from wattune.levels.pipeline.planner import plan_pipeline
from wattune.physics.gpu_model import GpuModel
from wattune.plans.plan import Plan, WorkGraph
from wattune.plans.shape import PipelineShape
from wattune.plans.stage_profile import StageProfile
from wattune_bench.result import Goal, Row, at_most

MEGATRON, PERSEUS, NANOBATCHING, KAREUS = "megatron", "megatron+perseus", "nanobatching+perseus", "kareus"

STAGE_LAYERS = (15, 13)
MICROBATCHES = 8
BLOCKING_POWER_W = 85.0
GPU = "a100-40gb"

GOAL_PERCENT = 15.0


@dataclass(frozen=True, slots=True)
class Gains:
    """Published gains over Megatron+Perseus: energy at equal time and time at equal energy; None: not comparable."""

    energy_percent: float | None
    time_percent: float | None


@dataclass(frozen=True, slots=True)
class KernelConfiguration:
    """A model in a layout, and what was published about it."""

    model: str
    cp: int
    tp: int
    microbatch_size: int
    sequence: int
    published: Mapping[str, Measurement]
    """Fastest iteration of each system."""
    gains: Mapping[str, Gains]

    @property
    def layout(self) -> ParallelLayout:
        return ParallelLayout(cp=self.cp, tp=self.tp, pp=len(STAGE_LAYERS))

    @property
    def name(self) -> str:
        parallel = f"CP{self.cp}TP{self.tp}" if self.cp > 1 else f"TP{self.tp}"
        return f"{self.model} {parallel} {self.microbatch_size}x{self.sequence}"

    def partitioned(self, nanobatches: int = 2) -> PartitionedModel:
        """Derive its partitions; one nanobatch is plain Megatron."""
        return partition_model(
            self.model,
            self.layout,
            microbatch_size=self.microbatch_size,
            sequence=self.sequence,
            nanobatches=nanobatches,
            stage_layers=STAGE_LAYERS,
        )


Cell = tuple[float | None, float | None]


def _configuration(
    model: str,
    shape: tuple[int, int, int, int],
    costs: tuple[tuple[float, float], tuple[float, float], tuple[float, float]],
    nanobatching: Cell,
    kareus: Cell,
) -> KernelConfiguration:
    published = {
        system: Measurement(*cost) for system, cost in zip((PERSEUS, NANOBATCHING, KAREUS), costs, strict=True)
    }
    return KernelConfiguration(model, *shape, published, {NANOBATCHING: Gains(*nanobatching), KAREUS: Gains(*kareus)})


_LLAMA, _QWEN = "llama3.2-3b", "qwen3-1.7b"

CONFIGURATIONS = tuple(
    _configuration(*values)
    for values in (
        (_LLAMA, (1, 8, 8, 4096), ((5.113, 2814), (4.627, 2632), (4.409, 2823)), (19.8, 17.8), (14.0, 10.4)),
        (_LLAMA, (2, 4, 8, 4096), ((4.205, 2556), (4.275, 2516), (3.984, 2529)), (None, None), (10.6, None)),
        (_LLAMA, (2, 4, 8, 8192), ((9.053, 5173), (8.680, 5443), (8.227, 5214)), (3.8, 11.6), (12.4, 15.3)),
        (_LLAMA, (2, 4, 16, 4096), ((7.981, 4633), (7.777, 4841), (7.389, 4650)), (2.3, None), (6.8, None)),
        (_QWEN, (1, 8, 8, 4096), ((3.314, 1705), (3.025, 1610), (2.766, 1617)), (18.9, 19.4), (19.1, 23.9)),
        (_QWEN, (1, 8, 8, 8192), ((6.955, 3690), (6.246, 3499), (5.710, 3862)), (20.0, 21.1), (9.9, 5.7)),
        (_QWEN, (1, 8, 16, 4096), ((6.257, 3344), (5.548, 3117), (5.182, 3377)), (21.2, 21.5), (17.9, 17.5)),
        (_QWEN, (2, 4, 8, 4096), ((2.836, 1549), (3.206, 1532), (2.779, 1544)), (None, None), (4.6, 6.6)),
        (_QWEN, (2, 4, 8, 8192), ((5.835, 3321), (5.725, 3285), (5.160, 3388)), (1.1, 3.5), (13.1, 13.6)),
        (_QWEN, (2, 4, 16, 4096), ((5.275, 2999), (5.043, 2959), (4.618, 3001)), (10.8, 11.5), (16.4, 14.4)),
    )
)


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """Reductions that were measured, not predicted, on the first configuration."""

    time_percent: float
    energy_percent: float


MEASURED: Mapping[str, MeasuredGain] = {
    PERSEUS: MeasuredGain(-0.06, 8.61),
    NANOBATCHING: MeasuredGain(7.87, 8.75),
    KAREUS: MeasuredGain(13.70, 14.23),
}
"""Llama 3.2 3B, TP8, 8 × 4096, against Megatron at default clocks."""
MEASURED_GAINS: Mapping[str, Gains] = {NANOBATCHING: Gains(16.23, 12.05), KAREUS: Gains(23.08, 18.90)}


@cache
def iteration_graph() -> WorkGraph:
    """Return the schedule of all ten."""
    return PipelineShape("1f1b", len(STAGE_LAYERS), MICROBATCHES).graph


def system_profile(configuration: KernelConfiguration, system: str, gpu: GpuModel) -> StageProfile:
    """Make the stage profile of a system without a search: Megatron, or nanobatches with default overlap."""
    if system == NANOBATCHING:
        return stage_profile_of(configuration.partitioned(), gpu, at_first_slot())
    return stage_profile_of(configuration.partitioned(nanobatches=1), gpu, sequentially())


def iteration_frontier(profile: StageProfile, *, points: int | None = None) -> Frontier[Plan]:
    """Plan the iteration from a profile of its stages."""
    return plan_pipeline(iteration_graph(), profile.options, blocking_power_w=BLOCKING_POWER_W, points=points)


def configuration_rows(gpu: GpuModel, configurations: Iterable[KernelConfiguration] = CONFIGURATIONS) -> list[Row]:
    """Compute the fastest iterations without a search: Megatron, with Perseus, and nanobatching with Perseus."""
    rows = []
    for configuration in configurations:
        plain = system_profile(configuration, MEGATRON, gpu)
        overlapped = system_profile(configuration, NANOBATCHING, gpu)
        default = default_trial(iteration_graph(), plain, blocking_power_w=BLOCKING_POWER_W).cost
        perseus, nanobatching = (iteration_frontier(each, points=2).fastest.cost for each in (plain, overlapped))
        for system, cost in ((MEGATRON, default), (PERSEUS, perseus), (NANOBATCHING, nanobatching)):
            rows.append(configuration_row(configuration, system, cost, reference=perseus))
    return rows


def configuration_row(
    configuration: KernelConfiguration, system: str, cost: Measurement, *, reference: Measurement
) -> Row:
    """Make the row of a system; reductions are against Megatron+Perseus, simulated and published."""
    published = configuration.published.get(system)
    base = configuration.published[PERSEUS]
    return {
        "config": configuration.name,
        "system": system,
        "time_s": cost.time_s,
        "energy_j": cost.energy_j,
        "published_time_s": published.time_s if published else None,
        "published_energy_j": published.energy_j if published else None,
        "time_off_percent": 100 * (cost.time_s / published.time_s - 1) if published else None,
        "energy_off_percent": 100 * (cost.energy_j / published.energy_j - 1) if published else None,
        "time_reduction_percent": 100 * (1 - cost.time_s / reference.time_s),
        "published_time_reduction_percent": 100 * (1 - published.time_s / base.time_s) if published else None,
        "simulated": True,
    }


def truth_goals(rows: Iterable[Row]) -> list[Goal]:
    """State whether Megatron+Perseus is met on all configurations, and the signs of nanobatching."""
    rows = list(rows)
    perseus = [row for row in rows if row["system"] == PERSEUS]
    worst = {what: max(abs(row[f"{what}_off_percent"]) for row in perseus) for what in ("time", "energy")}
    nanobatching = [row for row in rows if row["system"] == NANOBATCHING]
    wrong = sum(row["time_reduction_percent"] * row["published_time_reduction_percent"] < 0 for row in nanobatching)
    return [
        at_most("Megatron+Perseus: largest error of time (simulated)", worst["time"], GOAL_PERCENT, unit=" %"),
        at_most("Megatron+Perseus: largest error of energy (simulated)", worst["energy"], GOAL_PERCENT, unit=" %"),
        at_most("nanobatching: effects on time of the wrong sign (simulated)", wrong, 0),
    ]
