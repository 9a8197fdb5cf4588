"""Figures of what policies paid: a row per case and seed, a row per case, and goals against Zeus in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from wattune.physics.gpu_parts import Floats
from wattune_bench.job.cases import PACKAGE, JobCase, ReplayResult
from wattune_bench.job.unseen import is_held_out
from wattune_bench.result import Goal, Row, at_most

T = TypeVar("T")
Outcomes = Sequence[tuple[JobCase, ReplayResult]]

FIRST = (5, 10, 20)
"""Numbers of recurrences after which a policy is judged."""

SETTLED = 5
"""Recurrences after a change within which a policy has to be near the new oracle."""


WORST_OF_DEFAULT = 1.05
"""Cumulative cost over the default's that no seed should exceed at any moment."""


def seed_rows(case: JobCase, played: ReplayResult, outcomes: Outcomes) -> list[Row]:
    """Return a row per seed."""
    default = beside(outcomes, case, "default")
    ratios = None if default is None else worst_ratios(played, default)
    return [
        {
            "workload": case.workload.name,
            "gpu": case.workload.gpu.name,
            "policy": case.policy,
            "seed": seed,
            "eta": case.eta,
            "recurrences": case.recurrences,
            "cost": _number(played.costs[place].sum()),
            "energy_j": _number(played.energies_j[place].sum()),
            "time_s": _number(played.times_s[place].sum()),
            "regret_percent": _regret(played.costs[place], played.oracle),
            **{f"cost_first_{first}": _first_cost(played.costs[place], first) for first in FIRST},
            **{f"regret_first_{first}_percent": _regret(played.costs[place], played.oracle, first) for first in FIRST},
            "runs": _number(played.runs[place].sum()),
            "profiling_percent": _number(100 * played.profiling[place].sum() / played.costs[place].sum()),
            "given_up": bool(played.stuck[place].any()),
            "worst_of_default": None if ratios is None else _number(ratios[place]),
        }
        for place, seed in enumerate(case.seeds)
    ]


def mean_row(case: JobCase, played: ReplayResult, outcomes: Outcomes) -> Row:
    """Return the means over seeds of one case, beside the default of the same section."""
    default, oracle = (beside(outcomes, case, policy) for policy in ("default", "oracle"))
    costs = played.costs.mean(axis=0)
    return {
        **name_of(case),
        "recurrences": case.recurrences,
        **{f"regret_first_{first}_percent": _regret(costs, played.oracle, first) for first in FIRST},
        "regret_percent": _regret(costs, played.oracle),
        "worst_of_default": None if default is None else _number(worst_ratios(played, default).max()),
        "seeds_above_percent": None if default is None else above_percent(worst_ratios(played, default)),
        "energy_saving_percent": None if default is None else _number(energy_saving(played, default)),
        "seeds_given_up": int(played.stuck.any(axis=1).sum()),
        **(
            {}
            if case.drift is None or oracle is None
            else {"after_5_percent": _number(settled_percent(played, oracle))}
        ),
    }


def name_of(case: JobCase) -> dict[str, Any]:
    """Return the fields that distinguish a case from the others of its section."""
    return {
        "workload": case.workload.name,
        "gpu": case.workload.gpu.name,
        "policy": case.policy,
        **({"eta": case.eta} if case.section == "eta" else {}),
        **({} if case.drift is None else {"drift": case.drift.name}),
        **({} if case.load is None else {"load": case.load}),
        **({"known_from": case.before.gpu.name if case.before else None} if case.section == "transfer" else {}),
    }


def worst_ratios(played: ReplayResult, default: ReplayResult) -> Floats:
    """Return the highest cumulative cost at any moment, as a multiple of the default's: (seeds,)."""
    seeds = min(len(played.costs), len(default.costs))
    ratios = played.costs[:seeds].cumsum(axis=1) / default.costs[:seeds].cumsum(axis=1)
    return np.asarray(ratios.max(axis=1))


def decided_ratios(played: ReplayResult, default: ReplayResult) -> Floats:
    """Return the same for expected costs: what was decided, without the luck of the trainings that were drawn.

    NaN where the costs that were to be expected are not known.
    """
    seeds = min(len(played.expected), len(default.expected))
    due = default.expected[:seeds].mean(axis=0).cumsum()
    return np.asarray((played.expected[:seeds].cumsum(axis=1) / due).max(axis=1))


