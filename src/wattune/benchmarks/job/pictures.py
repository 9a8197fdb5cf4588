"""The page of the bench of recurring jobs: what each policy paid, and the true map of each job's costs."""

from __future__ import annotations

from wattune.benchmarks.datasets.zeus_tables import SOURCE
from wattune.benchmarks.job.bench import JobPlayed
from wattune.benchmarks.job.case import Case, Played
from wattune.benchmarks.job.trace import TraceWorkload
from wattune.benchmarks.result import Bench
from wattune.core.job import JobChoice
from wattune.levels.job.view.bench_page import BenchCase, GoalRow, JobBenchReport
from wattune.levels.job.view.cost_map import CostMap, cost_map
from wattune.levels.job.view.curves import PolicyCurve, PolicyCurves


def pictured(played: JobPlayed, bench: Bench, *, made: str) -> JobBenchReport:
    """The report of what was played over the horizon."""
    cases: dict[tuple[str, str], list[tuple[Case, Played]]] = {}
    for case, outcome in played.outcomes:
        if case.section == "horizon" and case.policy != "oracle":
            cases.setdefault((case.workload.gpu.name, case.workload.name), []).append((case, outcome))
    return JobBenchReport(
        source=SOURCE,
        cases=tuple(BenchCase(_curves(some), _map(some[0][0].workload)) for some in cases.values()),
        goals=tuple(GoalRow(goal.name, goal.value, goal.goal, goal.met) for goal in bench.goals),
        made=made,
    )


def _curves(some: list[tuple[Case, Played]]) -> PolicyCurves:
    (case, first), *_ = some
    return PolicyCurves(
        workload=case.workload.name,
        gpu=case.workload.gpu.name,
        simulated=case.workload.gpu.simulated,
        curves=tuple(PolicyCurve(case.policy, outcome.costs) for case, outcome in some),
        oracle=first.oracle,
    )


def _map(workload: TraceWorkload) -> CostMap:
    choices = [JobChoice(size, setting) for size in workload.job.batch_sizes for setting in workload.epochs[size]]
    expected = {choice: cost for choice in choices if (cost := workload.expected(choice)) is not None}
    never = {size for size in workload.job.batch_sizes if all(choice.batch_size != size for choice in expected)}
    return cost_map(
        expected,
        workload.objective,
        gpu=workload.gpu.name,
        simulated=workload.gpu.simulated,
        batch_sizes=workload.job.batch_sizes,
        barred=dict.fromkeys(never, "never reaches the target"),
        default=workload.default,
    )
