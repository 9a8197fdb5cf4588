"""Measurements until the microbatch frontiers of the ten Kareus configurations are found, on simulated partitions.

Notation
    truth   all settings of all partitions on the simulated GPU, known by exhaustion; or the same times a smooth ripple
            of 1 % over clock, SMs and launch, which no form of ours contains
    model   what our search starts from: operations and collectives alone on a GPU whose rates and powers are all wrong
            by up to 20 %, with operations wrong by up to 10 % more, each drawn once per seed; constants of contention
            and of joins are those of the search, not of the truth
    ε       the larger of those of the forward and of the backward pass of a layer, composed of measured settings alone;
            a clock that some partition was not measured at gives no plan

The search is the one that ships (`levels/overlap/joint_search.py`), and it ends by its own rule. A row has the
measurements at which ε was reached, and at the end what the search expects to be missing beside what is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.workload import Phase
from wattune.levels.overlap.baselines import gpu_hours, kareus_trials
from wattune.levels.overlap.hypervolume import front_places
from wattune.levels.overlap.joint_plans import Remaining, composed_plans, missing
from wattune.levels.overlap.joint_search import JointSearch
from wattune.levels.overlap.joint_state import DIRECTIONS, JointPart
from wattune.levels.overlap.search import Floats, observed
from wattune.levels.overlap.searched_model import simulated_measure, space_of
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.stream_terms import stream_terms
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune_bench.kernels.configurations import CONFIGURATIONS, GPU, KernelConfiguration
from wattune_bench.parallel import in_processes
from wattune_bench.result import Goal, Row, at_most

EPSILON = 0.005
SHARE, MOST = 1 / 5, 0.5
"""Of the trials of Kareus: the goal, and where a search is given up."""
_WRONG, _OWN_WRONG = 0.2, 0.1
_GPUS = 8

_RIPPLE = 0.01
_VARIED = 2
"""Configurations that are searched with other errors of the model, and with a rippled truth, too."""
SEARCH_CASES = len(CONFIGURATIONS) + 3 * _VARIED

NOTE = (
    "Partitions are simulated. Our search starts from another model than the truth: rates and powers wrong by up to "
    "20 %, operations by 10 % more, other contention. Only measured settings count. Rows of other seeds have other "
    "errors; rippled ones have a truth that departs from the form by 1 %."
)


@dataclass(frozen=True, slots=True)
class JointCase:
    """A configuration to search, the seed of the search and of the errors of its model, and a ripple of the truth."""

    configuration: KernelConfiguration
    seed: int
    ripple: float = 0.0


def search_rows(*, seed: int, processes: int, on_case: Callable[[int], None]) -> list[Row]:
    """Count measurements of our search on every configuration, beside those that Kareus makes."""
    cases = [JointCase(configuration, seed) for configuration in CONFIGURATIONS]
    for other in CONFIGURATIONS[:_VARIED]:
        cases += [JointCase(other, seed + 1), JointCase(other, seed + 2), JointCase(other, seed, _RIPPLE)]
    return in_processes(_row, cases, processes=processes, on_case=on_case)


def search_goals(rows: Sequence[Row]) -> list[Goal]:
    """Compare each configuration with a fifth of Kareus's measurements."""
    goals = []
    for row in rows:
        count, theirs = row["measurements"], row["kareus_measurements"]
        variant = f", seed {row['seed']}" + (", rippled" if row["ripple_percent"] else "")
        goal = at_most(
            f"measurements over those of Kareus, {row['configuration']}{variant} (simulated)",
            None if count is None else float(count) / float(theirs),
            SHARE,
            note=f"{'not reached' if count is None else count} of {theirs}",
        )
        goals.append(replace(goal, met=False) if count is None else goal)
    off = [row["expected_epsilon_percent"] - row["epsilon_percent"] for row in rows]
    goals.append(at_most("true ε above the expected one at the end, worst (simulated)", -min(off), 0.2, unit=" points"))
    goals.append(
        at_most("ε at the end, worst (simulated)", max(row["epsilon_percent"] for row in rows), 0.5, unit=" %")
    )
    return goals


def _row(case: JointCase) -> Row:
    begin_s = time.process_time()
    gpu = load_model(GPU)
    parts, truth = _parts(case.configuration, gpu, case.seed, case.ripple)
    theirs = kareus_trials([part.partition.name for part in parts]) or 0
    found = searched(
        parts, truth, JointSearch.within(EPSILON, seed=case.seed, waiting_w=0.0), budget=int(MOST * theirs)
    )
    return {
        "configuration": case.configuration.name,
        "search": "wattune",
        "seed": case.seed,
        "ripple_percent": 100.0 * case.ripple,
        "measurements": found.reached,
        "kareus_measurements": theirs,
        "share_of_kareus": None if found.reached is None else found.reached / theirs,
        "gpu_hours_saved": None if found.reached is None else gpu_hours(theirs - found.reached, gpus=_GPUS),
        "settings": sum(len(part.space) for part in parts),
        "measurements_at_end": found.count,
        "epsilon_percent": 100.0 * found.true.epsilon,
        "expected_epsilon_percent": 100.0 * found.expected.epsilon,
        "missing_hypervolume_percent": 100.0 * found.true.hypervolume_share,
        "expected_missing_hypervolume_percent": 100.0 * found.expected.hypervolume_share,
        "cpu_s": time.process_time() - begin_s,
        "simulated": True,
    }


