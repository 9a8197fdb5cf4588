"""All strategies within one slowdown limit: the plan of each, as planned and as played, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.layer.costs import LayerCosts
from wattune.levels.layer.planner import INTENSITY, STRATEGIES, RooflineTimes, plan_layers
from wattune.levels.layer.switching import SwitchCost
from wattune.levels.layer.verdict import Played, SwitchingVerdict, judge, mean_played
from wattune.plans.plan import Plan

_EXACT = 1e-9


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
    """What every strategy makes of the layers of a network on a GPU."""

    costs: LayerCosts
    scope: str
    """The pass that is planned, or a whole step."""
    verdict: SwitchingVerdict
    strategies: tuple[StrategyPlans, ...]

    @property
    def default(self) -> Measurement:
        return self.costs.default

    @property
    def single_setting(self) -> Setting:
        """The best single setting within the limit."""
        return self.verdict.single.choice.choices[0].setting

    def of(self, name: str) -> StrategyPlans:
        return next(plans for plans in self.strategies if plans.name == name)

    def slowdown(self, cost: Measurement) -> float:
        """Return the share of the default's time that a cost takes longer."""
        return cost.time_s / self.default.time_s - 1.0

    def saving_over_single(self, cost: Measurement) -> float:
        """Return the share of the best single setting's energy that a cost saves."""
        return 1.0 - cost.energy_j / self.verdict.single.cost.energy_j


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
    frontiers: dict[str, Frontier[Plan]] = {}
    for name in STRATEGIES:
        if name == INTENSITY and roofline is None:
            continue
        if on_step is not None:
            on_step(f"planning by {name}")
        frontiers[name] = plan_layers(costs, switching, name, roofline=roofline)
    verdict = judge(costs, switching, frontiers, slowdown=slowdown, spread=spread, roofline=roofline, on_step=on_step)

    def within(name: str) -> Played | None:
        match name:
            case "single":
                return Played(verdict.single, verdict.single.cost)
            case "segments":
                return verdict.segments
            case "ideal":
                return Played(verdict.ideal, verdict.ideal.cost)
        try:
            trial = frontiers[name].within(costs.default.time_s * (1.0 + slowdown) * (1.0 + _EXACT))
        except Infeasible:
            return None
        return Played(trial, mean_played(costs, trial, switching, spread))

    plans = tuple(StrategyPlans(name, frontier, within(name)) for name, frontier in frontiers.items())
    return LayerComparison(costs=costs, scope=scope, verdict=verdict, strategies=plans)


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
