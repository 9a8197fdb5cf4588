"""The time-energy frontier of one training iteration over a pipeline.

Notation: T iteration time, N ranks, P blocking power of a GPU that waits. A plan spends Σ e_i + P·Σ_ranks(T − busy)
= Σ ê_i + N·P·T with ê as in `relaxation`. The relaxed frontier is convex in T, so its value at one time and its slope
there bound every plan of another time from below; each plan carries that bound. Beyond T*, the time of least energy,
plans are both slower and more expensive; for a straggler that takes T' the best plan is the one within min(T', T*)
(Perseus, SOSP'24).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from wattune.core.errors import PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.pipeline.solver.periodic import Periodic
from wattune.levels.pipeline.solver.relaxation import Floats, Options, Relaxation, Relaxed
from wattune.levels.pipeline.solver.rounding import Rounding
from wattune.levels.pipeline.solver.steady import SteadyRounding
from wattune.plans.plan import Plan, StageChoice, WorkGraph

LARGE = 4000
"""From this number of operations on, those between fill and drain are planned by one period, and fewer times solved."""

POINTS, POINTS_OF_LARGE = 40, 20
"""Default numbers of iteration times that are solved for."""

BETWEEN = 2
"""Plans between each two of these times."""

WORTH_DIVING = 0.008
"""Share of energy above the bound from which fixing operations one after another is tried too."""

WORTH_SOLVING = 0.01
"""Share above the bound from which a mixture of two plans is not good enough, and its own time is solved for."""

DIVES = 12

SHORTEST = 1e-3
"""Share by which a relaxed plan may exceed the shortest time and still count as the shortest."""

AS_SHORT = 1e-8
"""Share by which a rounded plan may exceed it and still replace the plan that certainly achieves it."""


def plan_pipeline(
    graph: WorkGraph,
    profile: Mapping[str, Iterable[Trial[StageChoice]]],
    *,
    blocking_power_w: float,
    points: int | None = None,
    times_s: Iterable[float] = (),
) -> Frontier[Plan]:
    """Compute the frontier of plans, from the fastest to the time of least energy.

    It has a plan for each of `points` evenly spaced iteration times, ends included, and for each of `times_s` between;
    where the pipeline is not large, also a few between each two of these.
    """
    if not blocking_power_w >= 0:
        raise PlanError(f"blocking power is not negative, not {blocking_power_w} W", hint="measure a GPU that waits")
    options = options_by_kind(graph, profile, blocking_power_w)
    planner = PipelinePlanner(graph, options, blocking_power_w)
    solved = list(planner.relaxed(points, times_s))
    found = [plan for relaxed in solved for plan in planner.plans(relaxed)]
    found += [plan for slower, faster in pairwise(solved) for plan in planner.between(slower, faster)]
    return Frontier.of(found)


def options_by_kind(
    graph: WorkGraph, profile: Mapping[str, Iterable[Trial[StageChoice]]], blocking_power_w: float
) -> dict[str, Options[StageChoice]]:
    """Select the options of every kind of operation of a graph; refuse a profile that lacks one."""
    kinds = dict.fromkeys(operation.kind for operation in graph.operations)
    for kind in kinds:
        if kind not in profile:
            raise PlanError(f"the profile has nothing for {kind}", hint="profile every instruction of every stage")
    return {kind: Options.of(profile[kind], blocking_power_w=blocking_power_w, kind=kind) for kind in kinds}


def relaxation_of(graph: WorkGraph, options: Mapping[str, Options[StageChoice]]) -> Relaxation | Periodic:
    """Make the relaxed problem of a graph: where it is large by its period, if it has one."""
    periodic = Periodic.of(graph, options) if len(graph.operations) >= LARGE else None
    return periodic or Relaxation(graph, options)


def _is_above(plan: Trial[Plan], share: float) -> bool:
    return plan.cost.energy_j > (1 + share) * plan.choice.bound_j


class PipelinePlanner:
    """One graph with its options, relaxed and rounded for one time after another."""

    def __init__(self, graph: WorkGraph, options: Mapping[str, Options[StageChoice]], blocking_power_w: float) -> None:
        self._graph = graph
        self._options = [options[operation.kind] for operation in graph.operations]
        self._relaxation = relaxation_of(graph, options)
        is_small = len(graph.operations) < LARGE
        self._exact = self._relaxation if is_small and isinstance(self._relaxation, Relaxation) else None
        self._rounding = Rounding.of(graph, options)
        periodic = self._relaxation if isinstance(self._relaxation, Periodic) else None
        self._steady = SteadyRounding(graph, options, periodic.series, self._rounding) if periodic else None
        ranks = len({operation.rank for operation in graph.operations})
        self._waiting_w = ranks * blocking_power_w
        self._fastest_s = self._rounding.time_of((0,) * len(self._options))

    def relaxed(self, points: int | None, times_s: Iterable[float]) -> Iterable[Relaxed]:
        """Solve relaxed plans from the time of least energy down to the shortest."""
        points = points or (POINTS if self._exact else POINTS_OF_LARGE)
        slowest = self._relaxation.cheapest(self._waiting_w)
        spaced_s = np.linspace(slowest.time_s, self._fastest_s, points).tolist()
        between_s = [time_s for time_s in times_s if self._fastest_s < time_s < slowest.time_s]
        for time_s in sorted((*spaced_s, *between_s), reverse=True):
            yield self._relaxation.at(max(time_s, self._fastest_s))

    def plans(self, relaxed: Relaxed) -> Iterable[Trial[Plan]]:
        """Round a relaxed plan; for the shortest time also make the plan that certainly achieves it."""
        plan = self.plan(relaxed)
        yield plan
        is_shortest = relaxed.time_s <= self._fastest_s * (1 + SHORTEST)
        if is_shortest and plan.cost.time_s > self._fastest_s * (1 + AS_SHORT):
            fastest = (0,) * len(self._options)
            yield self._timed(self._rounding.reusing_slack(fastest, self._fastest_s), relaxed)

    def between(self, slower: Relaxed, faster: Relaxed) -> Iterator[Trial[Plan]]:
        """Round mixtures of two relaxed plans: in time, since the end of an iteration is convex in the durations.

        They cost a tenth of a linear programme each. Without them a deadline between two plans gets the faster one. A
        time at which a mixture is far above the bound is solved for.
        """
        if self._exact is None:
            return
        for share in np.arange(1, BETWEEN + 1) / (BETWEEN + 1):
            time_s = float((1 - share) * slower.time_s + share * faster.time_s)
            durations_s = (1 - share) * slower.durations_s + share * faster.durations_s
            plan = self._timed(self._rounding.rounded_once(durations_s, time_s), slower, faster)
            yield self.plan(self._exact.at(time_s)) if _is_above(plan, WORTH_SOLVING) else plan

    def plan(self, relaxed: Relaxed) -> Trial[Plan]:
        """Round a relaxed plan to options, with the resulting time and energy."""
        if self._steady is not None:
            time_s = max(relaxed.time_s, self._graph.makespan_s(tuple(relaxed.durations_s.tolist())))
            return self._timed(self._steady.rounded(relaxed.durations_s, time_s), relaxed)
        plan = self._timed(self._rounding.rounded(relaxed.durations_s, relaxed.time_s), relaxed)
        if self._exact and _is_above(plan, WORTH_DIVING):
            dived = self._timed(self._dive(self._exact, relaxed), relaxed)
            plan = min(plan, dived, key=lambda trial: trial.cost.energy_j - trial.choice.bound_j)
        return plan

    def bound_j(self, relaxed: Relaxed, time_s: float) -> float:
        """Compute the energy that no plan of a time falls below, from a relaxed plan of a time nearby."""
        return relaxed.effective_j + relaxed.slope_w * (time_s - relaxed.time_s) + self._waiting_w * time_s

    def flows_w(self) -> Floats:
        """Return for each operation what a second of it costs in the last relaxed plan."""
        return self._relaxation.flows_w()

    def _timed(self, choice: tuple[int, ...], *relaxed: Relaxed) -> Trial[Plan]:
        """Time a choice; its bound is the best that follows from these relaxed plans."""
        chosen = [own.trials[option] for own, option in zip(self._options, choice, strict=True)]
        time_s = self._rounding.time_of(choice)
        energy_j = self._rounding.effective_of(choice) + self._waiting_w * time_s
        bound_j = max(self.bound_j(one, time_s) for one in relaxed)
        plan = Plan(
            self._graph,
            tuple([trial.choice for trial in chosen]),
            tuple([trial.cost.time_s for trial in chosen]),
            tuple([trial.cost.energy_j for trial in chosen]),
            min(bound_j, energy_j),  # the last digits of the linear programme
        )
        return Trial(plan, Measurement(time_s, energy_j))

    def _dive(self, exact: Relaxation, relaxed: Relaxed) -> tuple[int, ...]:
        """Fix the most decided operations at their nearer corner, solve for the rest, and repeat."""
        fixed: dict[int, int] = {}
        solved = relaxed
        try:
            for _ in range(DIVES):
                undecided = [
                    found for found in self._rounding.between_corners(solved.durations_s) if found[0] not in fixed
                ]
                if not undecided:
                    break
                undecided.sort(key=lambda found: -abs(found[2] - 0.5))
                taken = undecided[: max(len(undecided) // 3, 4)]
                solved = self._fixed(exact, taken, relaxed.time_s)
                fixed |= {place: corner for place, corner, _ in taken}
            return self._rounding.reusing_slack(self._rounding.at_corners(solved.durations_s), relaxed.time_s)
        finally:
            exact.free(fixed)

    def _fixed(self, exact: Relaxation, taken: list[tuple[int, int, float]], time_s: float) -> Relaxed:
        """Solve with these operations at the nearer corner, or at the faster one where that is too slow."""
        try:
            exact.fix({place: corner + (share > 0.5) for place, corner, share in taken})
            return exact.at(time_s)
        except PlanError:
            exact.fix({place: corner for place, corner, _ in taken})
            return exact.at(time_s)
