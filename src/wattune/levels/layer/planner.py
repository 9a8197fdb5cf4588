"""Strategies for the clocks of layers, each a planner that returns a frontier of plans, switching charged.

    single      one setting for all layers: the baseline that any switching has to beat
    intensity   the Chalmers thesis's rule: the clock that does not limit a layer goes down until it nearly would
    exhaustive  the Chalmers thesis's search: each layer's setting of least energy, however long a change takes
    segments    ours: the optimum over the chain of layers, with latency, stall and dwell in the choice
    ideal       the optimum if switching were free: an upper bound that no GPU reaches

Notation: λ the price of a second in watts, T and E time and energy of a step; the lower hull of all plans is found by
minimising E + λ·T at the slopes between neighbours that are known, until none is new (Cohon 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.workload import Phase, Workload
from wattune.levels.layer.costs import Floats, Ints, LayerCosts, unique_names
from wattune.levels.layer.demand import Roofline
from wattune.levels.layer.segments import Ring, SegmentSolver, resettled, undominated
from wattune.levels.layer.switching import FREE, SwitchCost, charged, charged_cost
from wattune.physics.gpu_model import GpuModel
from wattune.plans.plan import Plan

SINGLE, INTENSITY, EXHAUSTIVE, SEGMENTS, IDEAL = "single", "intensity", "exhaustive", "segments", "ideal"
STRATEGIES = (SINGLE, INTENSITY, EXHAUSTIVE, SEGMENTS, IDEAL)

POINTS, IDEAL_POINTS = 50, 400
"""Default number of plans on the hull of a frontier; without switching a plan costs nothing to find."""

_FIRST_PRICES = np.geomspace(0.05, 30.0, 14)
"""Prices to begin with, over the power of the default."""
_FASTEST_PRICE = 1e8
"""Price at which only time counts, and energy decides between equal times."""

_ROUNDS = 6
"""Rounds of new prices; each about halves the largest gap."""

_SLACKS = np.concatenate([np.linspace(0.0, 0.2, 21), np.linspace(0.25, 1.0, 16)])
"""Slowdowns of single layers that `exhaustive` allows, one plan each."""

_MARGINS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
"""How far `intensity` stays from the ridge; at the ridge itself both clocks limit a layer."""


@dataclass(frozen=True, slots=True, eq=False)
class RooflineTimes:
    """What the rule of arithmetic intensity needs: the time of arithmetic and of traffic, each alone."""

    compute_s: Floats
    """(layers, settings)"""
    memory_s: Floats
    """(layers, settings)"""

    @classmethod
    def of(cls, model: GpuModel, workload: Workload, costs: LayerCosts) -> RooflineTimes:
        """Compute the times of those layers of a workload that the costs have; a collective counts as traffic."""
        phases = dict(zip(unique_names([phase.name for phase in workload.phases]), workload.phases, strict=True))
        layers = [phases.get(name, Phase(name=name, dram_bytes=1.0)) for name in costs.names]
        rooflines = [Roofline.of(model, *clocks) for clocks in costs.clocks_mhz]
        compute_s = [[phase.flops / roofline.flops_per_s[phase.pipe] for roofline in rooflines] for phase in layers]
        memory_s = [[phase.dram_bytes / roofline.bytes_per_s for roofline in rooflines] for phase in layers]
        return cls(np.array(compute_s), np.array(memory_s))


def plan_layers(
    costs: LayerCosts,
    switching: SwitchCost,
    strategy: str,
    *,
    roofline: RooflineTimes | None = None,
    points: int = POINTS,
) -> Frontier[Plan]:
    """Return the frontier of one strategy: plans of one step with all costs of switching."""
    match strategy:
        case "single":
            return charged_frontier(costs, _singles(costs), FREE)
        case "intensity":
            if roofline is None:
                raise InputError(
                    "the rule of intensity needs the work of each layer",
                    hint="plan for a network by name, or choose another strategy for a table of measurements",
                )
            return charged_frontier(costs, _by_intensity(costs, roofline), switching)
        case "exhaustive":
            return charged_frontier(costs, _by_layer(costs), switching)
        case "segments":
            return _segments(costs, switching, roofline=roofline, points=points)
        case "ideal":
            return _ideal(costs)
    raise InputError(f"there is no strategy {strategy!r}", hint=f"there are {', '.join(STRATEGIES)}")


def charged_frontier(costs: LayerCosts, candidates: Iterable[Ints], switching: SwitchCost) -> Frontier[Plan]:
    """Return the plans, of all these settings per layer, that no other one beats when switching is charged."""
    found = list(candidates)
    costs_of = np.array([charged_cost(costs, columns, switching) for columns in found])
    kept = undominated(costs_of[:, 0], costs_of[:, 1])
    return Frontier.of(charged(costs, found[place], switching) for place in kept.tolist())


def _singles(costs: LayerCosts) -> Iterable[Ints]:
    for column in range(len(costs.settings)):
        yield np.full(len(costs.names), column)


def _by_layer(costs: LayerCosts) -> Iterable[Ints]:
    """For each slowdown that a layer may have, each layer's setting of least energy."""
    slower = costs.time_s / costs.time_s[:, :1] - 1.0
    for slack in _SLACKS:
        yield np.argmin(np.where(slower <= slack + 1e-9, costs.energy_j, np.inf), axis=1)
    yield np.argmin(costs.energy_j, axis=1)


