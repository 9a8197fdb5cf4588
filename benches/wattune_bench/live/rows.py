"""The rows and goals of `wattune bench live`; pure, so that saved runs can be judged again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from wattune_bench.live.arms import (
    CALLBACK,
    ENERGY,
    GPOEO,
    HELD,
    JOB,
    OURS,
    QUANTITIES,
    RUN,
    SAVING,
    SEARCHING,
    SLOWDOWN,
    TUNED,
    ZEUS,
    Claim,
    Claims,
    LiveCase,
)
from wattune_bench.live.play import Played
from wattune_bench.live.truth import Bound, Truth
from wattune_bench.result import Bench, Goal, Row, at_least, at_most

LEAST_COVERAGE_PERCENT, MOST_MEAN_ERROR_PERCENT, LEAST_SHARE_PERCENT, MOST_CORE_PERCENT = 93.0, 0.1, 97.0, 1.0
ENOUGH_RUNS = 60
SHARE_SECONDS = 150.0
"""How long the program runs, at least, where the share of the best fixed setting is a goal."""
MOST_STEPS_PER_S = 50.0
"""The cost is a goal for up to so many steps."""

_CASE_COLUMNS = ("gpu", "switching", "arm", "run", "seed", "workload", "seconds")
MEASURED = (RUN, TUNED, CALLBACK, HELD, JOB, GPOEO)
"""Those whose processor time is wattune's, while the program makes its steps."""
_WORDS = {SAVING: "savings", SLOWDOWN: "slowdowns", ENERGY: "energies of a step"}


def live_rows(case: LiveCase, played: Played) -> list[Row]:
    """Judge one run: a row for each that makes claims of it."""
    return [_row(case, played, arm, claims) for arm, claims in played.claims.items()]


def _row(case: LiveCase, played: Played, arm: str, claims: Claims) -> Row:
    bound = Bound.of(case.gpu, case.workload, slowdown=case.slowdown)
    truth = Truth.of(played.trace, bound.default)
    true = {name: None if truth is None else getattr(truth, name) for name in Truth.__dataclass_fields__}
    saving, slowdown, best = true[SAVING], true[SLOWDOWN], bound.best_saving_percent
    return {
        **{name: getattr(case, name) for name in _CASE_COLUMNS} | {"arm": arm},
        "steps": true["steps"],
        "default_step_s": bound.default.time_s,
        "default_step_j": bound.default.energy_j,
        "true_time_s": true["time_s"],
        "true_energy_j": true["energy_j"],
        "true_whole_saving_percent": true["whole_saving_percent"],
        **{
            column: value
            for name in QUANTITIES
            for column, value in _claimed(name, true[name], claims.get(name)).items()
        },
        "best_fixed": str(bound.best_setting),
        "best_fixed_saving_percent": best,
        "share_of_best_fixed_percent": None if saving is None or best <= 0 else 100 * saving / best,
        "slowdown_limit_met": None if slowdown is None else slowdown <= 100 * case.slowdown,
        "process_cpu_percent": played.process_cpu_percent if arm in MEASURED else None,
        "contention_percent": true["late_percent"],
        "load": played.load,
        "problem": played.problem,
    }


def _claimed(name: str, true: float | None, claim: Claim | None) -> dict[str, Any]:
    return {
        f"true_{name}": true,
        f"claimed_{name}": None if claim is None else claim.value,
        f"claimed_{name}_error": None if claim is None else claim.error,
        f"held_{name}": None if claim is None or true is None else claim.holds(true),
    }


def judged(rows: Sequence[Row], *, notes: Iterable[str] = ()) -> Bench:
    """Judge all rows together."""
    claims = [goal for name in QUANTITIES for goal in _claim_goals(name, rows)]
    basis = "Judged by the simulated GPU's own joules and seconds between the first and the last step of the program."
    return Bench(
        bench="live",
        simulated=True,
        rows=tuple(rows),
        goals=(*claims, *_choice_goals(rows), _cost_goal(rows), *_zeus_goals(rows)),
        notes=(basis, *notes),
        figures={"arms": list(_arms(rows))},
    )


