"""The partitions of a model searched one after another, and the stage profile that their frontiers compose to.

A partition costs what `measure` returns for a choice: a simulated GPU, or trials on ranks. Instructions are composed
exactly (`composition`): the settings of all partitions at one clock, sequential execution among them. Plain execution
without nanobatches is a further option of every instruction, so that a plan is never worse than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier, History, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.overlap.composition import UNCALIBRATED, Calibration, Part, compose
from wattune.levels.overlap.joint_plans import Remaining
from wattune.levels.overlap.joint_search import JointSearch
from wattune.levels.overlap.joint_state import JointPart
from wattune.levels.overlap.kareus_search import KareusSearch
from wattune.levels.overlap.partitions import NONE, KernelPartition, PartitionedModel
from wattune.levels.overlap.search import (
    COMM_SMS,
    LAUNCH,
    SM_MHZ,
    PartitionSpace,
    RandomSearch,
    Searcher,
    search,
)
from wattune.levels.overlap.simulated_stages import (
    INSTRUCTIONS,
    extra_cost,
    instruction_cost,
    played_cost_table,
    profile_from,
    sequentially,
)
from wattune.levels.overlap.space import PartitionChoice, choices, usual_clocks_mhz
from wattune.levels.overlap.stream_terms import stream_terms
from wattune.physics.gpu_model import GpuModel
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import kind_of
from wattune.plans.stage_profile import KNOB_ORDER, StageProfile

Measure = Callable[[KernelPartition, PartitionChoice], Measurement]
OnPartition = Callable[[str, int, int], None]
"""Called with a partition, the trials so far and the budget."""

SEARCHES = ("wattune", "kareus", "random")

NOT_CALIBRATED: Mapping[str, Calibration] = MappingProxyType({})
NO_OTHERS: Mapping[str, Sequence[Trial[StageChoice]]] = MappingProxyType({})

_LARGE, _MIDDLE, _SMALL = (96, 32, 4), (48, 16, 4), (36, 16, 3)
"""Random choices, batch and batches that Kareus spends on a partition."""

_BUDGETS = {
    **dict.fromkeys(("fwd_qkv_ar", "fwd_qkv_ag", "bwd_qkv_ar", "bwd_qkv_rs"), _MIDDLE),
    **dict.fromkeys(("fwd_ao_ar", "fwd_ao_ag", "bwd_o_ar", "bwd_o_ag", "bwd_a_rs", "bwd_a_ag"), _SMALL),
}
"""Those of partitions that are not large."""


@dataclass(frozen=True, slots=True)
class SearchedPartition:
    """A partition and all its trials."""

    partition: KernelPartition
    history: History[PartitionChoice]

    @property
    def frontier(self) -> Frontier[PartitionChoice]:
        return Frontier.of(self.history)


def space_of(
    partition: KernelPartition,
    gpu: GpuModel,
    *,
    clocks_mhz: Sequence[int] | None = None,
    comm_sms: Sequence[int] | None = None,
) -> PartitionSpace[PartitionChoice]:
    """Make the space of all settings of a partition, with launches as places in the computation."""
    every = choices(partition, gpu, clocks_mhz=clocks_mhz, comm_sms=comm_sms)
    rows = [(_launch_place(partition, choice), choice.comm_sms, choice.sm_mhz) for choice in every]
    return PartitionSpace(every, np.array(rows, dtype=np.float64), (LAUNCH, COMM_SMS, SM_MHZ))


def _launch_place(partition: KernelPartition, choice: PartitionChoice) -> int:
    return -1 if choice.launch == NONE else partition.slots.index(choice.launch)


def searcher_named(name: str, partition: str, *, seed: int) -> Searcher:
    """Return a published search, or a random one, by name for a partition."""
    match name:
        case "kareus":
            initial, batch, batches = _BUDGETS.get(partition, _LARGE)
            return KareusSearch(seed=seed, initial=initial, batch=batch, batches=batches)
        case "random":
            return RandomSearch(seed=seed)
    raise InputError(f"there is no search {name!r}", hint=f"there are {', '.join(SEARCHES)}")


def search_model(
    model: PartitionedModel,
    gpu: GpuModel,
    measure: Measure,
    *,
    search_name: str = "wattune",
    budget: int | None = None,
    seed: int = 0,
    enough: float = 0.005,
    waiting_w: float | None = None,
    known: Mapping[str, History[PartitionChoice]] | None = None,
    on_partition: OnPartition | None = None,
) -> tuple[SearchedPartition, ...]:
    """Search every partition; `budget` is the largest number of trials of each, `known` are trials to go on from.

    `enough` is the ε of the composed plans that ours aims at, and `waiting_w` the power of a GPU that waits for others:
    if not given, that of one that is idle with a context.
    """
    trials = _PartitionTrials(measure, budget, known or {}, on_partition)
    if search_name == "wattune":
        rule = JointSearch.within(enough, seed=seed, waiting_w=idle_w(gpu) if waiting_w is None else waiting_w)
        return _with_a_clock(trials.jointly(model, gpu, rule), measure)
    found = [
        trials.alone(partition, gpu, searcher_named(search_name, partition.name, seed=seed))
        for partition in model.partitions
    ]
    return completed(found, measure)


@dataclass(frozen=True, slots=True)
class _PartitionTrials:
    measure: Measure
    budget: int | None
    known: Mapping[str, History[PartitionChoice]]
    on_partition: OnPartition | None

    def alone(self, partition: KernelPartition, gpu: GpuModel, searcher: Searcher) -> SearchedPartition:
        """Search one partition by itself."""
        space = space_of(partition, gpu)
        most = self._most(space)
        history = search(
            space,
            searcher,
            lambda choice: self.measure(partition, choice),
            budget=most,
            history=self.known.get(partition.name, ()),
            until=lambda history: self._note(partition, history, most),
        )
        return SearchedPartition(partition, history)

    def jointly(self, model: PartitionedModel, gpu: GpuModel, rule: JointSearch) -> list[SearchedPartition]:
        """Search all partitions in turns, until the plans that they compose to are measured."""
        parts = [joint_part(own, gpu, self.known.get(own.name, ()), most=self.budget) for own in model.partitions]
        while any(proposed := rule.propose(parts)):
            spent = sum(len(part.history) for part in parts)
            parts = [self._measured(part, own) for part, own in zip(parts, proposed, strict=True)]
            if sum(len(part.history) for part in parts) == spent:
                break  # the budget of every partition that lacks something is spent
        return [SearchedPartition(part.partition, part.history) for part in parts]

    def _measured(self, part: JointPart, proposed: tuple[PartitionChoice, ...]) -> JointPart:
        most = self._most(part.space)
        history = part.history
        for choice in proposed[: max(most - len(history), 0)]:
            history = (*history, Trial(choice, self.measure(part.partition, choice)))
            self._note(part.partition, history, most)
        return replace(part, history=history)

    def _most(self, space: PartitionSpace[PartitionChoice]) -> int:
        return min(self.budget or len(space), len(space))

    def _note(self, partition: KernelPartition, history: History[PartitionChoice], most: int) -> bool:
        if self.on_partition is not None:
            self.on_partition(partition.name, len(history), most)
        return False


def joint_part(
    partition: KernelPartition, gpu: GpuModel, history: History[PartitionChoice], *, most: int | None = None
) -> JointPart:
    """Make a partition with its trials ready for our search."""
    space = space_of(partition, gpu)
    return JointPart(partition, space, stream_terms(partition, gpu, space.choices), history, most)


def expected_remaining(searched: Sequence[SearchedPartition], gpu: GpuModel, *, seed: int = 0) -> Remaining | None:
    """Expect what the plans composed of these trials lack; None where a trial is none that our search would make."""
    parts = [joint_part(own.partition, gpu, own.history) for own in searched]
    if any(trial.choice not in part.space.place for part in parts for trial in part.history):
        return None
    return JointSearch(seed=seed).remaining(parts)


def idle_w(gpu: GpuModel) -> float:
    """Return the power of a GPU that holds a context and runs nothing, at its highest clock."""
    return round(float(gpu.context_idle_w(np.array([float(gpu.max_mhz)]), None)[0]), 1)


def _with_a_clock(searched: Sequence[SearchedPartition], measure: Measure) -> tuple[SearchedPartition, ...]:
    """Complete the clocks where the budget ended the search before any clock was measured in all partitions."""
    shared = set.intersection(*({trial.choice.sm_mhz for trial in own.history} for own in searched))
    return tuple(searched) if shared else completed(searched, measure)


def completed(
    searched: Sequence[SearchedPartition], measure: Measure, *, clocks_mhz: Sequence[int] = ()
) -> tuple[SearchedPartition, ...]:
    """Measure each partition at clocks that it lacks, by default those of others, with its best setting nearby.

    Instructions are composed clock by clock, so a clock that one partition lacks would be lost for all.
    """
    clocks = clocks_mhz or sorted({trial.choice.sm_mhz for own in searched for trial in own.history})
    found = []
    for own in searched:
        missing = sorted(set(clocks) - {trial.choice.sm_mhz for trial in own.history})
        best = own.frontier.trials
        more = []
        for clock in missing:
            near = _nearest(best, clock)
            choice = replace(near.choice, sm_mhz=clock)
            more.append(Trial(choice, measure(own.partition, choice)))
        found.append(replace(own, history=(*own.history, *more)))
    return tuple(found)


def _nearest(trials: Sequence[Trial[PartitionChoice]], sm_mhz: int) -> Trial[PartitionChoice]:
    return min(trials, key=lambda trial: abs(trial.choice.sm_mhz - sm_mhz))


def simulated_measure(gpu: GpuModel) -> Measure:
    """Return the cost of partitions inside of a model on a simulated GPU, each partition tabulated once."""
    tables: dict[str, dict[PartitionChoice, Measurement]] = {}

    def measure(partition: KernelPartition, choice: PartitionChoice) -> Measurement:
        if partition.name not in tables:
            every = choices(partition, gpu)
            cost = played_cost_table(partition, gpu, every)
            pairs = zip(every, cost.time_s.tolist(), cost.energy_j.tolist(), strict=True)
            tables[partition.name] = {own: Measurement(time_s, energy_j) for own, time_s, energy_j in pairs}
        return tables[partition.name][choice]

    return measure


def computed_partitions(model: PartitionedModel, gpu: GpuModel) -> tuple[SearchedPartition, ...]:
    """Compute every setting of every partition on a simulated GPU, which takes less time than a search."""
    measure = simulated_measure(gpu)
    return tuple(
        SearchedPartition(own, tuple(Trial(choice, measure(own, choice)) for choice in choices(own, gpu)))
        for own in model.partitions
    )


def searched_profile(
    model: PartitionedModel,
    gpu: GpuModel,
    searched: Sequence[SearchedPartition],
    *,
    plain: PartitionedModel | None = None,
    calibrations: Mapping[str, Calibration] = NOT_CALIBRATED,
    others: Mapping[str, Sequence[Trial[StageChoice]]] = NO_OTHERS,
) -> StageProfile:
    """Compose the frontier of every instruction of every stage; `plain` is the same model without nanobatches.

    `calibrations` are factors by instruction, `others` further options by kind.
    """
    by_name = {own.partition.name: own for own in searched}
    options = {}
    for stage in range(model.stages):
        for instruction in INSTRUCTIONS:
            factor = calibrations.get(instruction, UNCALIBRATED)
            trials = _composed_trials(model, gpu, by_name, stage, instruction, factor)
            if plain is not None:
                trials += _plain_trials(plain, gpu, stage, instruction)
            trials += others.get(kind_of(stage, instruction), ())
            options[kind_of(stage, instruction)] = tuple(_cheapest_of_each(trials))
    return profile_from(options, name=f"{model.name} on {gpu.name} (simulated)", stages=model.stages)


def _composed_trials(
    model: PartitionedModel,
    gpu: GpuModel,
    searched: Mapping[str, SearchedPartition],
    stage: int,
    instruction: str,
    calibration: Calibration,
) -> list[Trial[StageChoice]]:
    counts = dict(sorted(model.counts(stage, instruction).items(), key=lambda own: _knob_place(own[0])))
    clocks = set.intersection(*({t.choice.sm_mhz for t in searched[name].history} for name in counts))
    parts = [
        Part(name, tuple(trial for trial in searched[name].history if trial.choice.sm_mhz in clocks), count)
        for name, count in counts.items()
    ]
    frontier = compose(parts, lambda choice: choice.sm_mhz, calibration=calibration)
    used = sorted({trial.choice.sm_mhz for trial in frontier})
    extra = extra_cost(model.extra(stage, instruction), gpu, used)
    more = {clock: Measurement(t, e) for clock, t, e in zip(used, extra.time_s, extra.energy_j, strict=True)}
    found = []
    for trial in frontier:
        cost = trial.cost + more[trial.choice.sm_mhz]
        if cost.power_w <= gpu.default_limit_w:
            knobs = tuple((name, own.text) for name, own in zip(counts, trial.choice.choices, strict=True))
            found.append(Trial(StageChoice(Setting(trial.choice.sm_mhz), knobs), replace(cost, time_error_s=None)))
    if not found:
        raise InputError(
            f"stage {stage} exceeds the power limit of {gpu.name} at every clock", hint="search lower clocks as well"
        )
    return found


def _knob_place(name: str) -> int:
    return KNOB_ORDER.index(name) if name in KNOB_ORDER else len(KNOB_ORDER)


def _plain_trials(plain: PartitionedModel, gpu: GpuModel, stage: int, instruction: str) -> list[Trial[StageChoice]]:
    """Return the instruction without nanobatches, all collectives exposed, at every usual clock."""
    clocks = usual_clocks_mhz(gpu)
    cost = instruction_cost(plain, gpu, stage=stage, instruction=instruction, how=sequentially(), clocks_mhz=clocks)
    pairs = zip(clocks, cost.time_s.tolist(), cost.energy_j.tolist(), strict=True)
    return [Trial(StageChoice(Setting(clock), (("nanobatches", "1"),)), Measurement(t, e)) for clock, t, e in pairs]


def _cheapest_of_each(trials: Sequence[Trial[StageChoice]]) -> list[Trial[StageChoice]]:
    """Keep the trials that no other one of the same clock dominates."""
    found: list[Trial[StageChoice]] = []
    for setting in sorted({trial.choice.setting for trial in trials}):
        found += Frontier.of(trial for trial in trials if trial.choice.setting == setting).trials
    return found
