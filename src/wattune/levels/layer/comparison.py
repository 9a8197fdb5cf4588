"""Whether per-layer clocks pay on a GPU: all strategies within one slowdown limit, and from which latency it pays.

A plan counts with what it costs when it is played: latencies scatter, so a plan can be slower than it was meant to be.
The plan of a slowdown limit is the one of least energy that keeps the limit when it is played.

Notation: L the planned latency; a request is made L before its segment begins; it takes L·exp(σ·z) with z normal, as
the latencies of real GPUs scatter (LATEST, arXiv 2502.20075). Requests take effect one after another. Layers run at
whatever setting holds, so that a late change costs time or energy, and an early one too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.layer.costs import LayerCosts
from wattune.levels.layer.planner import IDEAL, INTENSITY, SEGMENTS, SINGLE, STRATEGIES, RooflineTimes, plan_layers
from wattune.levels.layer.switching import SwitchCost, switches_of
from wattune.plans.plan import Plan

WORTH = 0.01
"""Share of the default's energy that switching must save beyond the best single setting before it pays."""

LATENCIES_S = (0.1e-3, 0.3e-3, 1e-3, 3e-3, 10e-3, 30e-3, 100e-3)
"""Latencies at which the planner is asked whether switching would pay."""

_SEEDS = 3
_PLAYED, _MOST_SPARE = 13, 0.03
"""Plans that are played, and the share of the default's time by which the fastest of them is below the limit."""
_LONGER = 3.0
"""Dwell of steadier plans over that of the others."""

STEPS = 40
"""Steps that are played, after one that is not counted."""

_QUICK_POINTS = 20
_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Played:
    """A plan, and what it costs when latencies scatter."""

    planned: Trial[Plan]
    cost: Measurement

    @property
    def switches(self) -> int:
        return switches_of(self.planned.choice)


@dataclass(frozen=True, slots=True, eq=False)
class StrategyPlans:
    """The frontier of a strategy, and its plan of least energy within the slowdown limit."""

    name: str
    frontier: Frontier[Plan]
    within: Played | None
    """None where no plan of the strategy is within the limit."""

    @property
    def shown(self) -> Trial[Plan]:
        """The plan within the limit, or the fastest one."""
        return self.frontier.fastest if self.within is None else self.within.planned


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayerComparison:
    """What every strategy makes of the layers of a network on a GPU within a slowdown limit."""

    costs: LayerCosts
    scope: str
    """The pass that is planned, or a whole step."""
    switching: SwitchCost
    max_slowdown: float
    strategies: tuple[StrategyPlans, ...]
    pays_below_s: float | None
    """Longest of the latencies tried at which switching pays; None where it pays at none of them."""

    @property
    def default(self) -> Measurement:
        return self.costs.default

    def of(self, name: str) -> StrategyPlans:
        return next(plans for plans in self.strategies if plans.name == name)

    def kept(self, name: str) -> Played:
        """Return the plan within the limit of a strategy that always has one: single, segments or ideal."""
        within = self.of(name).within
        if within is None:
            raise ValueError(f"{name} has no plan within the limit")
        return within

    @property
    def segments(self) -> Played:
        return self.kept(SEGMENTS)

    @property
    def single(self) -> Measurement:
        return self.kept(SINGLE).cost

    @property
    def single_setting(self) -> Setting:
        """The best single setting within the limit."""
        return self.kept(SINGLE).planned.choice.choices[0].setting

    @property
    def pays(self) -> bool:
        return _pays(self.segments.cost, self.single, self.default)

    def saving(self, cost: Measurement) -> float:
        """Return the share of the default's energy that a cost saves."""
        return 1.0 - cost.energy_j / self.default.energy_j

    def slowdown(self, cost: Measurement) -> float:
        """Return the share of the default's time that a cost takes longer."""
        return cost.time_s / self.default.time_s - 1.0

    def saving_over_single(self, cost: Measurement) -> float:
        """Return the share of the best single setting's energy that a cost saves."""
        return 1.0 - cost.energy_j / self.single.energy_j