def _claim_goals(name: str, rows: Sequence[Row]) -> tuple[Goal, Goal]:
    ours = [row for row in rows if row["arm"] in OURS]
    claims = [row for row in ours if row[f"held_{name}"] is not None]
    note = f"{len(claims)} claims in {len(ours)} rows; {ENOUGH_RUNS} runs or more judge them"
    coverage = _mean(100.0 * row[f"held_{name}"] for row in claims)
    off = _mean(_off_percent(name, row) for row in claims)
    unit = " %" if name == ENERGY else " points"
    return (
        at_least(f"{_WORDS[name]}: intervals that hold", coverage, LEAST_COVERAGE_PERCENT, unit=" %", note=note),
        at_most(f"{_WORDS[name]}: mean error", off, MOST_MEAN_ERROR_PERCENT, unit=unit, note=note),
    )


def _off_percent(name: str, row: Row) -> float | None:
    """Return how wrong a claim is: in points where it is in percent, of the truth otherwise."""
    if row[f"held_{name}"] is None:
        return None
    off = abs(row[f"claimed_{name}"] - row[f"true_{name}"])
    return float(off if name != ENERGY else 100 * off / row[f"true_{name}"])


def _choice_goals(rows: Sequence[Row]) -> tuple[Goal, Goal]:
    long = [row for row in rows if row["arm"] in SEARCHING and row["seconds"] >= SHARE_SECONDS]
    share = _mean(row["share_of_best_fixed_percent"] for row in long)
    limits = [row["slowdown_limit_met"] for row in rows if row["arm"] in OURS]
    missed = sum(met is False for met in limits)
    name = f"share of the best fixed setting's saving in {SHARE_SECONDS:g} s, search included"
    note = None if long else f"--seconds {SHARE_SECONDS:g} measures it"
    return (
        at_least(name, share, LEAST_SHARE_PERCENT, unit=" %", note=note),
        at_most("rows beyond their slowdown limit", missed if limits else None, 0, note=f"of {len(limits)} rows"),
    )


def _cost_goal(rows: Sequence[Row]) -> Goal:
    frequent = [row for row in rows if row["arm"] in OURS and row["default_step_s"] * MOST_STEPS_PER_S >= 1]
    costs = [row["process_cpu_percent"] for row in frequent if row["process_cpu_percent"] is not None]
    name = f"processor time of wattune at up to {MOST_STEPS_PER_S:g} steps/s, of one core"
    note = f"mean of {len(costs)} runs, as the system counts it; the costliest {max(costs):.2f} %" if costs else None
    return at_most(name, _mean(costs), MOST_CORE_PERCENT, unit=" %", note=note)


def _zeus_goals(rows: Sequence[Row]) -> Iterator[Goal]:
    zeus = [row for row in rows if row["arm"] == ZEUS]
    for name in (SAVING, SLOWDOWN):
        value = _mean(row[f"true_{name}"] for row in zeus)
        yield Goal(f"Zeus: true {name.removesuffix('_percent')}, %", value, "for comparison", None)


_MEANS = ("share_of_best_fixed_percent", "process_cpu_percent", "contention_percent")


def _arms(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Return the means of each arm on each GPU."""
    keys = ("gpu", "switching", "arm")
    for key in dict.fromkeys(tuple(row[name] for name in keys) for row in rows):
        some = [row for row in rows if tuple(row[name] for name in keys) == key]
        found: dict[str, Any] = {**dict(zip(keys, key, strict=True)), "runs": len(some)}
        for name in (SAVING, SLOWDOWN):
            held = [row[f"held_{name}"] for row in some if row[f"held_{name}"] is not None]
            found |= {
                f"true_{name}": _mean(row[f"true_{name}"] for row in some),
                f"{name}_claims": len(held),
                f"{name}_held": sum(held),
                f"{name}_mean_error": _mean(_off_percent(name, row) for row in some),
            }
        yield found | {name: _mean(row[name] for row in some) for name in _MEANS}


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
