"""Whether per-layer clocks pay on a GPU: against its default, against the best single setting, and from which latency.

A plan counts with what it costs when it is played: latencies scatter (`playback`), so a plan can be slower than it was
meant to be. The plan of a slowdown limit is the one of least energy that keeps the limit when it is played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan
from wattune.levels.layer.costs import LayerCosts
from wattune.levels.layer.planner import IDEAL, SEGMENTS, SINGLE, RooflineTimes, plan_layers
from wattune.levels.layer.playback import play
from wattune.levels.layer.switching import SwitchCost, switches_of

WORTH = 0.01
"""Share of the default's energy that switching must save beyond the best single setting before it pays."""

LATENCIES_S = (0.1e-3, 0.3e-3, 1e-3, 3e-3, 10e-3, 30e-3, 100e-3)
"""Latencies at which the planner is asked whether switching would pay."""

_SEEDS = 3
_EASINGS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.045)
"""Shares of the default's time by which a plan is made faster, one after another, until it keeps the limit."""

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
class Verdict:
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
) -> Verdict:
    """Judge the frontiers of the strategies `single`, `segments` and `ideal` within a slowdown limit."""
    limit_s = costs.default.time_s * (1.0 + slowdown)
    single = frontiers[SINGLE].within(limit_s * (1 + _EXACT))
    played = within_when_played(costs, frontiers[SEGMENTS], switching, limit_s=limit_s, spread=spread)
    # When latencies scatter, a plan that changes clocks can spend more than the best one that does not.
    segments = min(Played(single, single.cost), played, key=lambda plan: plan.cost.energy_j)

    def pays_at(latency_s: float) -> bool:
        if on_step is not None:
            on_step(f"planning for a switching latency of {1000 * latency_s:g} ms")
        other = switching.at(latency_s)
        frontier = plan_layers(costs, other, SEGMENTS, roofline=roofline, points=_QUICK_POINTS)
        return _pays(within_when_played(costs, frontier, other, limit_s=limit_s, spread=spread), single, costs.default)

    return Verdict(
        default=costs.default,
        slowdown=slowdown,
        single=single,
        segments=segments,
        ideal=frontiers[IDEAL].within(limit_s * (1 + _EXACT)),
        switching=switching,
        pays_below_s=_last_that(pays_at),
    )


def within_when_played(
    costs: LayerCosts, frontier: Frontier[Plan], switching: SwitchCost, *, limit_s: float, spread: float
) -> Played:
    """Return the plan of least energy that keeps the limit when it is played; at last, one that never switches."""
    for easing in _EASINGS:
        try:
            trial = frontier.within(limit_s * (1 + _EXACT) - easing * costs.default.time_s)
        except Infeasible:
            break
        cost = mean_played(costs, trial, switching, spread)
        if cost.time_s <= limit_s * (1 + 1e-6):
            return Played(trial, cost)
    single = plan_layers(costs, switching, SINGLE).within(limit_s * (1 + _EXACT))
    return Played(single, single.cost)


def mean_played(costs: LayerCosts, trial: Trial[Plan], switching: SwitchCost, spread: float) -> Measurement:
    """Return the mean cost of a step of a plan when latencies scatter by `spread`."""
    if not switches_of(trial.choice):
        return trial.cost
    played = [play(costs, trial.choice, switching, spread=spread, seed=seed) for seed in range(_SEEDS)]
    return Measurement(sum(cost.time_s for cost in played) / _SEEDS, sum(cost.energy_j for cost in played) / _SEEDS)


def _pays(segments: Played, single: Trial[Plan], default: Measurement) -> bool:
    return single.cost.energy_j - segments.cost.energy_j >= WORTH * default.energy_j


def _last_that(pays_at: Callable[[float], bool]) -> float | None:
    """Return the longest latency at which switching pays, by bisection: a longer one never pays more."""
    low, high = -1, len(LATENCIES_S)
    while high - low > 1:
        middle = (low + high) // 2
        if pays_at(LATENCIES_S[middle]):
            low = middle
        else:
            high = middle
    return LATENCIES_S[low] if low >= 0 else None
