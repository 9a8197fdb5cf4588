"""The page of the job benchmark: goals, regret over all jobs, and each job's curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import UNKNOWN, counted, number
from wattune.render.svg import standalone
from wattune_bench.datasets.zeus_tables import SOURCE
from wattune_bench.job.bench import JobPlayed
from wattune_bench.job.cases import JobCase, ReplayResult
from wattune_bench.job.curves import PolicyCurve, PolicyCurves, cost_chart, mean_regret_chart, regret_chart
from wattune_bench.job.figures import OURS, PEER
from wattune_bench.result import Bench, Goal

_AFTER = (5, 10, 20, 50)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JobBenchReport:
    """All cases of a run of the benchmark."""

    source: str
    """The source of the tables."""
    cases: tuple[PolicyCurves, ...]
    goals: tuple[Goal, ...] = ()
    made: str

    def __post_init__(self) -> None:
        if not self.cases:
            raise ValueError("a page of the job benchmark needs at least one case")

    @property
    def simulated(self) -> bool:
        return any(case.simulated for case in self.cases)


def job_bench_file(report: JobBenchReport, *, suffix: str) -> str:
    """Render the whole page for `.html`, its first chart for `.svg`."""
    return standalone(_first(report).chart) if suffix == ".svg" else render_page(job_bench_page(report))


def job_bench_page(report: JobBenchReport) -> Page:
    """Lay out the page of a benchmark."""
    sections: list[Section] = [Figures(_figures(report)), _first(report)]
    if report.goals:
        sections.append(_goals(report))
    sections.append(_regrets(report))
    for case in report.cases:
        sections += _case(case)
    sections.append(Prose("How to read it", _HOW))
    return Page(
        title="Recurring jobs, policy by policy",
        lead=f"{counted(len(report.cases), 'job')} replayed from {report.source}, with every run, profiling included, "
        "charged to the policy that chose it.",
        simulated=report.simulated,
        sections=tuple(sections),
        foot=report.made,
    )


def _first(report: JobBenchReport) -> LargeChart:
    """Return the main chart: regret over all jobs, or of the only one."""
    if len(report.cases) == 1:
        return LargeChart(regret_chart(report.cases[0]))
    return LargeChart(mean_regret_chart(report.cases))


def _case(view: PolicyCurves) -> Iterator[Section]:
    simulated = "simulated " if view.simulated else ""
    yield Prose(
        f"{view.workload} on {simulated}{view.gpu}", (f"{view.recurrences} recurrences, {_seeds(view)} seeds.",)
    )
    yield LargeChart(cost_chart(view))
    yield LargeChart(regret_chart(view))


def _seeds(view: PolicyCurves) -> int:
    return max(len(curve.costs) for curve in view.curves)


def _figures(report: JobBenchReport) -> tuple[Figure, ...]:
    met = sum(goal.met is True for goal in report.goals)
    counted_goals = (Figure(f"{met} of {len(report.goals)}", "goals met"),) if report.goals else ()
    return (*(_regret_figure(report, after) for after in (10, 20, None)), *counted_goals)


def _regret_figure(report: JobBenchReport, after: int | None) -> Figure:
    ours, peer = _mean(report, OURS, after), _mean(report, PEER, after)
    label = "regret over the horizon" if after is None else f"regret after {after} recurrences"
    detail = f"{PEER}: {number(peer)} %" if peer is not None else None
    return Figure(UNKNOWN if ours is None else f"{number(ours)} %", label, detail)


def _mean(report: JobBenchReport, policy: str, after: int | None) -> float | None:
    """Return the mean regret in percent over the cases in which the policy got that far; None where it did in none."""
    found = []
    for case in report.cases:
        for curve in case.curves:
            if curve.name == policy:
                found.append(case.regret_after(curve, after or curve.recurrences))
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


def _goals(report: JobBenchReport) -> Table:
    words = {True: "met", False: "missed", None: "not measured"}
    rows = tuple((goal.name, words[goal.met], number(goal.value), goal.goal) for goal in report.goals)
    return Table("Goals", ("goal", "", "found", "wanted"), rows, words=2)


def _regrets(report: JobBenchReport) -> Table:
    head = ("job", "part", "policy", *(f"after {after}" for after in _AFTER), "horizon")
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for view in report.cases:
        for curve in view.curves:
            if curve.name == OURS:
                strong.add(len(rows))
            cells = [_percent(view.regret_after(curve, after)) for after in (*_AFTER, curve.recurrences)]
            place = f"{view.gpu}{' (simulated)' if view.simulated else ''}"
            rows.append((view.workload, place, curve.name, *cells))
    return Table("Regret, in percent of the oracle's cost", head, tuple(rows), words=3, strong=frozenset(strong))


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{number(value)} %"


_HOW = (
    "The oracle is the one batch size and setting whose expected cost to a success is least, held from the first "
    "recurrence on: no policy can know it, and over many recurrences none that holds one choice beats it. Regret is "
    "what a policy paid beyond it, in percent of what the oracle has paid by then; in the pictures of single jobs it "
    "is counted in runs of the oracle. A dash means that the job has fewer recurrences, or that some seed was stuck.",
    "The default is the owner's batch size at the highest limit. Its regret is the head-room: where it is small, there "
    "is little to gain and a good policy tries little.",
)


def pictured(played: JobPlayed, bench: Bench, *, made: str) -> JobBenchReport:
    """Report what was played over the horizon."""
    cases: dict[tuple[str, str], list[tuple[JobCase, ReplayResult]]] = {}
    for case, outcome in played.outcomes:
        if case.section == "horizon" and case.policy != "oracle":
            cases.setdefault((case.workload.gpu.name, case.workload.name), []).append((case, outcome))
    return JobBenchReport(
        source=SOURCE,
        cases=tuple(_curves(some) for some in cases.values()),
        goals=bench.goals,
        made=made,
    )


def _curves(some: list[tuple[JobCase, ReplayResult]]) -> PolicyCurves:
    (case, first), *_ = some
    return PolicyCurves(
        workload=case.workload.name,
        gpu=case.workload.gpu.name,
        simulated=case.workload.gpu.simulated,
        curves=tuple(PolicyCurve(case.policy, outcome.costs) for case, outcome in some),
        oracle=first.oracle,
    )
