"""Our search of all partitions of a model together: what counts is the frontier of the instructions they compose to.

Every partition is first searched by itself, in turns, each with the residuals that the others have shown so far. From
then on expected costs are composed to plans, clock by clock, and the settings that the fewest sufficient plans are made
of are measured, until all of them are. So a setting that no plan would use costs no measurement, and every clock that a
plan would use is measured in all partitions.

The prior is a roofline without contention: computation and collective alone, the longer of both where they overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattune.core.frontier import History
from wattune.levels.kernel.partition.partitions import NONE, KernelPartition
from wattune.levels.kernel.partition.physics_search import PhysicsSearch
from wattune.levels.kernel.partition.search import Floats, PartitionSpace, Places, observed
from wattune.levels.kernel.partition.space import PartitionChoice
from wattune.levels.kernel.partition.surrogate import OtherResiduals, coordinates
from wattune.levels.kernel.schedules import BACKWARD, FORWARD
from wattune.physics.gpu_model import GpuModel
from wattune.physics.overlap import communication_cost, compute_cost
from wattune.search.hypervolume import front_places

_MOST_SHARED = 120
"""Residuals of other partitions that a search takes into account, the latest ones."""

_OVERLAP_W_SHARE = 0.7
"""Share of the power of a waiting GPU that overlapping saves, in the prior."""

EXACT = np.ones(3)
"""Factors of computation, collective and energy of a prior that is taken as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class JointPart:
    """A partition, its space with a prior, and what was measured."""

    partition: KernelPartition
    space: PartitionSpace[PartitionChoice]
    history: History[PartitionChoice] = ()

    @property
    def residuals(self) -> OtherResiduals:
        """Logarithms of measured over expected costs."""
        seen = observed(self.space, self.history)
        assert self.space.prior is not None
        return OtherResiduals(coordinates(self.space)[seen.places], seen.logs - np.log(self.space.prior[seen.places]))


