"""Whether per-layer clocks pay on a GPU: against its default, against the best single setting, and from which latency.

A plan counts with what it costs when it is played: latencies scatter (`playback`), so a plan can be slower than it was
meant to be. The plan of a slowdown limit is the one of least energy that keeps the limit when it is played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.layer.costs import LayerCosts
from wattune.levels.layer.planner import IDEAL, SEGMENTS, SINGLE, RooflineTimes, plan_layers
from wattune.levels.layer.playback import play
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchingVerdict:
    """The best plans within a slowdown limit, and the latency from which on switching pays."""

    default: Measurement
    slowdown: float
    single: Trial[Plan]
    segments: Played
    ideal: Trial[Plan]
    switching: SwitchCost
    pays_below_s: float | None
    """Longest of the latencies tried at which switching pays; None where it pays at none of them."""

    @property
    def pays(self) -> bool:
        return _pays(self.segments, self.single, self.default)

    def saving(self, cost: Measurement) -> float:
        """Return the share of the default's energy that a cost saves."""
        return 1.0 - cost.energy_j / self.default.energy_j


def judge(
    costs: LayerCosts,
    switching: SwitchCost,
    frontiers: dict[str, Frontier[Plan]],
    *,
    slowdown: float,
    spread: float,
    roofline: RooflineTimes | None = None,
    on_step: Callable[[str], None] | None = None,
) -> SwitchingVerdict:
    """Judge the frontiers of the strategies `single`, `segments` and `ideal` within a slowdown limit."""
    limit_s = costs.default.time_s * (1.0 + slowdown)
    single = frontiers[SINGLE].within(limit_s * (1 + _EXACT))

    def best(frontier: Frontier[Plan], switching: SwitchCost) -> Played:
        both = (frontier, steadier(costs, switching, roofline=roofline))
        return within_when_played(costs, *both, switching=switching, limit_s=limit_s, spread=spread)

    def pays_at(latency_s: float) -> bool:
        if on_step is not None:
            on_step(f"planning for a switching latency of {1000 * latency_s:g} ms")
        other = switching.at(latency_s)
        frontier = plan_layers(costs, other, SEGMENTS, roofline=roofline, points=_QUICK_POINTS)
        return _pays(best(frontier, other), single, costs.default)

    return SwitchingVerdict(
        default=costs.default,
        slowdown=slowdown,
        single=single,
        segments=best(frontiers[SEGMENTS], switching),
        ideal=frontiers[IDEAL].within(limit_s * (1 + _EXACT)),
        switching=switching,
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


def _pays(segments: Played, single: Trial[Plan], default: Measurement) -> bool:
    return single.cost.energy_j - segments.cost.energy_j >= WORTH * default.energy_j


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