def _parts(
    configuration: KernelConfiguration, gpu: GpuModel, seed: int, ripple: float = 0.0
) -> tuple[list[JointPart], list[Floats]]:
    """Return the partitions with a model that is wrong, and the true costs of all their settings."""
    random = np.random.default_rng((seed, 7))
    wrong_gpu, wrong = _wrong_gpu(gpu, random), dict[Phase, Phase]()
    measure = simulated_measure(gpu)
    parts, truths = [], []
    for partition in configuration.partitioned().partitions:
        space = space_of(partition, gpu)
        for own in partition.operations:
            wrong.setdefault(own.phase, _wrong_phase(own.phase, random))
        operations = tuple(replace(own, phase=wrong[own.phase]) for own in partition.operations)
        terms = stream_terms(replace(partition, operations=operations), wrong_gpu, space.choices)
        costs = [measure(partition, choice) for choice in space.choices]
        parts.append(JointPart(partition, space, terms))
        true = np.array([(cost.time_s, cost.energy_j) for cost in costs])
        truths.append(true * np.exp(ripple * _rippled(space.features, random)))
    return parts, truths


def _rippled(features: Floats, random: np.random.Generator) -> Floats:
    """(settings, 2): waves of random directions and lengths over launch, SMs and clock, of unit size on the average."""
    span = np.maximum(np.ptp(features, axis=0), 1.0)
    waves = random.normal(0.0, 3.0, (features.shape[1], 8))
    turns = (features / span) @ waves + random.uniform(0.0, 2 * np.pi, 8)
    return np.asarray(np.sin(turns) @ random.normal(0.0, 0.5, (8, 2)))


def _wrong_gpu(gpu: GpuModel, random: np.random.Generator) -> GpuModel:
    """Return a GPU whose rates and powers are all wrong."""

    def off(value: float) -> float:
        return value * float(random.uniform(1.0 - _WRONG, 1.0 + _WRONG))

    assert gpu.link is not None
    memory, core, link = gpu.memory, gpu.core, gpu.link
    return replace(
        gpu,
        units=tuple(
            replace(unit, peak_flops=off(unit.peak_flops), w_per_ghz=off(unit.w_per_ghz)) for unit in gpu.units
        ),
        memory=replace(
            memory, bandwidth_bytes_per_s=off(memory.bandwidth_bytes_per_s), j_per_byte=off(memory.j_per_byte)
        ),
        core=replace(
            core,
            board_w=off(core.board_w),
            leak_w=off(core.leak_w),
            idle_clock_w_per_ghz=off(core.idle_clock_w_per_ghz),
            busy_clock_w_per_ghz=off(core.busy_clock_w_per_ghz),
        ),
        link=replace(
            link,
            bytes_per_s=off(link.bytes_per_s),
            sm_bytes_per_s=off(link.sm_bytes_per_s),
            j_per_byte=off(link.j_per_byte),
        ),
    )


def _wrong_phase(phase: Phase, random: np.random.Generator) -> Phase:
    flops, moved, activity = random.uniform(1.0 - _OWN_WRONG, 1.0 + _OWN_WRONG, 3).tolist()
    return replace(
        phase, flops=flops * phase.flops, dram_bytes=moved * phase.dram_bytes, activity=activity * phase.activity
    )


@dataclass(frozen=True, slots=True)
class JointOutcome:
    """How a search went."""

    reached: int | None
    """Measurements at which ε was reached."""
    count: int
    """Measurements at the end."""
    true: Remaining
    expected: Remaining


def searched(parts: Sequence[JointPart], truth: Sequence[Floats], rule: JointSearch, *, budget: int) -> JointOutcome:
    """Search until the rule ends, or the budget, and judge the plans of measured settings."""
    fronts = {direction: _frontier(parts, direction, truth) for direction in DIRECTIONS}
    reached, count = None, 0
    while count < budget and any(proposed := rule.propose(parts)):
        parts = [_measured(*each) for each in zip(parts, proposed, truth, strict=True)]
        count = sum(len(part.history) for part in parts)
        if reached is None and _judged(parts, truth, fronts).epsilon <= EPSILON:
            reached = count
    return JointOutcome(reached, count, _judged(parts, truth, fronts), rule.remaining(parts))


def _measured(part: JointPart, choices: Sequence[PartitionChoice], truth: Floats) -> JointPart:
    trials = [Trial(choice, Measurement(*truth[part.space.place[choice]].tolist())) for choice in choices]
    return replace(part, history=(*part.history, *trials))


def _judged(parts: Sequence[JointPart], truth: Sequence[Floats], fronts: Mapping[str, Floats]) -> Remaining:
    """Return what the plans of measured settings lack, the larger of both passes; ε is infinite where there is none."""
    costs = []
    for part, own in zip(parts, truth, strict=True):
        known = np.full_like(own, np.inf)
        places = observed(part.space, part.history).places
        known[places] = own[places]
        costs.append(known)
    found = [(_frontier(parts, direction, costs), front) for direction, front in fronts.items()]
    if not all(len(points) for points, _ in found):
        return Remaining(1.0, float("inf"))
    return Remaining(*np.max([missing(*both) for both in found], axis=0).tolist())


def _frontier(parts: Sequence[JointPart], direction: str, costs: Sequence[Floats]) -> Floats:
    points = composed_plans(parts, direction, costs).costs
    return np.asarray(points[front_places(points)])