def compare_strategies(
    costs: LayerCosts,
    switching: SwitchCost,
    *,
    scope: str,
    slowdown: float,
    spread: float,
    roofline: RooflineTimes | None = None,
    on_step: Callable[[str], None] | None = None,
) -> LayerComparison:
    """Plan by every strategy and judge whether switching pays; without a roofline, not by `intensity`."""
    limit_s = costs.default.time_s * (1.0 + slowdown)
    say = on_step or (lambda _: None)
    frontiers: dict[str, Frontier[Plan]] = {}
    for name in STRATEGIES:
        if name != INTENSITY or roofline is not None:
            say(f"planning by {name}")
            frontiers[name] = plan_layers(costs, switching, name, roofline=roofline)

    def best(frontier: Frontier[Plan], switching: SwitchCost) -> Played:
        both = (frontier, steadier(costs, switching, roofline=roofline))
        return within_when_played(costs, *both, switching=switching, limit_s=limit_s, spread=spread)

    def within(name: str) -> Played | None:
        if name == SEGMENTS:
            return best(frontiers[name], switching)
        try:
            trial = frontiers[name].within(limit_s * (1 + _EXACT))
        except Infeasible:
            return None
        return Played(trial, trial.cost if name == IDEAL else mean_played(costs, trial, switching, spread))

    plans = tuple(StrategyPlans(name, frontier, within(name)) for name, frontier in frontiers.items())
    single = frontiers[SINGLE].within(limit_s * (1 + _EXACT)).cost

    def pays_at(latency_s: float) -> bool:
        say(f"planning for a switching latency of {1000 * latency_s:g} ms")
        other = switching.at(latency_s)
        frontier = plan_layers(costs, other, SEGMENTS, roofline=roofline, points=_QUICK_POINTS)
        return _pays(best(frontier, other).cost, single, costs.default)

    return LayerComparison(
        costs=costs,
        scope=scope,
        switching=switching,
        max_slowdown=slowdown,
        strategies=plans,
        pays_below_s=_last_that(pays_at),
    )


def steadier(costs: LayerCosts, switching: SwitchCost, *, roofline: RooflineTimes | None = None) -> Frontier[Plan]:
    """Return plans with longer segments, which scattered latencies disturb less."""
    longer = replace(switching, dwell=_LONGER * switching.dwell)
    return plan_layers(costs, longer, SEGMENTS, roofline=roofline, points=_QUICK_POINTS)


def within_when_played(
    costs: LayerCosts, *frontiers: Frontier[Plan], switching: SwitchCost, limit_s: float, spread: float
) -> Played:
    """Return the plan of least energy that keeps the limit when it is played; at last, one that never switches."""
    single = plan_layers(costs, switching, SINGLE).within(limit_s * (1 + _EXACT))
    best = Played(single, single.cost)
    for frontier in frontiers:
        for trial in _candidates(frontier, limit_s, costs.default.time_s):
            if trial.cost.energy_j >= best.cost.energy_j:
                continue
            cost = mean_played(costs, trial, switching, spread)
            if cost.time_s <= limit_s * (1 + 1e-6) and cost.energy_j < best.cost.energy_j:
                best = Played(trial, cost)
    return best


def _candidates(frontier: Frontier[Plan], limit_s: float, default_s: float) -> list[Trial[Plan]]:
    """Return plans up to the limit, evenly spaced in time, the cheapest first."""
    found = []
    for spare in np.linspace(0.0, _MOST_SPARE, _PLAYED):
        try:
            trial = frontier.within(limit_s * (1 + _EXACT) - spare * default_s)
        except Infeasible:
            break
        if trial not in found:
            found.append(trial)
    return found


def mean_played(costs: LayerCosts, trial: Trial[Plan], switching: SwitchCost, spread: float) -> Measurement:
    """Return the mean cost of a step of a plan when latencies scatter by `spread`."""
    if not switches_of(trial.choice):
        return trial.cost
    played = [play(costs, trial.choice, switching, spread=spread, seed=seed) for seed in range(_SEEDS)]
    return Measurement(sum(cost.time_s for cost in played) / _SEEDS, sum(cost.energy_j for cost in played) / _SEEDS)


def _pays(segments: Measurement, single: Measurement, default: Measurement) -> bool:
    return single.energy_j - segments.energy_j >= WORTH * default.energy_j


def _last_that(pays_at: Callable[[float], bool]) -> float | None:
    """Return the longest latency at which switching pays, by bisection: a longer one hardly ever pays more."""
    low, high = -1, len(LATENCIES_S)
    while high - low > 1:
        middle = (low + high) // 2
        if pays_at(LATENCIES_S[middle]):
            low = middle
        else:
            high = middle
    return LATENCIES_S[low] if low >= 0 else None


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """Neighbouring layers at one setting; times count from the start of the step."""

    setting: Setting
    first: str
    last: str
    layers: int
    start_s: float
    end_s: float


