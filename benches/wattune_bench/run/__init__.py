"""`wattune bench run --simulated`: the shipped session with each policy on the programs of a family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter, process_time
from typing import Any

from wattune.core.setting import DRIVER_DEFAULT
from wattune.physics.catalog import load_model
from wattune_bench.family import family, members_named
from wattune_bench.parallel import in_processes
from wattune_bench.result import Bench, Goal, Row, at_most
from wattune_bench.run.family_program import FamilyProgram, play_program
from wattune_bench.run.outcome import (
    PlayedRun,
    fixed_run,
    policy_means,
    run_goals,
    run_row,
)
from wattune_bench.run.policies import DEFAULT, ORACLE, OURS, chosen_policies, make_policy

PUBLISHED_SAVING_PERCENT, PUBLISHED_SLOWDOWN_PERCENT = 16.2, 5.1
"""Of GPOEO on 71 workloads on a real RTX 3080 Ti (Wang et al. 2022, abstract); energy above a floor of 30 W."""

HOUR_S = 3600.0
_LONGEST_S = 600.0
_COUNTERS = (
    "gpoeo gets counters of the simulated step, which its authors read with CUPTI; no other policy gets any, because "
    "this GPU shows none from outside"
)

OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBench:
    """The options of the bench."""

    gpu: str = "rtx-3080-ti"
    seeds: int = 1
    slowdown: float = 0.05
    hours: float = 0.15
    workloads: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    reports_steps: bool = False
    processes: int = 2


@dataclass(frozen=True, slots=True)
class RunCase:
    """A policy on a member of the family with a seed."""

    asked: RunBench
    workload: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The row of a case and the CPU time that it took."""

    row: Row
    cpu_s: float


def bench_run(asked: RunBench, *, on_step: OnStep | None = None) -> Bench:
    """Play every policy on the simulated family and judge the whole runs."""
    begun_s = perf_counter()
    policies, missing = chosen_policies(asked.policies)
    cases = [
        RunCase(asked, workload, policy, seed)
        for seed in range(asked.seeds)
        for workload in members_named(asked.workloads)
        for policy in policies
    ]
    load_model(asked.gpu)

    def report(done: int) -> None:
        if on_step is not None:
            on_step("playing", done, len(cases))

    report(0)
    results = in_processes(run_case, cases, processes=asked.processes, on_case=report)
    elapsed_s = perf_counter() - begun_s
    rows = [result.row for result in results]
    cpu_s = sum(result.cpu_s for result in results)
    return Bench(
        bench="run",
        simulated=True,
        rows=tuple(rows),
        goals=tuple(_goals(asked, rows, elapsed_s)),
        notes=(*missing, *_notes(asked, rows, elapsed_s, cpu_s)),
        figures=_figures(asked, rows, elapsed_s, cpu_s),
    )


def run_case(case: RunCase) -> CaseResult:
    """Play one run; what a policy learned beforehand is not counted as CPU time of the case."""
    asked = case.asked
    model = load_model(asked.gpu)
    member = next(member for member in family(seed=case.seed) if member.name == case.workload)
    program = FamilyProgram.of(model, member, seconds=asked.hours * HOUR_S)
    best = program.oracle(asked.slowdown)
    played: PlayedRun
    begun_s = process_time()
    if case.policy == ORACLE:
        played = fixed_run(ORACLE, best.setting, best.cost, program.passes)
    elif case.policy == DEFAULT:
        played = fixed_run(DEFAULT, DRIVER_DEFAULT, best.default, program.passes)
    else:
        policy = make_policy(case.policy, model, slowdown=asked.slowdown)
        begun_s = process_time()
        played = play_program(
            program,
            policy,
            slowdown=asked.slowdown,
            seed=case.seed,
            reports_steps=asked.reports_steps,
        )
    row = run_row(case.workload, case.seed, played, best, slowdown=asked.slowdown)
    return CaseResult(row, process_time() - begun_s)


def _goals(asked: RunBench, rows: Sequence[Row], elapsed_s: float) -> list[Goal]:
    control = [row["control_percent"] for row in rows if row["policy"] == OURS]
    whole = not asked.workloads and not asked.policies
    length = f"{asked.seeds} {'seed' if asked.seeds == 1 else 'seeds'} of {60 * asked.hours:g} min"
    return [
        *run_goals(rows, note=_COUNTERS),
        at_most("CPU time of the control loop, of the run's time", fmean(control) if control else None, 1.0, unit=" %"),
        at_most("seconds for all of it", elapsed_s if whole else None, _LONGEST_S, note=length),
    ]


def _figures(asked: RunBench, rows: Sequence[Row], elapsed_s: float, cpu_s: float) -> dict[str, Any]:
    return {
        "gpu": load_model(asked.gpu).name,
        "promise_percent": 100 * asked.slowdown,
        "hours": asked.hours,
        "seeds": asked.seeds,
        "reports_steps": asked.reports_steps,
        "policies": policy_means(rows),
        "published_saving_percent": PUBLISHED_SAVING_PERCENT,
        "published_slowdown_percent": PUBLISHED_SLOWDOWN_PERCENT,
        "cpu_s": cpu_s,
        "elapsed_s": elapsed_s,
    }


def _notes(asked: RunBench, rows: Sequence[Row], elapsed_s: float, cpu_s: float) -> tuple[str, ...]:
    sources = [row["step_time_from"] for row in rows if row["policy"] == OURS]
    share = {name: 100 * fmean(each == name for each in sources) for name in dict.fromkeys(sources)}
    found = ", ".join(f"{name} in {percent:.0f} %" for name, percent in share.items())
    return (
        f"The shipped session on a simulated {load_model(asked.gpu).name} in virtual time, {asked.seeds} seed(s): each "
        f"program does the work of {60 * asked.hours:g} min at the driver's own clocks. Whole runs are judged, search "
        f"included, by the true time and energy. --hours 1 --seeds 5 plays longer runs and more of them.",
        "Programs report their steps."
        if asked.reports_steps
        else "Programs report nothing: step times are measured from the power that the sensors show.",
        *([f"wattune's runs by what measured the step time: {found}."] if found else []),
        f"GPOEO's own figures on a real RTX 3080 Ti: {PUBLISHED_SAVING_PERCENT} % saved (above a floor of 30 W) at "
        f"{PUBLISHED_SLOWDOWN_PERCENT} % slowdown.",
        f"{elapsed_s:.0f} s, {cpu_s:.0f} s of CPU.",
    )