def chance_ratios(default: ReplayResult) -> Floats:
    """Return the same for the default against itself, dealt the next seed's trainings from the second recurrence on.

    Epochs vary from run to run, so that a policy that changes nothing may exceed any limit by chance.
    """
    others = np.roll(default.costs, 1, axis=0)
    others[:, :1] = default.costs[:, :1]
    return worst_ratios(replace(default, costs=others), default)


def above_percent(ratios: Floats) -> float:
    """Return the percentage of seeds that exceed `WORST_OF_DEFAULT` at some moment."""
    return float(100 * np.mean(~(ratios <= WORST_OF_DEFAULT)))


def energy_saving(played: ReplayResult, default: ReplayResult) -> float:
    """Return the energy that was saved against the default, in percent."""
    return float(100 * (1 - played.energies_j.mean() / default.energies_j.mean()))


def settled_percent(played: ReplayResult, oracle: ReplayResult) -> float:
    """Return the mean excess over the new oracle's cost, from the fifth recurrence after the change on, in percent.

    Against what the oracle pays when dealt the same trainings, so that luck that both share does not count.
    """
    start = played.costs.shape[1] // 2 + SETTLED
    excess = (played.costs - oracle.costs)[:, start:].mean()
    return float(100 * excess / played.oracle[start:].mean())


def mean_regret(outcomes: Iterable[tuple[JobCase, ReplayResult]], *, after: int | None = None) -> float | None:
    """Return the mean regret of the cases in percent, after so many recurrences or over the whole of each."""
    found = [_regret(played.costs.mean(axis=0), played.oracle, after) for _, played in outcomes]
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def policy_rows(outcomes: Outcomes) -> list[Row]:
    """Return the means over workloads of each policy on each GPU."""
    groups: dict[tuple[str, str], list[tuple[JobCase, ReplayResult]]] = {}
    for case, played in outcomes:
        groups.setdefault((case.workload.gpu.name, case.policy), []).append((case, played))
    return [
        {
            "gpu": gpu,
            "policy": policy,
            "workloads": len(some),
            **{f"regret_first_{first}_percent": mean_regret(some, after=first) for first in FIRST},
            "regret_percent": mean_regret(some),
            **_beside_default(some, outcomes),
        }
        for (gpu, policy), some in groups.items()
    ]


def _beside_default(some: Outcomes, outcomes: Outcomes) -> Mapping[str, float | None]:
    pairs = [(played, default) for case, played in some if (default := beside(outcomes, case, "default")) is not None]
    savings = [energy_saving(played, default) for played, default in pairs]
    ratios = np.concatenate([worst_ratios(played, default) for played, default in pairs]) if pairs else None
    return {
        "worst_of_default": None if ratios is None else _number(ratios.max()),
        "seeds_above_percent": None if ratios is None else above_percent(ratios),
        "energy_saving_least_percent": min(savings, default=None),
        "energy_saving_most_percent": max(savings, default=None),
    }


def beside(outcomes: Outcomes, case: JobCase, policy: str) -> ReplayResult | None:
    """Return the result of another policy in the same case; None where it was not played."""
    wanted = {**name_of(case), "policy": policy}
    return next((played for other, played in outcomes if name_of(other) == wanted and other.eta == case.eta), None)


def apart(played: ReplayResult, other: ReplayResult) -> float:
    """Return the distance of the mean costs of two policies in standard errors."""
    first, second = played.costs.sum(axis=1), other.costs.sum(axis=1)
    difference = abs(float(first.mean() - second.mean()))
    error = sqrt((_variance(first) / len(first)) + (_variance(second) / len(second)))
    # Where nothing is left to luck, sums in another order differ by rounding.
    return difference / max(error, 1e-9 * float(first.mean()))


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def _regret(costs: Floats, oracle: Floats, first: int | None = None) -> float | None:
    """Return the cost beyond the oracle in percent; None where there are not so many recurrences."""
    if first is not None and first > len(costs):
        return None
    return _number(100 * (costs[:first].sum() / oracle[:first].sum() - 1))


def _first_cost(costs: Floats, first: int) -> float | None:
    return _number(costs[:first].sum()) if first <= len(costs) else None


def _number(value: Any) -> float | None:
    """Return the value, or None where a recurrence was given up or the peer does not report it."""
    return float(value) if np.isfinite(value) else None


OURS, SAFE, PEER = "wattune", "wattune-safe", "zeus"

SHARE = 1 / 3
"""Our regret over Zeus's."""

MOST_ABOVE_PERCENT = 5.0
"""Seeds whose cumulative cost exceeds 1.05 times the default's at some moment."""

NEAR_ORACLE = 3.0
"""Percent above the new oracle after a change."""