def _by_intensity(costs: LayerCosts, roofline: RooflineTimes) -> Iterable[Ints]:
    """For each highest core clock and margin: lower the clock that does not limit a layer while it does not."""
    core = np.array([np.inf if setting.sm_mhz is None else setting.sm_mhz for setting in costs.settings])
    memory = np.array([np.inf if setting.mem_mhz is None else setting.mem_mhz for setting in costs.settings])
    for highest in np.flatnonzero(memory == memory.max()).tolist():
        compute_s, memory_s = roofline.compute_s[:, [highest]], roofline.memory_s[:, [highest]]
        keeps_core = core == core[highest]
        keeps_memory = (memory == memory.max()) & (core <= core[highest]) & (roofline.memory_s <= memory_s * 1.001)
        for margin in _MARGINS:
            # The clock that limits a layer stays; the other may fall until its time, with the margin, is as long.
            slower_memory = keeps_core & (roofline.memory_s * margin <= compute_s)
            slower_core = keeps_memory & (roofline.compute_s * margin <= memory_s)
            fits = np.where(compute_s >= memory_s, slower_memory, slower_core)
            fits[:, highest] = True
            yield np.argmin(np.where(fits, np.where(compute_s >= memory_s, memory, core), np.inf), axis=1)


def _segments(
    costs: LayerCosts, switching: SwitchCost, *, roofline: RooflineTimes | None, points: int
) -> Frontier[Plan]:
    """Return the hull of all plans, and between its corners the best of all strategies and of mixed neighbours."""
    solvers = [SegmentSolver(costs, switching, core_only=False)]
    if switching.dwell_s(changes_memory=True) > switching.dwell_s(changes_memory=False):
        solvers.append(SegmentSolver(costs, switching, core_only=True))

    def solve(prices_w: Sequence[float]) -> list[tuple[Trial[Plan], Ring]]:
        found = zip(*(solver.rings(prices_w) for solver in solvers), strict=True)
        return [_best_of(costs, switching, rings) for rings in found]

    rings = [ring for _, ring in _hull(costs, solve, points)]
    corners = [ring.columns for ring in rings]
    pool = [*corners, *_mixed(corners), *_resettled(costs, corners), *_singles(costs), *_by_layer(costs)]
    if roofline is not None:
        pool += _by_intensity(costs, roofline)
    return _bounded(charged_frontier(costs, pool, switching), rings)


def _best_of(costs: LayerCosts, switching: SwitchCost, rings: tuple[Ring, ...]) -> tuple[Trial[Plan], Ring]:
    """Return the cheapest of several rings at one price, and the bound for all of them."""
    price_w = rings[0].price_w
    pairs = [(charged(costs, ring.columns, switching), ring) for ring in rings]
    trial, ring = min(pairs, key=lambda pair: pair[0].cost.energy_j + price_w * pair[0].cost.time_s)
    return trial, replace(ring, bound=min(ring.bound for ring in rings))


