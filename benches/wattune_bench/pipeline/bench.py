"""`wattune bench pipeline`: frontiers beside lowtime's, beside their own bounds, and beside the published figures."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from wattune.core.errors import InputError
from wattune.levels.pipeline.planned import PlannedPipeline
from wattune.levels.pipeline.planner import POINTS
from wattune.levels.pipeline.straggler import answer_slowdown
from wattune.plans.stage_profile import parse_stage_profile
from wattune_bench.pipeline.cases import (
    SLOWDOWN,
    STRAGGLER_MICROBATCHES,
    PipelineCase,
    Solved,
    at_equal_time,
    find_cases,
    made_up_profile,
    peer_times_s,
    solve,
)
from wattune_bench.result import Bench, Goal, Row, at_least, at_most

OnStep = Callable[[str], None]

PEER_MICROBATCHES = (12, 24)
PUBLISHED_MICROBATCHES = (12, 24, 48, 96)
PEER_POINTS = 32
"""Plans beside the thousands of the peer. More plans beat more of these at equal time, and take longer to make."""

LARGE = (16, 512, 40)
"""Stages, microbatches and clocks of the pipeline that must still be planned in half a minute."""

LARGE_QUICK = (16, 64, 40)
LARGE_S, LARGE_MB = 30.0, 4096.0
LARGE_MEAN_PERCENT, LARGE_WORST_PERCENT = 1.0, 3.0
"""Energy above the bound."""

LARGE_PATIENCE_S = 600.0
"""Seconds after which that is given up."""

_TIMED = (
    "solve_s and peer_solve_s are CPU seconds of all threads, without imports, in processes of their own; each solver "
    "runs once, and the plans of that run are judged. Beside lowtime, wattune plans for the two ends of the frontier "
    f"and for {PEER_POINTS - 2} of lowtime's own iteration times, evenly spaced in energy."
)
NEAR_POINTS = -0.5
"""Points of saving by which a figure may stay behind the paper's."""


@dataclass(slots=True)
class _PipelineResults:
    """Results so far."""

    rows: list[Row] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gaps_percent: list[tuple[float, float]] = field(default_factory=list)
    """Mean and worst of each frontier."""
    late: int = 0


def bench_pipeline(data: Path, *, quick: bool = False, on_step: OnStep | None = None) -> Bench:
    """Speed, optimality, equal-time energy, published savings and a large pipeline, for the profiles of a folder."""
    say = on_step or (lambda _: None)
    cases, remarks = find_cases(data)
    found = _PipelineResults(notes=[_TIMED, *remarks])
    peer = importlib.util.find_spec("lowtime") is not None
    if not peer:
        found.notes.append("lowtime is not installed here, so its columns are empty: pip install './benches[peers]'")
    if quick:
        found.notes.append(
            "--quick: lowtime on 12 microbatches of the first profile only, and a smaller large pipeline."
        )
    for number, case in enumerate(cases):
        beside = _beside(number, quick=quick) if peer else ()
        solved = {}
        for microbatches in PUBLISHED_MICROBATCHES:
            solved[microbatches] = _solve_beside(case, microbatches, found, say, peer=microbatches in beside)
        _published(case, solved, found)
    _judge_gaps(found)
    _large(cases[0], found, say, quick=quick)
    return Bench(
        bench="pipeline",
        simulated=any(case.profile.simulated for case in cases),
        rows=tuple(found.rows),
        goals=tuple(found.goals),
        notes=tuple(found.notes),
    )


def _beside(number: int, *, quick: bool) -> tuple[int, ...]:
    """The microbatches for which the peer runs too."""
    if not quick:
        return PEER_MICROBATCHES
    return PEER_MICROBATCHES[:1] if number == 0 else ()


def _solve_beside(case: PipelineCase, microbatches: int, found: _PipelineResults, say: OnStep, *, peer: bool) -> Solved:
    """Solve one pipeline, the peer first where it runs too, and add a row and goals."""
    theirs = _peer(case, microbatches, found, say) if peer else None
    say(f"wattune: {case.name}, {microbatches} microbatches")
    if theirs is None:
        own = _solve("wattune", case, microbatches, points=POINTS)
    else:
        own = _solve("wattune", case, microbatches, points=2, times_s=peer_times_s(theirs, PEER_POINTS - 2))
    found.rows.append(_speed_row(case.name, own, theirs))
    found.gaps_percent.append((_mean(own.gaps_percent), max(own.gaps_percent)))
    found.late += own.late
    if theirs is not None:
        name = f"times faster than lowtime, {case.name}, {microbatches} microbatches"
        note = f"one run of {len(own.predicted)} plans; lowtime goes through {len(theirs.predicted)}"
        found.goals.append(at_least(name, theirs.solve_s / own.solve_s, 300, note=note))
        _equal_time(case, own, theirs, found)
    return own


def _peer(case: PipelineCase, microbatches: int, found: _PipelineResults, say: OnStep) -> Solved | None:
    say(f"lowtime: {case.name}, {microbatches} microbatches (minutes)")
    try:
        return _solve("lowtime", case, microbatches)
    except InputError as error:
        found.notes.append(error.message)
        return None


def _solve(
    solver: str, case: PipelineCase, microbatches: int, *, points: int | None = None, times_s: tuple[float, ...] = ()
) -> Solved:
    return solve(
        solver,
        case.text,
        case.profile,
        microbatches=microbatches,
        blocking_power_w=case.blocking_power_w,
        points=points,
        times_s=times_s,
    )


