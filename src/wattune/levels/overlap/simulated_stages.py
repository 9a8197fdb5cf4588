"""Stages of a partitioned model on a simulated GPU: costs of partitions, of instructions, and the stage profile.

An instruction runs the partitions of its layers one after another, then the work outside of layers. Partitions that
overlap are joined by waits of one stream for the other and by launches on both, which a partition measured alone does
not show; each adds `JOIN_S` during which nothing runs. Sequential execution needs one stream, so it has no joins. Where
the mean power of an instruction exceeds the limit of the GPU, it runs at the highest clock that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.overlap.partitions import NONE, ExtraWork, KernelPartition, PartitionedModel
from wattune.levels.overlap.space import PartitionChoice, check_clocks, usual_clocks_mhz
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.overlap import Cost, communication_cost, compute_cost, slot_costs
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import BACKWARD, FORWARD, kind_of
from wattune.plans.stage_profile import StageProfile

JOIN_S = 146e-6
"""How long an all-reduce on 2 A100 waited after computation on another stream (our fit of a sweep in ml-energy/kareus).
We assume that each partition that overlaps inside a model waits as long: without that nanobatches would never lose
time, and on two of ten published configurations they do."""

COMM_SMS = 20
"""SMs of collectives that nothing chooses."""

INSTRUCTIONS = (FORWARD, BACKWARD)

How = Callable[[KernelPartition, int], PartitionChoice]
"""The setting at which a partition runs at a clock."""


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Seconds and joules of settings, in their order."""

    time_s: Floats
    energy_j: Floats
    static_j: Floats

    @property
    def dynamic_j(self) -> Floats:
        return self.energy_j - self.static_j

    def times(self, count: float) -> CostTable:
        return CostTable(count * self.time_s, count * self.energy_j, count * self.static_j)

    def plus(self, other: CostTable) -> CostTable:
        return CostTable(self.time_s + other.time_s, self.energy_j + other.energy_j, self.static_j + other.static_j)


def sequentially(comm_sms: int = COMM_SMS) -> How:
    """Run every collective after its computation."""
    return lambda _, sm_mhz: PartitionChoice(sm_mhz, comm_sms, NONE)


def at_first_slot(comm_sms: int = COMM_SMS) -> How:
    """Launch every collective with the first operation: nanobatching without control."""
    return lambda part, sm_mhz: PartitionChoice(sm_mhz, comm_sms, part.launches[0] if part.launches else NONE)


def partition_cost_table(
    partition: KernelPartition,
    gpu: GpuModel,
    settings: Sequence[PartitionChoice],
    *,
    temperature_c: float | None = None,
) -> CostTable:
    """Compute every setting of a partition, repeated until the GPU is warm, or at a temperature."""
    check_clocks(gpu, sorted({setting.sm_mhz for setting in settings}))
    column = {clock: place for place, clock in enumerate(gpu.clocks[0].sm_mhz)}
    costs = _launched(partition, gpu, settings, temperature_c)
    found = np.empty((3, len(settings)))
    for place, setting in enumerate(settings):
        cost, row = costs[setting.comm_sms, setting.launch]
        at = (row, column[setting.sm_mhz])
        found[:, place] = cost.time_s[at], cost.energy_j[at], cost.static_j[at]
    return CostTable(found[0], found[1], found[2])


def _launched(
    partition: KernelPartition, gpu: GpuModel, settings: Sequence[PartitionChoice], temperature_c: float | None
) -> dict[tuple[int, str], tuple[Cost, int]]:
    """Compute the partition for every number of SMs and launch among the settings, at all clocks."""
    found: dict[tuple[int, str], tuple[Cost, int]] = {}
    for comm_sms in sorted({setting.comm_sms for setting in settings}):
        launches = sorted({setting.launch for setting in settings if setting.comm_sms == comm_sms})
        if partition.communication is None:
            alone = compute_cost(gpu, partition.phases, temperature_c=temperature_c)
            found |= {(comm_sms, launch): (_as_rows(alone), 0) for launch in launches}
            continue
        cost = slot_costs(
            gpu,
            partition.phases,
            partition.communication,
            comm_sms=comm_sms,
            launches=[_place(partition, launch) for launch in launches],
            temperature_c=temperature_c,
        )
        found |= {(comm_sms, launch): (cost, row) for row, launch in enumerate(launches)}
    return found


def _as_rows(cost: Cost) -> Cost:
    rows = (values[None] for values in (cost.time_s, cost.energy_j, cost.exposed_s, cost.static_j))
    return Cost(cost.sm_mhz, *rows)


