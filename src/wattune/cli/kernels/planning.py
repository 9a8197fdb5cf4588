"""From searched partitions to plans: the stage profile, the frontier of the pipeline, and Megatron's beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from wattune.cli.pipeline.switching import switching_of
from wattune.cli.pipeline.waiting import by_catalogue
from wattune.levels.overlap.baselines import MegatronComparison, megatron_profile
from wattune.levels.overlap.calibration import whole_options, whole_profile
from wattune.levels.overlap.partitions import PartitionedModel
from wattune.levels.overlap.searched_model import searched_profile
from wattune.levels.overlap.trial_file import layout_text
from wattune.levels.overlap.view.kernel_report import KernelReport, SearchedKernels
from wattune.levels.pipeline.planned import PlannedPipeline, Source, choose, plan_profile
from wattune.physics.gpu_model import GpuModel
from wattune.plans.stage_profile import StageProfile, stage_profile_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How to plan the pipeline of a searched model."""

    schedule: str
    microbatches: int
    blocking_power_w: float | None
    switch_latency: str | None
    deadline_s: float | None
    with_plain: bool


@dataclass(frozen=True, slots=True, eq=False)
class KernelPlans:
    """What was planned, with the profile that it came from."""

    report: KernelReport
    searched: SearchedKernels
    profile: StageProfile
    blocking_power_source: str

    @property
    def planned(self) -> PlannedPipeline:
        return self.report.planned


def plan_kernels(searched: SearchedKernels, plain: PartitionedModel, options: PlanOptions) -> KernelPlans:
    """Compose the profile of all stages and plan the pipeline beside Megatron's plans.

    Whole microbatches are computed where the partitions are. Where ranks measured these, so they must have measured
    whole microbatches; else there are none, and no comparison.
    """
    model, gpu = searched.model, searched.gpu
    whole = whole_options(model, gpu, searched.passes) if searched.measured else {}
    profile = searched_profile(
        model,
        gpu,
        searched.partitions,
        plain=plain if options.with_plain and not searched.measured else None,
        calibrations={name: own.factor for name, own in searched.calibrations.items()},
        others=whole if options.with_plain else {},
    )
    megatron_options = None
    if whole or not searched.measured:
        megatron_options = whole_profile(model, whole) if whole else megatron_profile(plain, gpu)
    baseline = {} if megatron_options is None else megatron_options.default
    profile = replace(profile, gpu=gpu.name, baseline=baseline)
    given_w = options.blocking_power_w
    waiting_w, origin = by_catalogue(gpu) if given_w is None else (given_w, "as given")
    profile.check_blocking_power(waiting_w)
    title = model_title(model, gpu)
    digest = hashlib.sha256(stage_profile_text(profile).encode()).hexdigest()
    source = Source(title, digest, simulated=True, gpu=gpu.name)
    planned = _planned(profile, options, source, waiting_w, gpu)
    planned = replace(planned, gpus_per_rank=model.layout.devices // planned.shape.ranks)
    comparison = None
    if megatron_options is not None:
        megatron = _planned(megatron_options, options, source, waiting_w, gpu)
        comparison = MegatronComparison(megatron.default, megatron.frontier, planned.frontier)
    chosen = choose(planned, deadline_s=options.deadline_s)
    return KernelPlans(KernelReport(title, chosen, searched, comparison), searched, profile, origin)


def _planned(
    profile: StageProfile, options: PlanOptions, source: Source, waiting_w: float, gpu: GpuModel
) -> PlannedPipeline:
    latency = options.switch_latency
    switching = None if latency is None else switching_of(latency=latency, gpu=gpu.name)
    shape = profile.shape(options.schedule, options.microbatches)
    return plan_profile(profile, shape, source=source, blocking_power_w=waiting_w, switching=switching)


def model_title(model: PartitionedModel, gpu: GpuModel) -> str:
    """Name a model, its sizes, its stages and its GPU in one line."""
    stages = f", {model.stages} stages" if model.stages > 1 else ""
    return f"{layout_text(model)}{stages} on {gpu.name}"
