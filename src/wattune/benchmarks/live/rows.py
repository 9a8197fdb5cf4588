"""The rows and goals of `wattune bench live`; pure, so that saved runs can be judged again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from wattune.benchmarks.live.arms import LIVE_ARMS, OURS, TUNERS, ZEUS
from wattune.benchmarks.live.play import LiveCase, Played
from wattune.benchmarks.live.truth import Bound, Truth, is_held
from wattune.benchmarks.result import Bench, Goal, Row, at_least, at_most

LEAST_COVERAGE_PERCENT, MOST_MEAN_ERROR, LEAST_SHARE_PERCENT, MOST_CORE_PERCENT = 93.0, 0.1, 97.0, 1.0
ENOUGH_RUNS = 60
SHARE_SECONDS = 150.0
"""How long the program runs, at least, where the share of the best fixed setting is a goal."""
MOST_STEPS_PER_S = 50.0
"""The cost is a goal for up to so many steps."""
_CASE_COLUMNS = ("gpu", "switching", "arm", "run", "seed", "workload", "seconds")


def live_row(case: LiveCase, played: Played) -> Row:
    """Judge one run."""
    bound, claim = Bound.of(case.gpu, case.workload, slowdown=case.slowdown), played.claim
    row: dict[str, Any] = {
        **{name: getattr(case, name) for name in _CASE_COLUMNS},
        "default_step_s": bound.default.time_s,
        "default_step_j": bound.default.energy_j,
        **_true_columns(Truth.of(played.trace, bound.default), bound),
        "claimed_saving_percent": claim.saving_percent,
        "claimed_saving_error_percent": claim.saving_error_percent,
        "claimed_slowdown_percent": claim.slowdown_percent,
        "claimed_slowdown_error_percent": claim.slowdown_error_percent,
    }
    saving, slowdown = row["true_saving_percent"], row["true_slowdown_percent"]
    return {
        **row,
        "claimed_error_percent": _beyond(claim.saving_percent, saving),
        "claimed_slowdown_off_percent": _beyond(claim.slowdown_percent, slowdown),
        "held": is_held(claim.saving_percent, claim.saving_error_percent, saving),
        "slowdown_held": is_held(claim.slowdown_percent, claim.slowdown_error_percent, slowdown),
        "slowdown_limit_met": None if slowdown is None else slowdown <= 100 * case.slowdown,
        "process_cpu_percent": played.process_cpu_percent if case.arm in TUNERS else None,
        "load": played.load,
        "problem": played.problem,
    }


def _true_columns(truth: Truth | None, bound: Bound) -> dict[str, Any]:
    best = bound.best_saving_percent
    values = {
        "steps": truth and truth.steps,
        "true_time_s": truth and truth.time_s,
        "true_energy_j": truth and truth.energy_j,
        "true_saving_percent": truth and truth.saving_percent,
        "true_slowdown_percent": truth and truth.slowdown_percent,
        "true_whole_saving_percent": truth and truth.whole_saving_percent,
        "contention_percent": truth and truth.late_percent,
        "share_of_best_fixed_percent": truth and 100 * truth.saving_percent / best,
    }
    return {**values, "best_fixed_saving_percent": best, "best_fixed": str(bound.best_setting)}


def _beyond(claimed: float | None, true: float | None) -> float | None:
    return None if claimed is None or true is None else claimed - true


def judged(rows: Sequence[Row], *, notes: Iterable[str] = ()) -> Bench:
    """Judge all rows together."""
    return Bench(
        bench="live",
        simulated=True,
        rows=tuple(rows),
        goals=(*_claim_goals(rows), *_choice_goals(rows), *_zeus_goals(rows), _cost_goal(rows)),
        notes=(
            "Judged by the simulated GPU's own joules and seconds between the first and the last step of the program.",
            *notes,
        ),
        figures={"arms": _means(rows)},
    )


def _claim_goals(rows: Sequence[Row]) -> tuple[Goal, ...]:
    ours = [row for row in rows if row["arm"] in OURS]
    goals = []
    for what, held, off in (
        ("savings", "held", "claimed_error_percent"),
        ("slowdowns", "slowdown_held", "claimed_slowdown_off_percent"),
    ):
        claims = [row for row in ours if row[held] is not None]
        note = f"{len(claims)} claims in {len(ours)} runs; the goal asks for {ENOUGH_RUNS} runs or more"
        coverage = _mean(claims, lambda row, held=held: 100.0 * row[held])  # type: ignore[misc]
        goals.append(
            at_least(f"claimed {what} whose interval holds", coverage, LEAST_COVERAGE_PERCENT, unit=" %", note=note)
        )
        mean = _mean(claims, lambda row, off=off: abs(row[off]))  # type: ignore[misc]
        goals.append(at_most(f"mean error of claimed {what}", mean, MOST_MEAN_ERROR, unit=" points", note=note))
    return tuple(goals)


def _choice_goals(rows: Sequence[Row]) -> tuple[Goal, Goal]:
    long = [row for row in rows if row["arm"] in LIVE_ARMS and row["seconds"] >= SHARE_SECONDS]
    share = _mean(long, lambda row: row["share_of_best_fixed_percent"])
    limits = [row["slowdown_limit_met"] for row in rows if row["arm"] in OURS]
    missed = sum(met is False for met in limits)
    note = None if long else f"--seconds {SHARE_SECONDS:g} measures it"
    name = f"share of the best fixed setting's saving in {SHARE_SECONDS:g} s, search included"
    return (
        at_least(name, share, LEAST_SHARE_PERCENT, unit=" %", note=note),
        at_most("runs beyond their slowdown limit", missed if limits else None, 0, note=f"of {len(limits)} runs"),
    )


def _zeus_goals(rows: Sequence[Row]) -> Iterable[Goal]:
    for name in ("true_saving_percent", "true_slowdown_percent"):
        zeus = _mean([row for row in rows if row["arm"] == ZEUS], lambda row, name=name: row[name])  # type: ignore[misc]
        yield Goal(f"Zeus: {name.removesuffix('_percent').replace('_', ' ')}, %", zeus, "for comparison", None)


def _cost_goal(rows: Sequence[Row]) -> Goal:
    frequent = [row for row in rows if row["arm"] in OURS and row["default_step_s"] * MOST_STEPS_PER_S >= 1]
    most = max((row["process_cpu_percent"] for row in frequent if row["process_cpu_percent"] is not None), default=None)
    note = "the costliest run, by the system's count of its processes while the program made its steps"
    return at_most(
        f"processor time at up to {MOST_STEPS_PER_S:g} steps/s, of one core",
        most,
        MOST_CORE_PERCENT,
        unit=" %",
        note=note,
    )


def _means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return means of each arm on each GPU."""
    found = []
    for gpu, switching, arm in dict.fromkeys((row["gpu"], row["switching"], row["arm"]) for row in rows):
        some = [row for row in rows if (row["gpu"], row["switching"], row["arm"]) == (gpu, switching, arm)]
        claims = [row for row in some if row["held"] is not None]
        found.append(
            {
                "gpu": gpu,
                "switching": switching,
                "arm": arm,
                "runs": len(some),
                **{name: _mean(some, lambda row, name=name: row[name]) for name in _MEANS},  # type: ignore[misc]
                "claims": len(claims),
                "held": sum(row["held"] for row in claims),
                "mean_error_percent": _mean(claims, lambda row: abs(row["claimed_error_percent"])),
            }
        )
    return found


_MEANS = (
    "true_saving_percent",
    "best_fixed_saving_percent",
    "share_of_best_fixed_percent",
    "true_slowdown_percent",
    "process_cpu_percent",
    "contention_percent",
)


def _mean(rows: Iterable[Row], value: Callable[[Row], float | None]) -> float | None:
    """Return the mean of the values that are known; None where none is."""
    known = [found for row in rows if (found := value(row)) is not None]
    return fmean(known) if known else None