def _mixed(corners: list[Ints]) -> Iterable[Ints]:
    """Yield plans between neighbours on the hull: one up to a change of setting, the other from there on."""
    for fast, slow in pairwise(corners):
        ends = np.flatnonzero((np.diff(fast) != 0) | (np.diff(slow) != 0)) + 1
        for end in ends[:: max(len(ends) // 8, 1)].tolist():
            yield np.concatenate([fast[:end], slow[end:]])
            yield np.concatenate([slow[:end], fast[end:]])


def _resettled(costs: LayerCosts, corners: list[Ints]) -> Iterable[Ints]:
    """Yield other core clocks for the segments of every corner; corners with the same segments count once."""
    seen = set()
    for columns in corners:
        segments = np.flatnonzero(columns != np.roll(columns, 1)).tobytes()
        if segments not in seen:
            seen.add(segments)
            yield from resettled(costs, columns)


def _ideal(costs: LayerCosts) -> Frontier[Plan]:
    def solve(prices_w: Sequence[float]) -> list[tuple[Trial[Plan], Ring]]:
        found = []
        for price_w in prices_w:
            value = costs.energy_j + price_w * costs.time_s
            columns = np.argmin(value, axis=1)
            ring = Ring(columns, price_w, float(value.min(axis=1).sum()))
            found.append((charged(costs, columns, FREE), ring))
        return found

    rings = [ring for _, ring in _hull(costs, solve, IDEAL_POINTS)]
    corners = [ring.columns for ring in rings]
    pool = [*corners, *_mixed(corners), *_singles(costs), *_by_layer(costs)]
    return _bounded(charged_frontier(costs, pool, FREE), rings)


Solve = Callable[[Sequence[float]], list[tuple[Trial[Plan], Ring]]]


def _hull(costs: LayerCosts, solve: Solve, points: int) -> list[tuple[Trial[Plan], Ring]]:
    """Find corners of the lower hull, fastest first: at prices to begin with, then where the gaps are largest."""
    scale_w = costs.default.power_w
    found: dict[tuple[float, float], tuple[Trial[Plan], Ring]] = {}
    prices_w = [0.0, *(_FIRST_PRICES * scale_w).tolist(), _FASTEST_PRICE * scale_w]
    tried: set[float] = set()
    for _ in range(_ROUNDS):
        tried.update(prices_w)
        known = len(found)
        for trial, ring in solve(prices_w):
            found.setdefault((trial.cost.time_s, trial.cost.energy_j), (trial, ring))
        corners = _corners(found)
        if not prices_w or len(found) == known or len(corners) >= points:
            break
        gaps = sorted(pairwise(corners), key=lambda pair: -_gap(*pair))
        slopes = [_slope(fast, slow) for fast, slow in gaps[: points - len(corners)]]
        prices_w = [slope for slope in slopes if not any(abs(slope - old) <= 1e-9 * old for old in tried)]
    return _corners(found)


def _corners(
    found: dict[tuple[float, float], tuple[Trial[Plan], Ring]],
) -> list[tuple[Trial[Plan], Ring]]:
    frontier = Frontier.of(trial for trial, _ in found.values())
    return [found[trial.cost.time_s, trial.cost.energy_j] for trial in frontier]


def _slope(fast: tuple[Trial[Plan], Ring], slow: tuple[Trial[Plan], Ring]) -> float:
    first, second = fast[0].cost, slow[0].cost
    return (first.energy_j - second.energy_j) / (second.time_s - first.time_s)


def _gap(fast: tuple[Trial[Plan], Ring], slow: tuple[Trial[Plan], Ring]) -> float:
    first, second = fast[0].cost, slow[0].cost
    return (first.energy_j - second.energy_j) * (second.time_s - first.time_s)


def _bounded(frontier: Frontier[Plan], rings: list[Ring]) -> Frontier[Plan]:
    """Give every plan its bound: max over λ of g(λ) − λ·T."""
    prices_w = np.array([ring.price_w for ring in rings])
    least = np.array([ring.bound for ring in rings])
    trials = []
    for trial in frontier:
        bound_j = max(float(np.max(least - prices_w * trial.cost.time_s)), 0.0)
        trials.append(Trial(replace(trial.choice, bound_j=min(bound_j, trial.cost.energy_j)), trial.cost))
    return Frontier(tuple(trials))
