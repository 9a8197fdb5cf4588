"""`wattune bench run`: programs tuned while they run, by wattune and by the published rules, beside the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter
from typing import Any

from wattune.benchmarks.result import Bench, Goal, Row, at_least, at_most
from wattune.benchmarks.run.case import CaseOutcome, RunCase, RunPlayed, run_cases
from wattune.benchmarks.run.policies import GPOEO, OURS, POLICIES, available
from wattune.core.errors import InputError
from wattune.physics.catalog import load_model
from wattune.workloads.family import SIZE, family

PUBLISHED_SAVING_PERCENT, PUBLISHED_SLOWDOWN_PERCENT = 16.2, 5.1
"""Of GPOEO on 71 workloads on a real RTX 3080 Ti (Wang et al. 2022, abstract); energy above a floor of 30 W."""

HOUR_S = 3600.0
_LONGEST_S = 600.0
_ALMOST = 1e-9

Outcomes = Sequence[tuple[RunCase, CaseOutcome]]
OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBench:
    """What is to be played."""

    gpu: str = "rtx-3080-ti"
    seeds: int = 5
    slowdown: float = 0.05
    hours: float = 1.0
    workloads: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    processes: int = 2


def bench_run(asked: RunBench, *, on_step: OnStep | None = None) -> Bench:
    """Savings, slowdowns and promises of every policy on the simulated family."""
    begun_s = perf_counter()
    policies, missing = _policies(asked.policies)
    cases = _cases(asked, policies)
    say = on_step or _silent
    say("playing", 0, len(cases))
    outcomes = run_cases(cases, processes=asked.processes, on_case=lambda done: say("playing", done, len(cases)))
    elapsed_s = perf_counter() - begun_s
    whole = not asked.workloads and not asked.policies
    return Bench(
        bench="run",
        simulated=True,
        rows=tuple(row for case, outcome in outcomes for row in case_rows(case, outcome)),
        goals=tuple(_goals(outcomes, elapsed_s=elapsed_s if whole else None)),
        notes=_notes(asked, outcomes, missing, elapsed_s),
        figures=_figures(asked, outcomes, elapsed_s),
    )


def case_rows(case: RunCase, outcome: CaseOutcome) -> list[Row]:
    """A row for every policy of a case."""
    return [_row(case, outcome, played) for played in outcome.played]


def saving(outcome: CaseOutcome, played: RunPlayed) -> float:
    """Energy saved against the default, as a share."""
    return 1.0 - played.cost.energy_j / outcome.standard.default.energy_j


def slowdown(outcome: CaseOutcome, played: RunPlayed) -> float:
    """Time lost against the default, had that been dealt the same waits, as a share."""
    return (played.cost.time_s - played.luck_s) / outcome.standard.default.time_s - 1.0


def _row(case: RunCase, outcome: CaseOutcome, played: RunPlayed) -> Row:
    default = outcome.standard.default
    return {
        "workload": case.workload,
        "policy": played.policy,
        "seed": case.seed,
        "saving_percent": 100 * saving(outcome, played),
        "oracle_saving_percent": 100 * outcome.standard.saving,
        "slowdown_percent": 100 * slowdown(outcome, played),
        "promise_kept": slowdown(outcome, played) <= case.slowdown + _ALMOST,
        "evaluations": played.evaluations,
        "changes": played.changes,
        "search_s": played.search_s,
        "search_cost_percent": 100 * played.search_j / default.energy_j,
        "break_even_s": played.break_even_s,
        "held": str(played.held),
        "seen": played.unit or "utilisation",
    }


def _policies(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for name in names:
        if name not in POLICIES:
            raise InputError(f"there is no policy {name!r}", hint=f"choose from {', '.join(POLICIES)}")
    here, missing = available()
    return tuple(name for name in here if not names or name in names), missing


def _cases(asked: RunBench, policies: tuple[str, ...]) -> list[RunCase]:
    gpu = load_model(asked.gpu).key
    names = [member.name for member in family()]
    for word in asked.workloads:
        if not any(word in name for name in names):
            raise InputError(
                f"the family has no workload {word!r}", hint=f"it has {', '.join(names[:3])} and {SIZE - 3} more"
            )
    chosen = [name for name in names if not asked.workloads or any(word in name for word in asked.workloads)]
    return [
        RunCase(gpu, name, seed, policies, asked.slowdown, asked.hours * HOUR_S)
        for seed in range(asked.seeds)
        for name in chosen
    ]


def policy_rows(outcomes: Outcomes) -> list[dict[str, Any]]:
    """Means over workloads and seeds, a row for each policy."""
    names = dict.fromkeys(played.policy for _, outcome in outcomes for played in outcome.played)
    return [_policy_row(name, outcomes) for name in names]


def _policy_row(name: str, outcomes: Outcomes) -> dict[str, Any]:
    rows = [row for case, outcome in outcomes for row in case_rows(case, outcome) if row["policy"] == name]
    found = fmean(row["saving_percent"] for row in rows)
    best = fmean(row["oracle_saving_percent"] for row in rows)
    return {
        "policy": name,
        "runs": len(rows),
        "saving_percent": found,
        "of_oracle_percent": 100 * found / best if best > 0 else None,
        "slowdown_percent": fmean(row["slowdown_percent"] for row in rows),
        "slowdown_most_percent": max(row["slowdown_percent"] for row in rows),
        "promise_kept_percent": 100 * fmean(row["promise_kept"] for row in rows),
        "evaluations": fmean(row["evaluations"] for row in rows),
        "search_s": fmean(row["search_s"] for row in rows),
        "search_cost_percent": fmean(row["search_cost_percent"] for row in rows),
    }


def _goals(outcomes: Outcomes, *, elapsed_s: float | None) -> list[Goal]:
    rows = {row["policy"]: row for row in policy_rows(outcomes)}
    ours, theirs = rows.get(OURS, {}), rows.get(GPOEO, {})
    ratio = ours["evaluations"] / theirs["evaluations"] if ours and theirs.get("evaluations") else None
    return [
        at_least("energy saved, of the oracle's", ours.get("of_oracle_percent"), 95.0, unit=" %"),
        at_least("runs that keep the promise", ours.get("promise_kept_percent"), 99.0, unit=" %"),
        at_most("gears evaluated, of GPOEO's", ratio, 0.25),
        at_most("CPU time of the policy, of the run's time", _control_percent(outcomes), 1.0, unit=" %"),
        at_most("seconds for all of it", elapsed_s, _LONGEST_S),
    ]


def _control_percent(outcomes: Outcomes) -> float | None:
    ours = [played for _, outcome in outcomes for played in outcome.played if played.policy == OURS]
    time_s = sum(played.cost.time_s for played in ours)
    return 100 * sum(played.deciding_s for played in ours) / time_s if time_s else None


def _figures(asked: RunBench, outcomes: Outcomes, elapsed_s: float) -> dict[str, Any]:
    return {
        "gpu": load_model(asked.gpu).name,
        "promise_percent": 100 * asked.slowdown,
        "hours": asked.hours,
        "policies": policy_rows(outcomes),
        "published_saving_percent": PUBLISHED_SAVING_PERCENT,
        "published_slowdown_percent": PUBLISHED_SLOWDOWN_PERCENT,
        "cpu_s": sum(outcome.cpu_s for _, outcome in outcomes),
        "elapsed_s": elapsed_s,
    }


def _notes(asked: RunBench, outcomes: Outcomes, missing: tuple[str, ...], elapsed_s: float) -> tuple[str, ...]:
    units = [outcome.played[0].unit for _, outcome in outcomes if outcome.played]
    share = {unit: 100 * fmean(each == unit for each in units) for unit in ("step", "cycle", None)} if units else {}
    return (
        *missing,
        f"simulated {load_model(asked.gpu).name}: {asked.hours:g} h of each program at the default clocks; search "
        f"costs are charged; all policies see the same windows.",
        f"what is seen of a program from outside: its step in {share.get('step', 0):.0f} % of runs, a longer cycle in "
        f"{share.get('cycle', 0):.0f} %, utilisation alone in {share.get(None, 0):.0f} %.",
        f"GPOEO's own figures on a real RTX 3080 Ti: {PUBLISHED_SAVING_PERCENT} % saved (above a floor of 30 W) at "
        f"{PUBLISHED_SLOWDOWN_PERCENT} % slowdown.",
        f"{elapsed_s:.0f} s, {sum(outcome.cpu_s for _, outcome in outcomes):.0f} s of CPU.",
    )


def _silent(step: str, done: int, of: int) -> None:
    del step, done, of