AGREEMENT = 4.0
"""Standard errors between our Zeus and its authors': the largest of a dozen comparisons stays below that."""

MOST_S = 120.0
"""Seconds for twenty seeds of all workloads of one GPU."""

FULL_SEEDS = 20


def goals_of(outcomes: Outcomes) -> list[Goal]:
    """Return the goals of all sections that were played."""
    found: list[Goal] = []
    for section in ("horizon", "eta"):
        for eta in _values(case.eta for case in _cases(outcomes, section)):
            some = [pair for pair in outcomes if pair[0].section == section and pair[0].eta == eta]
            found += _regret_goals(f"η {eta:g}", some)
    for held_out, words in ((True, "held out"), (False, "constants chosen on these")):
        made = [pair for pair in outcomes if pair[0].section == "unseen" and is_held_out(pair[0].workload) is held_out]
        found += _regret_goals(f"made-up tables, {words}", made) if made else []
    for drift in _values(case.drift.name for case in _cases(outcomes, "drift") if case.drift):
        found += _drift_goals(drift, [pair for pair in outcomes if pair[0].drift and pair[0].drift.name == drift])
    for load in _values(case.load for case in _cases(outcomes, "overlap") if case.load):
        share = _share([pair for pair in outcomes if pair[0].load == load])
        found.append(at_most(f"overlapping submissions, load {load:g}: regret as a share of zeus's", share, SHARE))
    return found + _agreement(outcomes)


def speed_goal(elapsed_s: float, *, gpus: int, seeds: int, whole: bool) -> Goal:
    """Return the goal on time; a run of fewer seeds, jobs or sections neither meets nor misses it."""
    per_gpu_s = elapsed_s / gpus
    met = per_gpu_s <= MOST_S if whole and seeds >= FULL_SEEDS else None
    return Goal(f"seconds per GPU, {seeds} seeds", per_gpu_s, f"≤ {MOST_S:g} with {FULL_SEEDS} seeds of all", met)


def _regret_goals(name: str, outcomes: Outcomes) -> list[Goal]:
    both = [*_of(outcomes, OURS), *_of(outcomes, PEER)]
    share = f"{name}: regret as a share of zeus's, mean of {len(both) // 2} workloads"
    lengths = {"over the horizon": None, **{f"after {first} recurrences": first for first in (10, 20)}}
    return [
        *(
            at_most(
                f"{share}, {words}", _share(both, after=after), SHARE, note=_error(both, partial(_share, after=after))
            )
            for words, after in lengths.items()
        ),
        at_most(
            f"{name}: workloads with more regret than zeus over the horizon{_named(_behind(outcomes))}",
            float(len(_behind(outcomes))),
            0,
        ),
        *_safety_goals(name, outcomes, OURS),
        *_safe_goals(name, outcomes),
    ]


def _safe_goals(name: str, outcomes: Outcomes) -> list[Goal]:
    """Return what the safe policy keeps and what that costs, where it was played."""
    played = _of(outcomes, SAFE)
    if not played:
        return []
    own, peer = mean_regret(played), mean_regret(_of(outcomes, PEER))
    share = own / peer if own is not None and peer else None
    return [
        Goal(f"{name}: {SAFE}: regret as a share of zeus's over the horizon", share, "none: safety comes first", None),
        *_safety_goals(f"{name}: {SAFE}", outcomes, SAFE),
    ]


def _safety_goals(name: str, outcomes: Outcomes, policy: str) -> list[Goal]:
    """Return goals on the cumulative cost of each seed by itself; means over seeds would hide the worst."""
    ratios = {
        _name(case): worst_ratios(played, default)
        for case, played in _of(outcomes, policy)
        if (default := beside(outcomes, case, "default")) is not None
    }
    worst = max(ratios, key=lambda workload: float(ratios[workload].max()))
    above = above_percent(np.concatenate(list(ratios.values())))
    what = "cumulative cost over the default's"
    decided = [
        decided_ratios(played, default)
        for case, played in _of(outcomes, policy)
        if (default := beside(outcomes, case, "default")) is not None
    ]
    return [
        at_most(
            f"{name}: {what}, worst moment of the worst seed ({worst})", float(ratios[worst].max()), WORST_OF_DEFAULT
        ),
        at_most(
            f"{name}: seeds with {what} above {WORST_OF_DEFAULT:g}",
            above,
            MOST_ABOVE_PERCENT,
            unit=" %",
            note=_by_chance(outcomes),
        ),
        *_decided_goals(name, np.concatenate(decided)),
    ]