def _speed_row(name: str, own: Solved, peer: Solved | None) -> Row:
    return {
        "profile": name,
        "schedule": own.shape.schedule,
        "stages": own.shape.stages,
        "microbatches": own.shape.microbatches,
        "points": len(own.predicted),
        "solve_s": own.solve_s,
        "peer_solve_s": None if peer is None else peer.solve_s,
        "speedup": None if peer is None else peer.solve_s / own.solve_s,
        "gap_mean_percent": _mean(own.gaps_percent),
        "gap_worst_percent": max(own.gaps_percent),
        "late_plans": own.late,
        "peak_mb": own.peak_mb,
    }


def _equal_time(case: PipelineCase, own: Solved, peer: Solved, found: _PipelineResults) -> None:
    """Compare the plans that were timed with the peer's at equal time."""
    planned, microbatches = _planned(case, own), own.shape.microbatches
    outcome = at_equal_time(planned, (trial.cost for trial in peer.trials))
    found.rows.append(
        {
            "profile": case.name,
            "peer": "lowtime",
            "microbatches": microbatches,
            "peer_plans": outcome.compared,
            "own_plans": len(planned.frontier),
            "dearer_plans": outcome.costlier,
            "worst_percent": outcome.worst_percent,
            "mean_saving_percent": outcome.saving_percent,
            "peer_faster_plans": outcome.faster,
            "peer_late_plans": peer.late,
        }
    )
    name = f"plans of lowtime that spend less at equal time, {case.name}, {microbatches} microbatches"
    note = (
        f"all {len(peer.trials)} plans of lowtime, beside the {len(planned.frontier)} plans of the run that was timed"
    )
    found.goals.append(at_most(name, float(outcome.costlier + outcome.faster), 0, note=note))


def _published(case: PipelineCase, solved: dict[int, Solved], found: _PipelineResults) -> None:
    """Add each cell beside the paper's, where the paper has this model on this GPU."""
    if case.published is None:
        return
    differences = []
    for microbatches, paper in case.published.saving_percent.items():
        if microbatches not in solved:
            continue
        own = answer_slowdown(_planned(case, solved[microbatches]), 1.0).saving_percent
        differences.append(own - paper)
        found.rows.append(_cell(case, microbatches, "saving without a straggler, % (Table 6)", own, paper))
    name = f"points of saving above the paper's Table 6, least of {len(differences)}, {case.name}"
    found.goals.append(at_least(name, min(differences), NEAR_POINTS))
    planned = _planned(case, solved[STRAGGLER_MICROBATCHES])
    own, paper = answer_slowdown(planned, SLOWDOWN).saving_percent, case.published.straggler_saving_percent
    figure = f"saving with a straggler of {SLOWDOWN}, % (Figure 7)"
    found.rows.append(_cell(case, STRAGGLER_MICROBATCHES, figure, own, paper))
    found.goals.append(at_least(f"points of saving above the paper's Figure 7, {case.name}", own - paper, NEAR_POINTS))
    slowest = planned.frontier.cheapest.cost.time_s / planned.frontier.fastest.cost.time_s
    found.rows.append(
        _cell(case, STRAGGLER_MICROBATCHES, "T*/T, time of least energy", slowest, case.published.slowest)
    )


def _planned(case: PipelineCase, solved: Solved) -> PlannedPipeline:
    return solved.planned(case.profile, blocking_power_w=case.blocking_power_w)


def _cell(case: PipelineCase, microbatches: int, figure: str, own: float, paper: float) -> Row:
    return {
        "profile": case.name,
        "microbatches": microbatches,
        "figure": figure,
        "wattune": own,
        "paper": paper,
        "difference": own - paper,
    }


def _judge_gaps(found: _PipelineResults) -> None:
    mean = _mean([mean for mean, _ in found.gaps_percent])
    worst = max(worst for _, worst in found.gaps_percent)
    found.goals += [
        at_most("energy above the bound, mean of all plans from measured profiles", mean, 0.3, unit=" %"),
        at_most("energy above the bound, worst plan from a measured profile", worst, 1, unit=" %"),
        at_most("plans that take longer than planned when timed again", float(found.late), 0),
    ]


def _large(case: PipelineCase, found: _PipelineResults, say: OnStep, *, quick: bool) -> None:
    """Add the large pipeline's row and, at full size, its goals."""
    stages, microbatches, clocks = LARGE_QUICK if quick else LARGE
    say(f"wattune: made up, {stages} stages, {microbatches} microbatches, {clocks} clocks")
    text = made_up_profile(case.profile, stages=stages, clocks=clocks)
    profile = parse_stage_profile(text, file=f"made up from {case.name}")
    name = f"frontier of {stages} stages × {microbatches} microbatches × {clocks} clocks"
    try:
        own = solve(
            "wattune",
            text,
            profile,
            microbatches=microbatches,
            blocking_power_w=case.blocking_power_w,
            points=None,
            patience_s=LARGE_PATIENCE_S,
        )
    except InputError as error:
        found.notes.append(error.message)
        found.goals.append(Goal(f"seconds for the {name}", None, f"≤ {LARGE_S:g}", False))
        return
    found.rows.append(_speed_row(f"made up from {case.name}, {clocks} clocks", own, None))
    if not quick:
        found.goals.append(at_most(f"seconds for the {name}", own.solve_s, LARGE_S))
        found.goals.append(at_most(f"megabytes for the {name}", own.peak_mb, LARGE_MB))
        mean, worst = _mean(own.gaps_percent), max(own.gaps_percent)
        above = f"energy above the bound, {{}} of the {name}"
        found.goals.append(at_most(above.format("mean"), mean, LARGE_MEAN_PERCENT, unit=" %"))
        found.goals.append(at_most(above.format("worst plan"), worst, LARGE_WORST_PERCENT, unit=" %"))


def _mean(values: tuple[float, ...] | list[float]) -> float:
    return sum(values) / len(values)
