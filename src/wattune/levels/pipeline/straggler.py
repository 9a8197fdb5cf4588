"""Choose a plan while another, slower pipeline makes this one wait (Perseus, SOSP'24).

Notation: T' the time of the straggler, T* the time of least energy. All pipelines synchronise after an iteration, so
ending before T' gains nothing: T_opt = min(T', T*), and the rest until T' is spent waiting at blocking power. The
frontier ends at T*, so the plan is `frontier.within(T')`: a new straggler needs no new solve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wattune.core.errors import Infeasible
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.pipeline.planned import PlannedPipeline
from wattune.levels.pipeline.solver.relaxation import Options, Relaxation
from wattune.levels.pipeline.solver.rounding import Rounding
from wattune.plans.plan import Plan, StageChoice, WorkGraph


@dataclass(frozen=True, slots=True)
class StragglerAnswer:
    """The plan for a straggler, and the energy with it and at default, both with the wait at the end."""

    straggler_time_s: float
    trial: Trial[Plan]
    wait_s: float
    """From the end of the plan to the straggler's."""
    energy_j: float
    default_energy_j: float

    @property
    def saving_percent(self) -> float:
        return 100 * (1 - self.energy_j / self.default_energy_j)


def answer_straggler(planned: PlannedPipeline, straggler_time_s: float) -> StragglerAnswer:
    """Choose the plan while another pipeline takes `straggler_time_s`."""
    default, trial = planned.default.cost, planned.frontier.within(straggler_time_s)
    wait_s = straggler_time_s - trial.cost.time_s
    return StragglerAnswer(
        straggler_time_s,
        trial,
        wait_s,
        trial.cost.energy_j + planned.waiting_w * wait_s,
        default.energy_j + planned.waiting_w * max(straggler_time_s - default.time_s, 0.0),
    )


def answer_slowdown(planned: PlannedPipeline, factor: float) -> StragglerAnswer:
    """Choose the plan while a straggler takes `factor` times as long as this pipeline at default settings."""
    if not factor >= 1:
        raise Infeasible(f"a straggler is slower than the others, not {factor:g} times as slow", hint="try 1.2")
    fastest_s = planned.frontier.fastest.cost.time_s
    return answer_straggler(planned, max(factor * planned.default.cost.time_s, fastest_s))


Profile = Mapping[str, Sequence[Trial[StageChoice]]]
Plans = Frontier[Plan]

CLOSE = 1 + 1e-9

MOST_SOLVED = 500
"""Up to this number of operations one more solve is worth its time: 0.1 s on one core."""


def best_time_s(graph: WorkGraph, profile: Profile, slowdowns: Sequence[float]) -> float:
    """Compute the shortest iteration time where ranks are this much slower than profiled."""
    fastest_s = {kind: min(trial.cost.time_s for trial in trials) for kind, trials in profile.items()}
    return graph.makespan_s(tuple(slowdowns[each.rank] * fastest_s[each.kind] for each in graph.operations))


def answered(
    graph: WorkGraph,
    plans: Plans,
    profile: Profile,
    *,
    slowdowns: Sequence[float],
    deadline_s: float,
    blocking_power_w: float,
) -> Plan:
    """Choose the plan of least energy for these slowdowns; its durations are as profiled, without them."""
    slower = _slowed(graph, profile, slowdowns)
    options = {kind: Options.of(slower[kind], blocking_power_w=blocking_power_w, kind=kind) for kind in slower}
    rounding = Rounding.of(graph, options)
    choices = [_places(graph, options, trial.choice.choices) for trial in plans]
    found = [rounding.reusing_slack(way, deadline_s) for way in _ways(graph, rounding, choices, slowdowns, deadline_s)]
    if len(graph.operations) <= MOST_SOLVED:
        relaxed = Relaxation(graph, options).at(deadline_s * CLOSE)
        found.append(rounding.rounded(relaxed.durations_s, deadline_s))
    best = min(found, key=rounding.effective_of)
    chosen = [options[each.kind].trials[place].choice for each, place in zip(graph.operations, best, strict=True)]
    return _as_profiled(graph, profile, chosen)


def _slowed(graph: WorkGraph, profile: Profile, slowdowns: Sequence[float]) -> Profile:
    factors = {operation.kind: slowdowns[operation.rank] for operation in graph.operations}
    return {kind: [_times(trial, factor) for trial in profile[kind]] for kind, factor in factors.items()}


def _times(trial: Trial[StageChoice], factor: float) -> Trial[StageChoice]:
    return Trial(trial.choice, Measurement(trial.cost.time_s * factor, trial.cost.energy_j * factor))


def _places(
    graph: WorkGraph, options: Mapping[str, Options[StageChoice]], choices: Sequence[StageChoice]
) -> tuple[int, ...]:
    """The places of the choices among the options; the next faster option replaces one that was discarded."""
    place = {kind: {trial.choice: number for number, trial in enumerate(own.trials)} for kind, own in options.items()}
    fastest_first = {kind: [trial.choice for trial in own.trials] for kind, own in options.items()}
    found = []
    for operation, choice in zip(graph.operations, choices, strict=True):
        known = place[operation.kind].get(choice)
        if known is None:
            known = sum(other.setting >= choice.setting for other in fastest_first[operation.kind]) - 1
        found.append(max(known, 0))
    return tuple(found)


def _ways(
    graph: WorkGraph,
    rounding: Rounding,
    choices: list[tuple[int, ...]],
    slowdowns: Sequence[float],
    deadline_s: float,
) -> Iterator[tuple[int, ...]]:
    """Choices that meet the deadline: the slowest plan, the slowest with slow ranks at full speed, or all fastest."""
    usual_s = min(slowdowns)
    slow = [slowdowns[operation.rank] > usual_s for operation in graph.operations]
    full_speed = [tuple(0 if late else place for late, place in zip(slow, choice, strict=True)) for choice in choices]
    ways = 0
    for plans in (choices, full_speed):
        for choice in reversed(plans):
            if rounding.time_of(choice) <= deadline_s * CLOSE:
                ways += 1
                yield choice
                break
    if not ways:
        yield (0,) * len(graph.operations)


def _as_profiled(graph: WorkGraph, profile: Profile, chosen: Sequence[StageChoice]) -> Plan:
    costs = {(kind, trial.choice): trial.cost for kind, trials in profile.items() for trial in trials}
    own = [costs[operation.kind, choice] for operation, choice in zip(graph.operations, chosen, strict=True)]
    return Plan(graph, tuple(chosen), tuple(cost.time_s for cost in own), tuple(cost.energy_j for cost in own))