@dataclass(frozen=True, slots=True, eq=False)
class ComposedPlans:
    """Settings of all partitions at a common clock, a row per plan."""

    costs: Floats
    """(plans, 2): seconds and joules of a layer."""
    places: Places
    """(plans, partitions): of the settings in their spaces; −1 where a partition does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSearch:
    """Proposes settings of all partitions; what it proposes follows from the histories and the seed."""

    seed: int
    first: int = 4
    """Measurements of a partition that are chosen by what is known least."""
    batch: int = 1
    """Measurements of a partition between two compositions."""
    tested: int = 40
    """Measurements of a partition up to which settings beside those of the fastest plans are tested."""
    covered: float = 0.003
    """ε of the plans that are measured to all expected plans."""

    def propose(self, parts: Sequence[JointPart]) -> tuple[tuple[PartitionChoice, ...], ...]:
        """Return the settings to measure next of every partition; all empty when the plans are measured."""
        if min(len(part.history) for part in parts) < self.first:
            return tuple(self.searcher(part, parts).propose(part.space, part.history) for part in parts)
        expected = [self.expected(part, parts) for part in parts]
        wanted: list[Counter[int]] = [Counter() for _ in parts]
        for direction in (FORWARD, BACKWARD):
            plans = composed_plans(parts, direction, expected)
            for row in sufficient(plans.costs, self.covered):
                for own, place in zip(wanted, plans.places[row].tolist(), strict=True):
                    own[place] += 1
        fresh = tuple(self._fresh(part, own) for part, own in zip(parts, wanted, strict=True))
        return fresh if any(fresh) else self._neighbours(parts, expected)

    def _neighbours(
        self, parts: Sequence[JointPart], expected: Sequence[Floats]
    ) -> tuple[tuple[PartitionChoice, ...], ...]:
        """Return settings next to those of the fastest plans: what is expected there is tested where it counts most."""
        used: list[set[int]] = [set() for _ in parts]
        for direction in (FORWARD, BACKWARD):
            plans = composed_plans(parts, direction, expected)
            for own, place in zip(used, plans.places[int(np.argmin(plans.costs[:, 0]))].tolist(), strict=True):
                own.add(place)
        return tuple(
            tuple(choice for place in own if place >= 0 for choice in _unmeasured_beside(part, place))[: self.batch]
            if len(part.history) < self.tested
            else ()
            for part, own in zip(parts, used, strict=True)
        )

    def _fresh(self, part: JointPart, wanted: Counter[int]) -> tuple[PartitionChoice, ...]:
        known = {part.space.place[trial.choice] for trial in part.history}
        fresh = [place for place, _ in wanted.most_common() if place >= 0 and place not in known]
        return tuple(part.space.choices[place] for place in fresh[: self.batch])

    def expected(self, part: JointPart, parts: Sequence[JointPart]) -> Floats:
        """(settings, 2): measured cost where there is one, expected cost elsewhere."""
        seen = observed(part.space, part.history)
        logs = self.searcher(part, parts).surrogate(part.space, seen).logs.copy()
        logs[seen.places] = seen.logs
        return np.asarray(np.exp(logs))

    def searcher(self, part: JointPart, parts: Sequence[JointPart]) -> PhysicsSearch:
        """Return the search of one partition, with what the others have shown."""
        width = coordinates(part.space).shape[1]
        shared = [other.residuals for other in parts if other is not part and other.history]
        usable = [own for own in shared if own.coordinates.shape[1] == width]
        others = None
        if usable:
            rows = max(_MOST_SHARED // len(usable), 1)
            others = OtherResiduals(
                np.concatenate([own.coordinates[-rows:] for own in usable]),
                np.concatenate([own.logs[-rows:] for own in usable]),
            )
        return PhysicsSearch(
            seed=self.seed, initial=self.first, batch=self.batch, tolerance=0.002, others=others, fit_from=40
        )


def _unmeasured_beside(part: JointPart, place: int) -> list[PartitionChoice]:
    """Return the settings that differ from one in the launch, or by one step in SMs, and were not measured."""
    here = part.space.choices[place]
    counts = sorted({choice.comm_sms for choice in part.space.choices})
    at = counts.index(here.comm_sms)
    near = {counts[step] for step in (at - 1, at + 1) if 0 <= step < len(counts)}
    known = {trial.choice for trial in part.history}
    return [
        choice
        for choice in part.space.choices
        if choice.sm_mhz == here.sm_mhz
        and choice not in known
        and (
            (choice.comm_sms == here.comm_sms and choice.launch != here.launch)
            or (choice.launch == here.launch and choice.comm_sms in near)
        )
    ]


def composed_plans(parts: Sequence[JointPart], direction: str, costs: Sequence[Floats]) -> ComposedPlans:
    """Compose a layer of one direction by these costs of settings; where a cost is infinite, there is no plan."""
    clocks = [np.array([choice.sm_mhz for choice in part.space.choices]) for part in parts]
    found = []
    for clock in np.unique(clocks[0]):
        total, picks = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
        for part, own, cost in zip(parts, clocks, costs, strict=True):
            count = part.partition.per_layer(direction)
            if not count:
                picks = np.column_stack([picks, np.full(len(picks), -1)])
                continue
            at = np.flatnonzero((own == clock) & np.isfinite(cost[:, 0]))
            kept = at[front_places(cost[at])]
            sums = (total[:, None] + count * cost[kept][None]).reshape(-1, 2)
            rows = front_places(sums)
            before, added = np.divmod(rows, max(len(kept), 1))
            total, picks = sums[rows], np.column_stack([picks[before], kept[added]])
        found.append(ComposedPlans(total, picks))
    return ComposedPlans(np.concatenate([own.costs for own in found]), np.concatenate([own.places for own in found]))


def sufficient(points: Floats, tolerance: float) -> list[int]:
    """Return few rows whose ε to all points is at most the tolerance: from the fastest on, the furthest that do."""
    front = front_places(points)
    ordered, kept, at = points[front], [], 0
    while at < len(front):
        within = np.flatnonzero(ordered[:, 0] <= ordered[at, 0] * (1.0 + tolerance))
        kept.append(int(front[within[-1]]))
        done = ordered[:, 1] * (1.0 + tolerance) >= ordered[within[-1], 1]
        at = int(np.flatnonzero(done)[-1]) + 1
    return kept


def with_roofline(
    space: PartitionSpace[PartitionChoice], partition: KernelPartition, gpu: GpuModel, factors: Floats = EXACT
) -> PartitionSpace[PartitionChoice]:
    """Give a space the prior of a roofline; `factors` scale computation, collective and energy."""
    return replace(space, prior=_roofline(partition, gpu, space.choices, factors))


def _roofline(
    partition: KernelPartition, gpu: GpuModel, settings: Sequence[PartitionChoice], factors: Floats
) -> Floats:
    """(settings, 2): seconds and joules without contention."""
    column = {clock: place for place, clock in enumerate(gpu.clocks[0].sm_mhz)}
    clocks = np.array([column[setting.sm_mhz] for setting in settings])
    alone = compute_cost(gpu, partition.phases)
    compute_s, compute_j = factors[0] * np.ravel(alone.time_s)[clocks], np.ravel(alone.energy_j)[clocks]
    if partition.communication is None:
        return np.stack([compute_s, factors[2] * compute_j], axis=1)
    sms = sorted({setting.comm_sms for setting in settings})
    memory = gpu.mem_clocks_mhz[0]
    costs = [communication_cost(gpu, partition.communication, comm_sms=count, mem_mhz=memory) for count in sms]
    rows = np.array([sms.index(setting.comm_sms) for setting in settings])
    comm_s = factors[1] * np.array([np.ravel(cost.time_s) for cost in costs])[rows, clocks]
    comm_j = np.array([np.ravel(cost.energy_j) for cost in costs])[rows, clocks]
    before_s = compute_s * np.array([_before(partition, setting) for setting in settings])
    time_s = np.maximum(compute_s, before_s + comm_s)
    waiting_w = float(np.min(np.ravel(costs[0].energy_j) / np.ravel(costs[0].time_s)))
    saved_j = _OVERLAP_W_SHARE * waiting_w * (compute_s + comm_s - time_s)
    energy_j = np.maximum(compute_j + comm_j - saved_j, 0.5 * compute_j)
    return np.stack([time_s, factors[2] * energy_j], axis=1)


def _before(partition: KernelPartition, setting: PartitionChoice) -> float:
    """Return the share of operations before the launch, by arithmetic and traffic of an A100 alone."""
    if setting.launch == NONE:
        return 1.0
    weights = np.array([max(phase.flops / 2e14, phase.dram_bytes / 1.2e12) for phase in partition.phases])
    return float(weights[: partition.slots.index(setting.launch)].sum() / weights.sum())
