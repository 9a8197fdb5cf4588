"""What whole passes take beside the sum of their partitions, each of which was measured by itself.

Notation
    M       time or energy of a pass through some layers, as the executor runs it
    Σ       the same pass as the sum of its partitions' trials, each as often as the layers run it
    k       M/Σ, the factor by which composed passes are multiplied; the geometric mean of the passes that were measured

Kareus takes k = 1.15 for time and energy everywhere. Here forward and backward passes have factors of their own, of a
few passes: those of the fastest and of the cheapest settings that compose. Passes of whole microbatches have no sum to
be compared with: they are options of plans, at the clocks at which they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.overlap.composition import Calibration, Part, compose
from wattune.levels.overlap.partitions import PartitionedModel
from wattune.levels.overlap.searched_model import SearchedPartition
from wattune.levels.overlap.simulated_stages import INSTRUCTIONS, extra_cost, profile_from
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import PassChoice, PassTrial
from wattune.physics.gpu_model import GpuModel
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import FORWARD, kind_of
from wattune.plans.stage_profile import PLAIN, StageProfile

WHOLE_CLOCKS = 5
"""Clocks at which whole microbatches are measured, spread over those of the partitions."""


@dataclass(frozen=True, slots=True)
class PassCalibration:
    """The factor of an instruction, and of how many passes it is the mean."""

    factor: Calibration
    passes: int


def passes_to_measure(searched: Sequence[SearchedPartition], gpu: GpuModel) -> tuple[PassChoice, ...]:
    """Return the passes to calibrate with: the fastest and the cheapest settings, then whole microbatches.

    Whole microbatches at the highest clock are what plans are compared with.
    """
    found: list[PassChoice] = []
    for instruction in INSTRUCTIONS:
        parts = [
            Part(own.partition.name, own.history, own.partition.per_layer(instruction))
            for own in searched
            if own.partition.per_layer(instruction)
        ]
        frontier = compose(_at_common_clocks(parts), lambda choice: choice.sm_mhz)
        for trial in dict.fromkeys((frontier.fastest, frontier.cheapest)):
            settings = {part.name: own.text for part, own in zip(parts, trial.choice.choices, strict=True)}
            found.append(PassChoice(instruction, trial.choice.sm_mhz, settings))
        clocks = sorted({gpu.max_mhz, *(trial.choice.sm_mhz for part in parts for trial in part.trials)})
        found += [PassChoice(instruction, clock, {}) for clock in _spread(clocks, WHOLE_CLOCKS)]
    return tuple(found)


def _at_common_clocks(parts: Sequence[Part[PartitionChoice]]) -> list[Part[PartitionChoice]]:
    clocks = set.intersection(*({trial.choice.sm_mhz for trial in part.trials} for part in parts))
    if not clocks:
        raise InputError("the partitions were measured at no common clock", hint="measure all of them at one clock")
    return [
        Part(part.name, tuple(trial for trial in part.trials if trial.choice.sm_mhz in clocks), part.count)
        for part in parts
    ]


def _spread(clocks: Sequence[int], count: int) -> tuple[int, ...]:
    """Return about evenly spread clocks, the highest and the lowest among them."""
    if len(clocks) <= count:
        return tuple(clocks)
    return tuple(clocks[round(place * (len(clocks) - 1) / (count - 1))] for place in range(count))


def calibrations(
    model: PartitionedModel, searched: Sequence[SearchedPartition], passes: Sequence[PassTrial]
) -> dict[str, PassCalibration]:
    """Return the factor of each instruction that was measured as a whole; a pass with unknown partitions is left out.

    A backward pass counts for models that recompute as it did.
    """
    ratios: dict[str, list[tuple[float, float]]] = {}
    for own in passes:
        instruction = own.choice.instruction
        composed = _composed(model, searched, own)
        if composed is not None and (instruction == FORWARD or own.recompute == model.recompute):
            ratio = own.cost.time_s / composed.time_s, own.cost.energy_j / composed.energy_j
            ratios.setdefault(instruction, []).append(ratio)
    return {
        instruction: PassCalibration(Calibration(*map(_geometric_mean, zip(*found, strict=True))), len(found))
        for instruction, found in ratios.items()
    }


def _composed(model: PartitionedModel, searched: Sequence[SearchedPartition], own: PassTrial) -> Measurement | None:
    """Return the sum of the partitions of a pass; None for a whole microbatch, and where one was not measured."""
    costs = {(part.partition.name, trial.choice): trial.cost for part in searched for trial in part.history}
    time_s = energy_j = 0.0
    for name, choice in own.choice.choices.items():
        cost = costs.get((name, choice))
        if cost is None:
            return None
        runs = own.layers * model.partition(name).per_layer(own.choice.instruction)
        time_s, energy_j = time_s + runs * cost.time_s, energy_j + runs * cost.energy_j
    return Measurement(time_s, energy_j) if time_s else None


def _geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def whole_options(
    model: PartitionedModel, gpu: GpuModel, passes: Sequence[PassTrial]
) -> dict[str, tuple[Trial[StageChoice], ...]]:
    """Return measured whole microbatches as options of the instructions of every stage, by kind; none where one lacks.

    The work outside of layers is computed for the GPU.
    """
    found = {}
    for stage in range(model.stages):
        for instruction in INSTRUCTIONS:
            own = [trial for trial in passes if _is_whole(trial, instruction, model)]
            if not own:
                return {}
            found[kind_of(stage, instruction)] = tuple(_option(model, gpu, trial, stage) for trial in own)
    return found


def _is_whole(trial: PassTrial, instruction: str, model: PartitionedModel) -> bool:
    fits = instruction == FORWARD or trial.recompute == model.recompute
    return trial.choice.instruction == instruction and not trial.choice.settings and fits


def _option(model: PartitionedModel, gpu: GpuModel, own: PassTrial, stage: int) -> Trial[StageChoice]:
    clock = own.choice.sm_mhz
    extra = extra_cost(model.extra(stage, own.choice.instruction), gpu, [clock])
    layers = own.cost / (own.layers / model.stage_layers[stage])
    total = Measurement(layers.time_s + float(extra.time_s[0]), layers.energy_j + float(extra.energy_j[0]))
    return Trial(StageChoice(Setting(clock), (PLAIN,)), total)


def whole_profile(model: PartitionedModel, options: Mapping[str, tuple[Trial[StageChoice], ...]]) -> StageProfile:
    """Make the profile of a model whose microbatches are never split."""
    return profile_from(options, name=f"{model.name} without nanobatches", stages=model.stages)
