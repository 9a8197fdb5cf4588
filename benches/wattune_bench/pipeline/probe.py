"""One solver on one pipeline, in a process of its own: `python -m wattune_bench.pipeline.probe SOLVER < task`.

The task and the answer are JSON. Both solvers get the same profile and the same graph; what is timed is the way from
there to all plans, without imports and reading, in CPU seconds of all threads, so that other work on the machine does
not count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wattune.plans.plan import WorkGraph
from wattune.plans.stage_profile import StageProfile, parse_stage_profile

UNIT_S = 0.001
"""The unit of time that lowtime's Perseus example takes where none is given."""

NOISE = 0.95
"""The noise factor of the same example, used where an instruction keeps three options or fewer."""

Found = tuple[float, list[dict[str, Any]]]


def main(solver: str) -> None:
    """Solve the task on standard input and print the answer."""
    task = json.load(sys.stdin)
    profile = parse_stage_profile(task["profile"], file=task["name"])
    graph = profile.shape(task["schedule"], task["microbatches"]).graph
    solve_s, plans = SOLVERS[solver](graph, profile, task)
    print(json.dumps({"solve_s": solve_s, "peak_mb": _peak_mb(), "plans": plans}))


def _peak_mb() -> float | None:
    """The most memory that this process ever held; None where the system does not tell.

    `getrusage` would do elsewhere, but on Linux a process starts with the peak of the one that started it.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return None if peak is None else int(peak.split()[1]) / 1024


def solve_wattune(graph: WorkGraph, profile: StageProfile, task: dict[str, Any]) -> Found:
    """The time of one run, and its plans."""
    from wattune.levels.pipeline.planner import plan_pipeline

    start_s = time.process_time()
    frontier = plan_pipeline(
        graph,
        profile.options,
        blocking_power_w=task["blocking_power_w"],
        points=task["points"],
        times_s=task["times_s"],
    )
    solve_s = time.process_time() - start_s
    places = {(kind, trial.choice): place for kind, own in profile.options.items() for place, trial in enumerate(own)}
    kinds = [operation.kind for operation in graph.operations]
    plans = [
        {
            "time_s": trial.cost.time_s,
            "energy_j": trial.cost.energy_j,
            "bound_j": trial.choice.bound_j,
            "options": [places[own] for own in zip(kinds, trial.choice.choices, strict=True)],
        }
        for trial in frontier
    ]
    return solve_s, plans


def solve_lowtime(graph: WorkGraph, profile: StageProfile, task: dict[str, Any]) -> Found:
    """The time of one run, and every plan that it went through, as its own Perseus example sets it up."""
    import networkx as nx
    from lowtime.graph_utils import add_sink_node, add_source_node
    from lowtime.operation import Operation
    from lowtime.solver import PhillipsDessouky

    start_s = time.process_time()
    used = {operation.kind for operation in graph.operations}
    specs = {kind: _spec(profile, kind, task["blocking_power_w"]) for kind in profile.options if kind in used}
    dag = nx.DiGraph()
    operations = [Operation(spec=specs[operation.kind]) for operation in graph.operations]
    for place, own in enumerate(operations):
        dag.add_node(place + 2, op=own)
    dag.add_edges_from((before + 2, place + 2) for before, place in _needed(graph))
    add_source_node(dag, 0)
    add_sink_node(dag, 1)
    dag.graph["source_node"], dag.graph["sink_node"] = 0, 1
    waiting_w = len({operation.rank for operation in graph.operations}) * task["blocking_power_w"]
    plans = [
        {
            "time_s": result.real_time,
            "energy_j": result.cost + waiting_w * result.real_time,
            "options": [own.assigned_knob for own in operations],
        }
        for result in PhillipsDessouky(dag).run()
    ]
    return time.process_time() - start_s, plans


def _spec(profile: StageProfile, kind: str, blocking_power_w: float) -> Any:
    from lowtime.cost_model import ExponentialModel
    from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec

    options = [
        ExecutionOption(trial.cost.time_s, UNIT_S, trial.cost.energy_j, place)
        for place, trial in enumerate(profile.options[kind])
    ]
    for option in options:
        option.cost -= blocking_power_w * option.quant_time * option.unit_time
    kept = CandidateExecutionOptions(options=options)
    if len(kept.options) <= 3:
        kept = CandidateExecutionOptions(options=options, noise_factor=NOISE)
    return OperationSpec(options=kept, cost_model=ExponentialModel(kept, search_strategy="best"))


def _needed(graph: WorkGraph) -> Iterator[tuple[int, int]]:
    """Pairs of operations of which the second waits for the first, without those that follow from a rank's order."""
    last: dict[int, int] = {}
    for place, (operation, before) in enumerate(zip(graph.operations, graph.predecessors, strict=True)):
        previous = last.get(operation.rank)
        yield from ((o, place) for o in before if o == previous or graph.operations[o].rank != operation.rank)
        last[operation.rank] = place


SOLVERS: dict[str, Callable[[WorkGraph, StageProfile, dict[str, Any]], Found]] = {
    "wattune": solve_wattune,
    "lowtime": solve_lowtime,
}


if __name__ == "__main__":
    main(sys.argv[1])