def segments_of(plan: Plan) -> tuple[PlannedSegment, ...]:
    """Return the segments of a plan in the order in which they run."""
    found: list[PlannedSegment] = []
    end_s = 0.0
    for operation, choice, duration_s in zip(plan.graph.operations, plan.choices, plan.durations_s, strict=True):
        start_s, end_s = end_s, end_s + duration_s
        if found and found[-1].setting == choice.setting:
            last = found.pop()
            found.append(
                PlannedSegment(choice.setting, last.first, operation.name, last.layers + 1, last.start_s, end_s)
            )
        else:
            found.append(PlannedSegment(choice.setting, operation.name, operation.name, 1, start_s, end_s))
    return tuple(found)


@dataclass(slots=True)
class _Clock:
    """The setting in effect and the requests on their way: (when it takes effect, setting)."""

    column: int
    coming: deque[tuple[float, int]]

    def next_s(self) -> float:
        return self.coming[0][0] if self.coming else float("inf")


def play(
    costs: LayerCosts, plan: Plan, switching: SwitchCost, *, spread: float, seed: int, steps: int = STEPS
) -> Measurement:
    """Return the mean time and energy of a step over several steps; `spread` is σ."""
    columns = [costs.settings.index(choice.setting) for choice in plan.choices]
    starts = [place for place in range(len(columns)) if columns[place] != columns[place - 1]]
    if not starts:
        return costs.plan(np.array(columns), np.zeros(len(columns))).cost
    random = np.random.default_rng(seed)
    requests = _requests(costs, columns, starts, switching)
    clock = _Clock(columns[-1], deque())
    now_s = energy_j = begin_s = begin_j = 0.0
    for step in range(steps + 1):
        if step == 1:
            begin_s, begin_j = now_s, energy_j
        for place in range(len(columns)):
            for after_s, target, latency_s in requests.get(place, ()):
                held_s = clock.coming[-1][0] if clock.coming else now_s
                asked_s = max(now_s + after_s, held_s)
                clock.coming.append((asked_s + latency_s * exp(spread * random.standard_normal()), target))
            now_s, spent_j = _run(costs, place, clock, now_s, switching)
            energy_j += spent_j
    return Measurement((now_s - begin_s) / steps, (energy_j - begin_j) / steps)


def _requests(
    costs: LayerCosts, columns: list[int], starts: list[int], switching: SwitchCost
) -> dict[int, list[tuple[float, int, float]]]:
    """Return for each layer the requests to make: seconds after its start, setting, planned latency."""
    time_s = [float(costs.time_s[place, column]) for place, column in enumerate(columns)]
    found: dict[int, list[tuple[float, int, float]]] = {}
    for start in starts:
        before, after = costs.settings[columns[start - 1]], costs.settings[columns[start]]
        latency_s = switching.change_s(before, after)
        place, left_s = start, latency_s
        while left_s > 0 and left_s > -1e-12 and (place - 1) % len(columns) != start:
            place = (place - 1) % len(columns)
            left_s -= time_s[place]
        found.setdefault(place, []).append((max(-left_s, 0.0), columns[start], latency_s))
    return {place: sorted(own) for place, own in found.items()}


def _run(costs: LayerCosts, place: int, clock: _Clock, now_s: float, switching: SwitchCost) -> tuple[float, float]:
    """Run one layer, through changes that take effect meanwhile; return the time at its end and the energy."""
    left, energy_j = 1.0, 0.0
    while True:
        full_s, full_j = float(costs.time_s[place, clock.column]), float(costs.energy_j[place, clock.column])
        until_s = clock.next_s() - now_s
        if until_s >= left * full_s:
            return now_s + left * full_s, energy_j + left * full_j
        share = max(until_s, 0.0) / full_s
        left, energy_j = left - share, energy_j + share * full_j
        at_s, target = clock.coming.popleft()
        stall_s = switching.stall_s(costs.settings[clock.column], costs.settings[target])
        clock.column = target
        now_s = max(at_s, now_s) + stall_s
        energy_j += stall_s * costs.waiting_w
