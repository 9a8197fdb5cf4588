"""Time and energy of a choice for every operation of a pipeline, with waiting and with the stalls of switches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.pipeline.solver.switching import ClockSwitching, new_settings
from wattune.plans.plan import Plan, StageChoice, WorkGraph


def timed(graph: WorkGraph, trials: Iterable[Trial[StageChoice]], *, blocking_power_w: float) -> Trial[Plan]:
    """Compute the time and energy of a choice for every operation of a graph, waiting included."""
    chosen = tuple(trials)
    durations_s = tuple(trial.cost.time_s for trial in chosen)
    energies_j = tuple(trial.cost.energy_j for trial in chosen)
    time_s = graph.makespan_s(durations_s)
    energy_j = sum(energies_j) + blocking_power_w * (len(graph.by_rank) * time_s - sum(durations_s))
    plan = Plan(graph, tuple(trial.choice for trial in chosen), durations_s, energies_j)
    return Trial(plan, Measurement(time_s, energy_j))


def charged(
    graph: WorkGraph,
    trials: Iterable[Trial[StageChoice]],
    switching: ClockSwitching | None,
    *,
    blocking_power_w: float,
) -> Trial[Plan]:
    """Time a choice with its stalls at blocking power: each is part of the operation whose setting is new.

    A stall follows the operation before on the rank. What of it falls into the wait for other ranks costs nothing; at
    the start of an iteration that is the wait for the first input.
    """
    chosen = list(trials)
    if switching is not None and switching.stall_s:
        for place, added_s in tuple(_stalls_s(graph, chosen, switching.stall_s)):  # before any option changes
            own = chosen[place]
            stalled = Measurement(own.cost.time_s + added_s, own.cost.energy_j + blocking_power_w * added_s)
            chosen[place] = Trial(own.choice, stalled)
    return timed(graph, chosen, blocking_power_w=blocking_power_w)


def _stalls_s(graph: WorkGraph, chosen: Sequence[Trial[StageChoice]], stall_s: float) -> Iterator[tuple[int, float]]:
    """Yield the operations that a stall delays, and by how much."""
    new = set(new_settings(graph, [trial.choice for trial in chosen]))
    ends_s, free_s = list[float](), dict[int, float]()
    for place, (operation, before) in enumerate(zip(graph.operations, graph.predecessors, strict=True)):
        ready_s = max((ends_s[other] for other in before), default=0.0)
        added_s = max(free_s.get(operation.rank, 0.0) + stall_s - ready_s, 0.0) if place in new else 0.0
        if added_s:
            yield place, added_s
        ends_s.append(ready_s + added_s + chosen[place].cost.time_s)
        free_s[operation.rank] = ends_s[-1]
