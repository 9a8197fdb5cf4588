"""The ten configurations from search to iteration on simulated A100s: every system beside the published gains.

Each search measures partitions on the simulated GPU, its frontiers are composed to instructions, and the pipeline
planner makes the frontier of the iteration. Gains are over Megatron+Perseus: energy at the time of its fastest plan,
and time at the energy of its cheapest plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.baselines import MegatronComparison, gpu_hours
from wattune.levels.overlap.composition import compose_points
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.searched_model import search_model, searched_profile, simulated_measure
from wattune.levels.pipeline.planned import Source, default_trial, plan_profile
from wattune.physics.catalog import load_model
from wattune.plans.plan import Plan
from wattune_bench.kernels.configurations import (
    BLOCKING_POWER_W,
    CONFIGURATIONS,
    GPU,
    KAREUS,
    MEGATRON,
    NANOBATCHING,
    PERSEUS,
    KernelConfiguration,
    configuration_row,
    iteration_frontier,
    iteration_graph,
    system_profile,
)
from wattune_bench.parallel import in_processes
from wattune_bench.result import Goal, Row, at_least, at_most

WATTUNE = "wattune"
GPUS = 8
"""That measure a partition."""


@dataclass(frozen=True, slots=True)
class SearchCase:
    """One configuration to search by both rules, with one seed."""

    configuration: KernelConfiguration
    seed: int


def end_to_end_rows(*, seed: int, processes: int, on_case: Callable[[int], None]) -> list[Row]:
    """Return a row per configuration and system."""
    cases = [SearchCase(configuration, seed) for configuration in CONFIGURATIONS]
    found = in_processes(_rows, cases, processes=processes, on_case=on_case)
    return [row for rows in found for row in rows]


def _rows(case: SearchCase) -> list[Row]:
    gpu, configuration = load_model(GPU), case.configuration
    plain = system_profile(configuration, MEGATRON, gpu)
    perseus = iteration_frontier(plain)
    default = default_trial(iteration_graph(), plain, blocking_power_w=BLOCKING_POWER_W)
    nanobatching = iteration_frontier(system_profile(configuration, NANOBATCHING, gpu))
    found: list[tuple[str, Frontier[Plan], int | None]] = [(PERSEUS, perseus, None), (NANOBATCHING, nanobatching, None)]
    for name in (KAREUS, WATTUNE):
        frontier, trials = _searched(configuration, name, case.seed)
        found.append((name, frontier, trials))
    rows = [_row(configuration, MEGATRON, default.cost, None, perseus, default=default, trials=None)]
    rows += [
        _row(configuration, name, frontier.fastest.cost, frontier, perseus, default=default, trials=trials)
        for name, frontier, trials in found
    ]
    return rows


def _searched(configuration: KernelConfiguration, name: str, seed: int) -> tuple[Frontier[Plan], int]:
    """Search all partitions; Kareus has no sequential execution and no plain one to fall back to."""
    gpu, model = load_model(GPU), configuration.partitioned()
    searched = search_model(model, gpu, simulated_measure(gpu), search_name=name, seed=seed, waiting_w=BLOCKING_POWER_W)
    if name == KAREUS:
        profile = searched_profile(model, gpu, searched)
    else:
        profile = searched_profile(model, gpu, searched, plain=configuration.partitioned(nanobatches=1))
    return iteration_frontier(profile), sum(len(own.history) for own in searched)


def _row(
    configuration: KernelConfiguration,
    system: str,
    cost: Measurement,
    frontier: Frontier[Plan] | None,
    perseus: Frontier[Plan],
    *,
    default: Trial[Plan],
    trials: int | None,
) -> Row:
    published = configuration.gains.get(system)
    own = None if frontier is None else MegatronComparison(default, perseus, frontier)
    return {
        **configuration_row(configuration, system, cost, reference=perseus.fastest.cost),
        "equal_time_energy_percent": _saved(own.equal_time_energy_percent if own else None),
        "published_equal_time_energy_percent": published.energy_percent if published else None,
        "equal_energy_time_percent": _saved(own.equal_energy_time_percent if own else None),
        "published_equal_energy_time_percent": published.time_percent if published else None,
        "measurements": trials,
        "gpu_hours": None if trials is None else gpu_hours(trials, gpus=GPUS),
    }


def _saved(change_percent: float | None) -> float | None:
    return None if change_percent is None else -change_percent


def end_to_end_goals(rows: Iterable[Row]) -> list[Goal]:
    """Compare ours with Kareus's search and with plain execution on every configuration."""
    by_config: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_config.setdefault(row["config"], {})[row["system"]] = row
    over_kareus = [
        100 * (own[WATTUNE]["time_s"] / own[KAREUS]["time_s"] - 1) for own in by_config.values() if KAREUS in own
    ]
    energy_gap = [
        (own[KAREUS]["equal_time_energy_percent"] or 0.0) - (own[WATTUNE]["equal_time_energy_percent"] or 0.0)
        for own in by_config.values()
    ]
    time_gap = [
        (own[KAREUS]["equal_energy_time_percent"] or 0.0) - (own[WATTUNE]["equal_energy_time_percent"] or 0.0)
        for own in by_config.values()
    ]
    slower = [100 * (own[WATTUNE]["time_s"] / own[PERSEUS]["time_s"] - 1) for own in by_config.values()]
    shares = [own[WATTUNE]["measurements"] / own[KAREUS]["measurements"] for own in by_config.values()]
    gains = [own[WATTUNE]["equal_time_energy_percent"] or 0.0 for own in by_config.values()]
    return [
        at_most(
            "fastest plan slower than that of kareus, worst configuration (simulated)", max(over_kareus), 0.0, unit=" %"
        ),
        at_most(
            "energy saved at equal time below that of kareus, worst (simulated)", max(energy_gap), 0.0, unit=" points"
        ),
        at_most(
            "time saved at equal energy below that of kareus, worst (simulated)", max(time_gap), 0.0, unit=" points"
        ),
        at_most("fastest plan slower than sequential Megatron+Perseus, worst (simulated)", max(slower), 0.0, unit=" %"),
        at_most("measurements over those of kareus, largest share", max(shares), 0.25),
        at_least("energy saved at equal time, most (simulated)", max(gains), 15.0, unit=" %"),
    ]


