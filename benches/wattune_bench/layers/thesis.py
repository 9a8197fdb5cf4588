"""Every strategy of the layer level on the networks and GPUs of the Chalmers thesis, at several switching latencies.

The thesis (Blade and Kontola, Chalmers 2025) found: full training saves nothing without taking longer; a slight
slowdown gives moderate savings; the forward pass alone does better. `ahead` requests a clock before it is needed, so
only the stall of the GPU costs time; `blocking` waits for each clock, as a program does that sets clocks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.workload import Pipe
from wattune.levels.layer.costs import FORWARD, STEP, LayerCosts, simulated_costs
from wattune.levels.layer.planner import (
    EXHAUSTIVE,
    IDEAL,
    INTENSITY,
    SEGMENTS,
    SINGLE,
    STRATEGIES,
    RooflineTimes,
    plan_layers,
)
from wattune.levels.layer.switching import SwitchCost, switches_of
from wattune.levels.layer.verdict import steadier, within_when_played
from wattune.physics.catalog import load_model
from wattune.plans.plan import Plan
from wattune.workloads.catalog import make_layers
from wattune_bench.parallel import in_processes
from wattune_bench.result import Goal, Row, at_least, at_most

MODELS, GPUS, SCOPES = ("resnet50", "vgg16"), ("a4000", "rtx2000ada-laptop"), (FORWARD, STEP)
LATENCIES_S = (0.0, 0.1e-3, 1e-3, 10e-3, 50e-3)
BATCH_SIZE = 64
AHEAD, BLOCKING = "ahead", "blocking"

SLOWDOWNS = (0.005, 0.05, 0.10)
"""Slowdown limits: no longer than the default within half a percent, slight, and larger."""

REALISTIC_S = 10e-3
"""Latency from which on a row counts as realistic: no published latency of an NVML call is shorter than some ms."""


@dataclass(frozen=True, slots=True)
class Case:
    """One network and pass on one GPU, at one latency and way of switching."""

    model: str
    gpu: str
    scope: str
    latency_s: float
    way: str


def cases(latencies_s: Sequence[float] = LATENCIES_S) -> tuple[Case, ...]:
    """Return all cases of the table; without latency both ways of switching are the same."""
    return tuple(
        Case(model, gpu, scope, latency_s, way)
        for model in MODELS
        for gpu in GPUS
        for scope in SCOPES
        for latency_s in latencies_s
        for way in ((AHEAD, BLOCKING) if latency_s else (AHEAD,))
    )


def thesis_rows(processes: int, on_case: Callable[[int], None]) -> tuple[Row, ...]:
    """Return one row per case, slowdown limit and strategy."""
    found = in_processes(_rows, cases(), processes=processes, on_case=on_case)
    return tuple(row for rows in found for row in rows)


def _rows(case: Case) -> list[Row]:
    model = load_model(case.gpu)
    workload = make_layers(case.model, batch_size=BATCH_SIZE, pipe=Pipe.FP32)
    costs = simulated_costs(model, workload).only(case.scope)
    switching = SwitchCost.of(model.spec(), model.change).at(case.latency_s)
    if case.way == BLOCKING:
        switching = switching.blocking
    roofline = RooflineTimes.of(model, workload, costs)
    frontiers = {name: plan_layers(costs, switching, name, roofline=roofline) for name in STRATEGIES}
    return [
        _row(case, costs, frontiers[name], name, switching, slowdown=slowdown, spread=model.change.sm.spread)
        for slowdown in SLOWDOWNS
        for name in STRATEGIES
    ]


def _row(
    case: Case,
    costs: LayerCosts,
    frontier: Frontier[Plan],
    strategy: str,
    switching: SwitchCost,
    *,
    slowdown: float,
    spread: float,
) -> Row:
    limit_s = costs.default.time_s * (1 + slowdown)
    trial, keeps = chosen(frontier, limit_s)
    played = None
    if strategy == SEGMENTS:
        played = within_when_played(
            costs, frontier, steadier(costs, switching), switching=switching, limit_s=limit_s, spread=spread
        )
    return {
        "model": case.model,
        "gpu": costs.gpu,
        "scope": case.scope,
        "strategy": strategy,
        "switching": case.way,
        "switch_latency_s": case.latency_s,
        "slowdown_limit_percent": 100 * slowdown,
        "energy_percent": percent(trial.cost.energy_j, costs.default.energy_j),
        "time_percent": percent(trial.cost.time_s, costs.default.time_s),
        "switches": switches_of(trial.choice),
        "within_limit": keeps,
        "bound_energy_percent": percent(trial.choice.bound_j, costs.default.energy_j) if trial.choice.bound_j else None,
        **_played(played.cost if played else None, costs.default),
        "simulated": True,
    }


def _played(cost: Measurement | None, default: Measurement) -> Row:
    """Return what a plan costs that keeps the limit when latencies scatter."""
    if cost is None:
        return {"played_energy_percent": None, "played_time_percent": None}
    return {
        "played_energy_percent": percent(cost.energy_j, default.energy_j),
        "played_time_percent": percent(cost.time_s, default.time_s),
    }


def chosen(frontier: Frontier[Plan], limit_s: float) -> tuple[Trial[Plan], bool]:
    """Return the plan of least energy within a limit and True; where none is, the fastest one and False."""
    try:
        return frontier.within(limit_s * (1 + 1e-9)), True
    except Infeasible:
        return frontier.fastest, False


def percent(value: float, reference: float) -> float:
    """Return the change against a reference."""
    return 100 * (value / reference - 1)


def thesis_goals(rows: Iterable[Row]) -> list[Goal]:
    """Compare the rows with the three findings, and `segments` with every other strategy."""
    rows = list(rows)
    return [*_findings(rows), _never_worse(rows)]


def _findings(rows: list[Row]) -> list[Goal]:
    realistic = [row for row in rows if row["switch_latency_s"] >= REALISTIC_S]

    def best(scope: str, limit: float, among: Iterable[Row], strategies: tuple[str, ...]) -> float | None:
        savings = [
            -row["energy_percent"]
            for row in among
            if row["scope"] == scope
            and row["slowdown_limit_percent"] == 100 * limit
            and row["within_limit"]
            and row["strategy"] in strategies
        ]
        return max(savings, default=None)

    published, all_real = (INTENSITY, EXHAUSTIVE), (SINGLE, INTENSITY, EXHAUSTIVE, SEGMENTS)
    free = [row for row in rows if not row["switch_latency_s"] and row["model"] == MODELS[0]]
    ahead = [
        (best(FORWARD, SLOWDOWNS[0], own, (INTENSITY,)) or 0.0) - (best(STEP, SLOWDOWNS[0], own, (INTENSITY,)) or 0.0)
        for own in (list(group) for _, group in groupby(free, key=lambda row: row["gpu"]))
    ]
    return [
        at_most(
            "finding 1: most that full training saves in equal time, per cent",
            best(STEP, SLOWDOWNS[0], realistic, published) or 0.0,
            2.0,
            note=f"intensity and exhaustive at latencies from {1000 * REALISTIC_S:g} ms on; equal means within "
            f"{100 * SLOWDOWNS[0]:g} %; segments, which asks ahead of time, saves up to "
            f"{best(STEP, SLOWDOWNS[0], realistic, (SEGMENTS,)) or 0.0:.1f} %",
        ),
        at_least(
            "finding 2: most that full training saves with 5 % slowdown, per cent",
            best(STEP, SLOWDOWNS[1], realistic, all_real),
            5.0,
        ),
        Goal(
            "finding 3: forward pass over full step, saving of intensity in equal time, points",
            min(ahead, default=None),
            "> 0",
            min(ahead, default=0.0) > 0,
            note="resnet50 with free switching; from 10 ms on the published strategies save nothing in equal time",
        ),
    ]


def _never_worse(rows: list[Row]) -> Goal:
    """Return by how much another strategy beats `segments` at worst; the ideal does not count."""
    worst = float("-inf")
    keys = ("model", "gpu", "scope", "switching", "switch_latency_s", "slowdown_limit_percent")
    for _, group in groupby(rows, key=lambda row: tuple(row[key] for key in keys)):
        own = {row["strategy"]: row for row in group}
        others = [row for name, row in own.items() if name not in (SEGMENTS, IDEAL) and row["within_limit"]]
        worst = max([worst, *(own[SEGMENTS]["energy_percent"] - row["energy_percent"] for row in others)])
    return at_most("segments above the best other strategy, worst, points of energy", worst, 1e-6)
