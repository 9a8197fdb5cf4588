"""Measurements until the microbatch frontiers of the ten Kareus configurations are found, on simulated partitions.

Notation
    truth   all settings of all partitions on the simulated GPU, known by exhaustion
    prior   a roofline without contention, joins or SMs lost; its compute time, collective time and energy are wrong by
            factors between 0.8 and 1.2, drawn once per configuration and, less, per partition. It is what our search
            starts from; the truth is not
    ε       the larger of those of the forward and of the backward pass of a layer, composed of measured settings alone;
            a clock that some partition was not measured at gives no plan

The search is the one that ships (`levels/kernel/partition/joint_search.py`), stopped by the bench once ε is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from wattune.benchmarks.kernels.configurations import CONFIGURATIONS, GPU, KernelConfiguration
from wattune.benchmarks.parallel import in_processes
from wattune.benchmarks.result import Goal, Row, at_most
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.kernel.partition.baselines import gpu_hours, kareus_trials
from wattune.levels.kernel.partition.joint_search import JointPart, JointSearch, composed_plans, with_roofline
from wattune.levels.kernel.partition.search import Floats, observed
from wattune.levels.kernel.partition.searched_model import simulated_measure, space_of
from wattune.levels.kernel.partition.space import PartitionChoice
from wattune.levels.kernel.schedules import BACKWARD, FORWARD
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.search.hypervolume import epsilon, front_places

EPSILON = 0.005
SHARE, MOST = 1 / 5, 0.5
"""Of the trials of Kareus: the goal, and where a search is given up."""
_WRONG, _OWN_WRONG = 0.2, 0.05
_GPUS = 8

NOTE = (
    "Partitions are simulated. The prior of our search is another model than the truth: no contention, no joins, "
    "constants wrong by up to 20 %. Only measured settings count."
)


def search_rows(*, seed: int, processes: int, on_case: Callable[[int], None]) -> list[Row]:
    """Count measurements of our search on every configuration, beside those that Kareus makes."""
    cases = [(configuration, seed) for configuration in CONFIGURATIONS]
    return in_processes(_row, cases, processes=processes, on_case=on_case)


def search_goals(rows: Sequence[Row]) -> list[Goal]:
    """Compare each configuration with a fifth of Kareus's measurements."""
    goals = []
    for row in rows:
        count, theirs = row["measurements"], row["kareus_measurements"]
        goal = at_most(
            f"measurements over those of Kareus, {row['configuration']} (simulated)",
            None if count is None else float(count) / float(theirs),
            SHARE,
            note=f"{'not reached' if count is None else count} of {theirs}",
        )
        goals.append(replace(goal, met=False) if count is None else goal)
    return goals


def _row(case: tuple[KernelConfiguration, int]) -> Row:
    configuration, seed = case
    gpu = load_model(GPU)
    parts, truth = _parts(configuration, gpu, seed)
    theirs = kareus_trials([part.partition.name for part in parts]) or 0
    reached, count = searched(parts, truth, JointSearch(seed=seed), budget=int(MOST * theirs))
    there = reached <= EPSILON
    return {
        "configuration": configuration.name,
        "search": "wattune",
        "seed": seed,
        "measurements": count if there else None,
        "kareus_measurements": theirs,
        "settings": sum(len(part.space) for part in parts),
        "epsilon_percent": 100.0 * reached,
        "gpu_hours_saved": gpu_hours(theirs - count, gpus=_GPUS) if there else None,
        "simulated": True,
    }


def _parts(configuration: KernelConfiguration, gpu: GpuModel, seed: int) -> tuple[list[JointPart], list[Floats]]:
    """Return the partitions with a prior that is wrong, and the true costs of all their settings."""
    random = np.random.default_rng((seed, 7))
    common = random.uniform(1.0 - _WRONG, 1.0 + _WRONG, 3)
    measure = simulated_measure(gpu)
    parts, truths = [], []
    for partition in configuration.partitioned().partitions:
        wrong = common * random.uniform(1.0 - _OWN_WRONG, 1.0 + _OWN_WRONG, 3)
        space = with_roofline(space_of(partition, gpu), partition, gpu, wrong)
        costs = [measure(partition, choice) for choice in space.choices]
        parts.append(JointPart(partition, space))
        truths.append(np.array([(cost.time_s, cost.energy_j) for cost in costs]))
    return parts, truths


def searched(
    parts: Sequence[JointPart], truth: Sequence[Floats], rule: JointSearch, *, budget: int
) -> tuple[float, int]:
    """Search until the plans of measured settings are right; return their ε and the measurements."""
    fronts = {direction: _frontier(parts, direction, truth) for direction in (FORWARD, BACKWARD)}
    reached, count = np.inf, 0
    while reached > EPSILON and count < budget:
        proposed = rule.propose(parts)
        if not any(proposed):
            break
        parts = [_measured(*each) for each in zip(parts, proposed, truth, strict=True)]
        count = sum(len(part.history) for part in parts)
        reached = _judged(parts, truth, fronts)
    return float(reached), count


def _measured(part: JointPart, choices: Sequence[PartitionChoice], truth: Floats) -> JointPart:
    trials = [Trial(choice, Measurement(*truth[part.space.place[choice]].tolist())) for choice in choices]
    return replace(part, history=(*part.history, *trials))


def _judged(parts: Sequence[JointPart], truth: Sequence[Floats], fronts: Mapping[str, Floats]) -> float:
    """Return ε of the plans of measured settings; infinite where there is none."""
    costs = []
    for part, own in zip(parts, truth, strict=True):
        known = np.full_like(own, np.inf)
        places = observed(part.space, part.history).places
        known[places] = own[places]
        costs.append(known)
    found = []
    for direction, front in fronts.items():
        points = _frontier(parts, direction, costs)
        found.append(epsilon(points, front) if len(points) else np.inf)
    return max(found)


def _frontier(parts: Sequence[JointPart], direction: str, costs: Sequence[Floats]) -> Floats:
    points = composed_plans(parts, direction, costs).costs
    return np.asarray(points[front_places(points)])