def speed_rows() -> list[Row]:
    """Return the CPU time of composing 12 frontiers of 20 points, and of planning a 70B model from scratch."""
    return in_processes(_speed_row, ("compose", "plan"), processes=2, on_case=lambda _: None)


def _speed_row(what: str) -> Row:
    begin_s = time.process_time()
    points = _compose_points() if what == "compose" else _plan_points()
    return {"what": what, "cpu_s": time.process_time() - begin_s, "points": points}


def _compose_points() -> int:
    random = np.random.default_rng(5)
    parts = []
    for _ in range(12):
        time_s, energy_j = np.sort(random.uniform(1.0, 2.0, 20)), np.sort(random.uniform(50.0, 100.0, 20))[::-1]
        parts.append((np.column_stack([time_s, energy_j]), 2))
    return len(compose_points(parts))


def _plan_points() -> int:
    """Plan Llama 3.3 70B with TP8, PP8 and 64 microbatches."""
    gpu, layout = load_model("a100-80gb"), ParallelLayout(tp=8, pp=8)
    model, plain = (
        partition_model("llama3.3-70b", layout, microbatch_size=2, sequence=4096, nanobatches=count) for count in (2, 1)
    )
    profile = searched_profile(model, gpu, search_model(model, gpu, simulated_measure(gpu)), plain=plain)
    source = Source("llama3.3-70b", "", simulated=True)
    planned = plan_profile(profile, profile.shape("1f1b", 64), source=source, blocking_power_w=BLOCKING_POWER_W)
    return len(planned.frontier)


def speed_goals(rows: list[Row]) -> list[Goal]:
    """Compare both times with their goals."""
    compose_s, plan_s = (row["cpu_s"] for row in rows)
    return [
        at_most("composition of 12 frontiers of 20 points", 1000 * compose_s, 50.0, unit=" ms"),
        at_most("70B planned from scratch, CPU time (simulated)", plan_s, 120.0, unit=" s"),
    ]