def _place(partition: KernelPartition, launch: str) -> int | None:
    if launch == NONE:
        return None
    if launch not in partition.launches:
        raise InputError(
            f"{partition.name} cannot launch its collective at {launch!r}",
            hint=f"at {', '.join((*partition.launches, NONE))}",
        )
    return partition.slots.index(launch)


def played_cost_table(partition: KernelPartition, gpu: GpuModel, settings: Sequence[PartitionChoice]) -> CostTable:
    """Compute every setting of a partition inside of a model: where streams overlap, they are also joined."""
    joins_s = JOIN_S * np.array([not setting.sequential for setting in settings])
    clocks_mhz = np.array([setting.sm_mhz for setting in settings], dtype=np.float64)
    joins_j = joins_s * gpu.context_idle_w(clocks_mhz, None)
    return partition_cost_table(partition, gpu, settings).plus(CostTable(joins_s, joins_j, joins_j))


def extra_cost(extra: ExtraWork, gpu: GpuModel, clocks_mhz: Sequence[int], *, comm_sms: int = COMM_SMS) -> CostTable:
    """Compute the work outside of layers at these clocks."""
    found = CostTable(*(np.zeros(len(clocks_mhz)) for _ in range(3)))
    places = [gpu.clocks[0].sm_mhz.index(clock) for clock in clocks_mhz]
    costs = [compute_cost(gpu, extra.phases)] if extra.phases else []
    for communication in extra.communications:
        costs.append(communication_cost(gpu, communication, comm_sms=comm_sms, mem_mhz=gpu.default_mem_mhz))
    for cost in costs:
        found = found.plus(CostTable(cost.time_s[places], cost.energy_j[places], cost.static_j[places]))
    return found


def instruction_cost(
    model: PartitionedModel,
    gpu: GpuModel,
    *,
    stage: int,
    instruction: str,
    how: How,
    clocks_mhz: Sequence[int] | None = None,
) -> CostTable:
    """Compute an instruction at every clock, with each partition at the setting that `how` gives it."""
    clocks = usual_clocks_mhz(gpu) if clocks_mhz is None else tuple(clocks_mhz)
    total = extra_cost(model.extra(stage, instruction), gpu, clocks)
    for name, count in model.counts(stage, instruction).items():
        partition = model.partition(name)
        settings = [how(partition, clock) for clock in clocks]
        total = total.plus(played_cost_table(partition, gpu, settings).times(count))
    return limited(total, gpu)


def limited(cost: CostTable, gpu: GpuModel) -> CostTable:
    """Replace clocks at which the mean power exceeds the limit by the highest at which it does not, or the lowest."""
    held = np.flatnonzero(cost.energy_j / cost.time_s <= gpu.default_limit_w)
    highest = int(held[-1]) if len(held) else 0
    places = np.minimum(np.arange(len(cost.time_s)), highest)
    return CostTable(cost.time_s[places], cost.energy_j[places], cost.static_j[places])


def stage_profile_of(
    model: PartitionedModel, gpu: GpuModel, how: How, *, clocks_mhz: Sequence[int] | None = None
) -> StageProfile:
    """Make the profile of all stages for the pipeline planner."""
    clocks = usual_clocks_mhz(gpu) if clocks_mhz is None else tuple(clocks_mhz)
    options = {}
    for stage in range(model.stages):
        for instruction in INSTRUCTIONS:
            cost = instruction_cost(model, gpu, stage=stage, instruction=instruction, how=how, clocks_mhz=clocks)
            options[kind_of(stage, instruction)] = _trials(clocks, cost)
    return profile_from(options, name=f"{model.name} on {gpu.name} (simulated)", stages=model.stages)


def _trials(clocks_mhz: Sequence[int], cost: CostTable) -> tuple[Trial[StageChoice], ...]:
    pairs = zip(clocks_mhz, cost.time_s.tolist(), cost.energy_j.tolist(), strict=True)
    return tuple(Trial(StageChoice(Setting(clock)), Measurement(time_s, energy_j)) for clock, time_s, energy_j in pairs)


def profile_from(options: Mapping[str, tuple[Trial[StageChoice], ...]], *, name: str, stages: int) -> StageProfile:
    """Make a simulated profile of options by kind; lines are counted as if they were a file."""
    pairs = [(kind, trial.choice) for kind, trials in options.items() for trial in trials]
    lines = MappingProxyType({pair: line for line, pair in enumerate(pairs, start=2)})
    return StageProfile(name, MappingProxyType(dict(options)), lines, stages, simulated=True)