def _decided_goals(name: str, ratios: Floats) -> list[Goal]:
    """Return the same two goals on expected costs, so that the luck of single trainings does not count."""
    if np.isnan(ratios).any():
        return []
    what = "expected cost of all decisions over the default's expected cost"
    return [
        at_most(f"{name}: {what}, worst moment of the worst seed", float(ratios.max()), WORST_OF_DEFAULT),
        at_most(
            f"{name}: seeds with {what} above {WORST_OF_DEFAULT:g}",
            above_percent(ratios),
            MOST_ABOVE_PERCENT,
            unit=" %",
            note="luck of the draw left out",
        ),
    ]


def _by_chance(outcomes: Outcomes) -> str | None:
    """Return how often the default itself exceeds the limit as a note; None with a single seed."""
    ratios = [chance_ratios(played) for _, played in _of(outcomes, "default") if len(played.costs) > 1]
    return f"{above_percent(np.concatenate(ratios)):.0f} % of the default's own, by chance" if ratios else None


def _drift_goals(drift: str, outcomes: Outcomes) -> list[Goal]:
    excess = _excess(outcomes)
    worst = max(excess, key=lambda name: excess[name])
    return [
        at_most(
            f"drift {drift}: cost of a run above the new oracle's from 5 recurrences after the change on, "
            f"worst workload ({worst})",
            excess[worst],
            NEAR_ORACLE,
            unit=" %",
            note=_error([*_of(outcomes, OURS), *_of(outcomes, "oracle")], lambda some: max(_excess(some).values())),
        ),
        at_most(
            f"drift {drift}: seeds that were stuck (zeus {_stuck(outcomes, PEER)})", float(_stuck(outcomes, OURS)), 0
        ),
    ]


def _excess(outcomes: Outcomes) -> dict[str, float]:
    """Return by how many percent ours costs more than the new oracle, by workload."""
    return {
        _name(case): settled_percent(played, oracle)
        for case, played in _of(outcomes, OURS)
        if (oracle := beside(outcomes, case, "oracle")) is not None
    }


def _agreement(outcomes: Outcomes) -> list[Goal]:
    """Return how well our Zeus agrees with its authors', where their package is installed."""
    horizon = [pair for pair in outcomes if pair[0].section == "horizon"]
    pairs = [
        (played, theirs)
        for case, played in _of(horizon, PEER)
        if (theirs := beside(horizon, case, PACKAGE)) is not None
    ]
    worst = max((apart(own, theirs) for own, theirs in pairs), default=None)
    name = f"standard errors between zeus and zeus-package, largest of {len(pairs)} workloads"
    return [at_most(name, worst, AGREEMENT)] if horizon else []


def _share(outcomes: Outcomes, *, after: int | None = None) -> float | None:
    """Return our mean regret over the peer's; None where either is unknown."""
    own, theirs = (mean_regret(_of(outcomes, policy), after=after) for policy in (OURS, PEER))
    return own / theirs if own is not None and theirs else None


def _error(outcomes: Outcomes, figure: Callable[[Outcomes], float | None]) -> str | None:
    """Return the standard error of a figure as a note, by leaving out one seed at a time; None with a single seed."""
    seeds = min((len(played.costs) for _, played in outcomes), default=0)
    without = [
        figure([(case, replace(played, costs=np.delete(played.costs, seed, axis=0))) for case, played in outcomes])
        for seed in range(seeds if seeds > 1 else 0)
    ]
    known = [value for value in without if value is not None]
    return f"± {sqrt((len(known) - 1) * float(np.var(known))):.2g}, standard error over seeds" if known else None


def _behind(outcomes: Outcomes) -> list[str]:
    """Return the workloads on which ours costs more than Zeus."""
    return [
        _name(case)
        for case, played in _of(outcomes, OURS)
        if (peer := beside(outcomes, case, PEER)) is not None and played.costs.sum() > peer.costs.sum()
    ]


def _named(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _name(case: JobCase) -> str:
    return f"{case.workload.name.split()[0]} on {case.workload.gpu.name}"


def _stuck(outcomes: Outcomes, policy: str) -> int:
    return sum(int(played.stuck.any(axis=1).sum()) for _, played in _of(outcomes, policy))


def _of(outcomes: Outcomes, policy: str) -> list[tuple[JobCase, ReplayResult]]:
    return [pair for pair in outcomes if pair[0].policy == policy]


def _cases(outcomes: Outcomes, section: str) -> list[JobCase]:
    return [case for case, _ in outcomes if case.section == section]


def _values(values: Iterable[T]) -> list[T]:
    """Return each value once, in order of appearance."""
    return list(dict.fromkeys(values))
