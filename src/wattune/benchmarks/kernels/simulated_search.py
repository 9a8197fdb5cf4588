"""Measurements until the microbatch frontiers of the ten Kareus configurations are found, on simulated partitions.

Notation
    truth   all settings of all partitions on the simulated GPU, known by exhaustion
    prior   a roofline without contention, joins or SMs lost: computation and collective alone, the longer of them where
            they overlap; its compute time, collective time and energy are wrong by factors between 0.8 and 1.2, drawn
            once per configuration and, less, per partition. It is what our search starts from; the truth is not
    ε       the larger of those of the forward and of the backward pass of a microbatch, composed of measured settings
            alone; a clock that some partition was not measured at gives no plan

Where expected costs already compose to plans that are right is reported too: a plan could be played from there on, but
its costs would be unverified. The first measurements are those of largest expected improvement; the others verify what
expected plans are made of.

All partitions are searched in turns, each with the residuals that the others have shown so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from wattune.benchmarks.kernels.configurations import CONFIGURATIONS, GPU, KernelConfiguration
from wattune.benchmarks.parallel import in_processes
from wattune.benchmarks.result import Bench, Goal, Row, at_most
from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.levels.kernel.partition_search import Floats, PartitionSpace, Places, observed
from wattune.levels.kernel.partition_space import PartitionChoice
from wattune.levels.kernel.partition_surrogate import OtherResiduals, coordinates
from wattune.levels.kernel.partitions import NONE, KernelPartition
from wattune.levels.kernel.physics_search import PhysicsSearch
from wattune.levels.kernel.schedules import BACKWARD, FORWARD
from wattune.levels.kernel.searched_model import simulated_measure, space_of
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.overlap import communication_cost, compute_cost
from wattune.search.hypervolume import epsilon, front_places

EPSILON = 0.005
TRIAL_S = 12.5
"""Of one trial of Kareus: calibration, 5 s of cooling down and 5 s of measuring."""

KAREUS_TRIALS = {1: 896, 2: 1400}
"""By the context-parallel degree."""

SHARE, MOST = 1 / 5, 0.3
"""Of the trials of Kareus: the goal, and where a search is given up."""
FIRST, BATCH, LEARNED = 4, 1, 4
COVERED, SETTLED = 0.003, 0.0025
"""ε of the plans that are verified to all expected plans: smaller than the goal, for what is expected is not exact."""
_WRONG, _OWN_WRONG = 0.2, 0.05
_MOST_SHARED = 120
_GPUS = 8

OnStep = Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Searched:
    """A partition while it is searched."""

    partition: KernelPartition
    space: PartitionSpace[PartitionChoice]
    truth: Floats
    history: History[PartitionChoice] = ()
    at_clock: dict[int, NDArray[np.bool_]] = field(init=False)
    places: Floats = field(init=False)

    def __post_init__(self) -> None:
        clocks = np.array([choice.sm_mhz for choice in self.space.choices])
        self.places = coordinates(self.space)
        self.at_clock = {int(clock): clocks == clock for clock in np.unique(clocks)}

    @property
    def residuals(self) -> OtherResiduals:
        seen = observed(self.space, self.history)
        assert self.space.prior is not None
        return OtherResiduals(self.places[seen.places], seen.logs - np.log(self.space.prior[seen.places]))


def bench_simulated_search(
    *, seeds: int = 1, on_step: OnStep | None = None, processes: int = 2, names: Sequence[str] = ()
) -> Bench:
    """Count measurements of our search on every configuration, beside those that Kareus makes."""
    say = on_step or (lambda _: None)
    chosen = [own for own in CONFIGURATIONS if not names or any(name in own.name for name in names)]
    cases = [(configuration, seed) for configuration in chosen for seed in range(seeds)]
    rows = in_processes(
        _row, cases, processes=processes, on_case=lambda done: say(f"{done} of {len(cases)} configurations")
    )
    hours = sum(float(row["gpu_hours_saved"] or 0.0) for row in rows)
    return Bench(
        bench="kernels",
        simulated=True,
        rows=tuple(rows),
        goals=tuple(_goals(rows)),
        notes=(
            "Partitions are simulated. The prior of our search is another model than the truth: no contention, no "
            "joins, constants wrong by up to 20 %.",
            "measurements counts until plans of measured settings alone are right; measurements_until_foreseen until "
            "those by expected costs are, and stay so, judged by their true costs.",
            f"GPU-hours: {_GPUS} GPUs, {TRIAL_S:g} s a trial, against the 896 or 1,400 trials of Kareus.",
        ),
        figures={"gpu_hours_saved": hours},
    )


def _goals(rows: Sequence[Row]) -> list[Goal]:
    kinds = (("measurements_until_foreseen", "by expected costs"), ("measurements", "by measured costs alone"))
    return [_goal(row, column, how) for row in rows for column, how in kinds]


def _goal(row: Row, column: str, how: str) -> Goal:
    count, theirs = row[column], row["kareus_measurements"]
    goal = at_most(
        f"measurements over those of Kareus, plans {how}, {row['configuration']}",
        None if count is None else float(count) / float(theirs),
        SHARE,
        note=f"{'not reached' if count is None else count} of {theirs}",
    )
    return replace(goal, met=False) if count is None else goal


def _row(case: tuple[KernelConfiguration, int]) -> Row:
    configuration, seed = case
    model = load_model(GPU)
    parts = _parts(configuration, model, seed)
    trials = KAREUS_TRIALS[configuration.cp]
    reached, foreseen = _search(parts, seed, budget=int(MOST * trials))
    count = _spent(parts)
    there = reached <= EPSILON
    return {
        "configuration": configuration.name,
        "search": "wattune",
        "seed": seed,
        "measurements": count if there else None,
        "measurements_until_foreseen": foreseen,
        "kareus_measurements": trials,
        "settings": sum(len(part.space) for part in parts),
        "epsilon_percent": 100.0 * reached,
        "gpu_hours_saved": (trials - count) * TRIAL_S * _GPUS / 3600.0 if there else None,
    }


def _parts(configuration: KernelConfiguration, gpu: GpuModel, seed: int) -> list[_Searched]:
    random = np.random.default_rng((seed, 7))
    common = random.uniform(1.0 - _WRONG, 1.0 + _WRONG, 3)
    measure = simulated_measure(gpu)
    found = []
    for partition in configuration.partitioned().partitions:
        space = space_of(partition, gpu)
        costs = [measure(partition, choice) for choice in space.choices]
        wrong = common * random.uniform(1.0 - _OWN_WRONG, 1.0 + _OWN_WRONG, 3)
        prior = roofline(partition, gpu, space.choices, wrong)
        truth = np.array([(cost.time_s, cost.energy_j) for cost in costs])
        found.append(_Searched(partition, PartitionSpace(space.choices, space.features, space.names, prior), truth))
    return found


def roofline(partition: KernelPartition, gpu: GpuModel, settings: Sequence[PartitionChoice], wrong: Floats) -> Floats:
    """(settings, 2): seconds and joules without contention; `wrong` scales computation, collective and energy."""
    column = {clock: place for place, clock in enumerate(gpu.clocks[0].sm_mhz)}
    clocks = np.array([column[setting.sm_mhz] for setting in settings])
    alone = compute_cost(gpu, partition.phases)
    compute_s, compute_j = wrong[0] * np.ravel(alone.time_s)[clocks], np.ravel(alone.energy_j)[clocks]
    if partition.communication is None:
        return np.stack([compute_s, wrong[2] * compute_j], axis=1)
    sms = sorted({setting.comm_sms for setting in settings})
    memory = gpu.mem_clocks_mhz[0]
    costs = [communication_cost(gpu, partition.communication, comm_sms=count, mem_mhz=memory) for count in sms]
    rows = np.array([sms.index(setting.comm_sms) for setting in settings])
    comm_s = wrong[1] * np.array([np.ravel(cost.time_s) for cost in costs])[rows, clocks]
    comm_j = np.array([np.ravel(cost.energy_j) for cost in costs])[rows, clocks]
    before_s = compute_s * np.array([_before(partition, setting) for setting in settings])
    time_s = np.maximum(compute_s, before_s + comm_s)
    waiting_w = float(np.min(np.ravel(costs[0].energy_j) / np.ravel(costs[0].time_s)))
    saved_j = 0.7 * waiting_w * (compute_s + comm_s - time_s)
    energy_j = np.maximum(compute_j + comm_j - saved_j, 0.5 * compute_j)
    return np.stack([time_s, wrong[2] * energy_j], axis=1)


def _before(partition: KernelPartition, setting: PartitionChoice) -> float:
    """Return the share of operations before the launch, by arithmetic and traffic alone."""
    if setting.launch == NONE:
        return 1.0
    weights = np.array([max(phase.flops / 2e14, phase.dram_bytes / 1.2e12) for phase in partition.phases])
    return float(weights[: partition.slots.index(setting.launch)].sum() / weights.sum())


def _search(parts: list[_Searched], seed: int, *, budget: int) -> tuple[float, int | None]:
    """Search all partitions in turns; return ε of measured settings, and measurements since which plans are right."""
    truths = {
        direction: _frontier(parts, direction, [part.truth for part in parts]) for direction in (FORWARD, BACKWARD)
    }
    reached: float = np.inf
    foreseen: int | None = None
    while reached > EPSILON and _spent(parts) < budget:
        before = _spent(parts)
        if min(len(part.history) for part in parts) >= LEARNED:
            _verify(parts, [_with_settled(part, _expected(part, parts, seed)) for part in parts])
        if _spent(parts) == before:
            for part in parts:
                _measure(part, _searcher(part, parts, seed).propose(part.space, part.history))
        expected = [_expected(part, parts, seed) for part in parts]
        right = _judged(parts, expected, truths) <= EPSILON
        foreseen = (foreseen or _spent(parts)) if right else None
        reached = _judged(parts, [_measured(part) for part in parts], truths)
    return reached, foreseen


def _spent(parts: list[_Searched]) -> int:
    return sum(len(part.history) for part in parts)


def _with_settled(part: _Searched, expected: Floats) -> Floats:
    """Make what was not measured a little worse, so that plans do not leave measured settings for equal ones."""
    costs = expected * (1.0 + SETTLED)
    places = observed(part.space, part.history).places
    costs[places] = part.truth[places]
    return costs


def _verify(parts: list[_Searched], expected: Sequence[Floats]) -> None:
    """Measure, of each partition, some of the settings that the fewest expected plans that will do are made of."""
    wanted: list[Counter[int]] = [Counter() for _ in parts]
    for direction in (FORWARD, BACKWARD):
        plans = _plans(parts, direction, expected)
        for row in _cover(plans.expected):
            for own, place in zip(wanted, plans.places[row], strict=True):
                own[int(place)] += 1
    for part, own in zip(parts, wanted, strict=True):
        known = {part.space.place[trial.choice] for trial in part.history}
        fresh = [place for place, _ in own.most_common() if place >= 0 and place not in known]
        _measure(part, [part.space.choices[place] for place in fresh[:BATCH]])


def _cover(points: Floats) -> list[int]:
    """Return few rows that cover all points: from the fastest on, each time the furthest that will do."""
    front = front_places(points)
    ordered, kept, at = points[front], [], 0
    while at < len(front):
        within = np.flatnonzero(ordered[:, 0] <= ordered[at, 0] * (1.0 + COVERED))
        kept.append(int(front[within[-1]]))
        done = ordered[:, 1] * (1.0 + COVERED) >= ordered[within[-1], 1]
        at = int(np.flatnonzero(done)[-1]) + 1
    return kept


def _searcher(part: _Searched, parts: list[_Searched], seed: int) -> PhysicsSearch:
    shared = [other.residuals for other in parts if other is not part and other.history]
    usable = [own for own in shared if own.coordinates.shape[1] == part.places.shape[1]]
    others = None
    if usable:
        # The latest measurements of all, as many as keep a search fast.
        rows = max(_MOST_SHARED // len(usable), 1)
        others = OtherResiduals(
            np.concatenate([own.coordinates[-rows:] for own in usable]),
            np.concatenate([own.logs[-rows:] for own in usable]),
        )
    return PhysicsSearch(seed=seed, initial=FIRST, batch=BATCH, tolerance=0.002, others=others, fit_from=1000)


def _measure(part: _Searched, choices: Iterable[PartitionChoice]) -> None:
    for choice in choices:
        time_s, energy_j = (float(value) for value in part.truth[part.space.place[choice]])
        part.history = (*part.history, Trial(choice, Measurement(time_s, energy_j)))


def _measured(part: _Searched) -> Floats:
    """(settings, 2): measured cost; infinite elsewhere."""
    costs = np.full_like(part.truth, np.inf)
    places = observed(part.space, part.history).places
    costs[places] = part.truth[places]
    return costs


def _expected(part: _Searched, parts: list[_Searched], seed: int) -> Floats:
    """(settings, 2): measured cost where there is one, expected cost elsewhere."""
    seen = observed(part.space, part.history)
    logs = _searcher(part, parts, seed).surrogate(part.space, seen).logs.copy()
    logs[seen.places] = seen.logs
    return np.asarray(np.exp(logs))


@dataclass(frozen=True, slots=True, eq=False)
class _Plans:
    """Settings of all partitions at a common clock, a row per plan."""

    expected: Floats
    true: Floats
    places: Places
    """(plans, partitions): of the settings; -1 where a partition has no part in it."""


def _plans(parts: list[_Searched], direction: str, costs: Sequence[Floats]) -> _Plans:
    """Compose by these costs, clock by clock."""
    every = [_plans_at(parts, direction, costs, clock) for clock in parts[0].at_clock]
    return _Plans(
        np.concatenate([own.expected for own in every]),
        np.concatenate([own.true for own in every]),
        np.concatenate([own.places for own in every]),
    )


def _plans_at(parts: list[_Searched], direction: str, costs: Sequence[Floats], clock: int) -> _Plans:
    total, true, picks = np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
    for part, cost in zip(parts, costs, strict=True):
        count = part.partition.per_layer(direction)
        if not count:
            picks = np.column_stack([picks, np.full(len(picks), -1)])
            continue
        at = np.flatnonzero(part.at_clock[clock] & np.isfinite(cost[:, 0]))
        kept = at[front_places(cost[at])]
        sums = (total[:, None] + count * cost[kept][None]).reshape(-1, 2)
        rows = front_places(sums)
        before, added = np.divmod(rows, max(len(kept), 1))
        true = true[before] + count * part.truth[kept[added]]
        total, picks = sums[rows], np.column_stack([picks[before], kept[added]])
    return _Plans(total, true, picks)


def _frontier(parts: list[_Searched], direction: str, costs: Sequence[Floats]) -> Floats:
    """Return the true frontier of plans that are composed by these costs; (points, 2)."""
    points = _plans(parts, direction, costs).true
    return np.asarray(points[front_places(points)])


def _judged(parts: list[_Searched], costs: Sequence[Floats], truths: Mapping[str, Floats]) -> float:
    return max(epsilon(_frontier(parts, direction, costs), truth) for direction, truth in truths.items())
