"""What the bench of recurring jobs should come to, each figure against Zeus in the same run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from wattune.benchmarks.job.cases import PACKAGE, JobCase, ReplayResult
from wattune.benchmarks.job.figures import (
    WORST_OF_DEFAULT,
    Outcomes,
    above_percent,
    apart,
    beside,
    mean_regret,
    settled_percent,
    worst_ratios,
)
from wattune.benchmarks.result import Goal, at_most

T = TypeVar("T")

OURS, PEER = "wattune", "zeus"

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
    """The goals of all sections that were played."""
    found: list[Goal] = []
    for section in ("horizon", "eta"):
        for eta in _values(case.eta for case in _cases(outcomes, section)):
            some = [pair for pair in outcomes if pair[0].section == section and pair[0].eta == eta]
            found += _regret_goals(f"η {eta:g}", some)
    for drift in _values(case.drift.name for case in _cases(outcomes, "drift") if case.drift):
        found += _drift_goals(drift, [pair for pair in outcomes if pair[0].drift and pair[0].drift.name == drift])
    for load in _values(case.load for case in _cases(outcomes, "overlap") if case.load):
        found += _overlap_goals(load, [pair for pair in outcomes if pair[0].load == load])
    return found + _agreement(outcomes)


def speed_goal(elapsed_s: float, *, gpus: int, seeds: int, whole: bool) -> Goal:
    """How long it took; a run of fewer seeds, jobs or sections neither meets nor misses it."""
    per_gpu_s = elapsed_s / gpus
    met = per_gpu_s <= MOST_S if whole and seeds >= FULL_SEEDS else None
    return Goal(f"seconds per GPU, {seeds} seeds", per_gpu_s, f"≤ {MOST_S:g} with {FULL_SEEDS} seeds of all", met)


def _regret_goals(name: str, outcomes: Outcomes) -> list[Goal]:
    ours, peers = _of(outcomes, OURS), _of(outcomes, PEER)
    share = f"{name}: regret as a share of zeus's, mean of {len(ours)} workloads"
    return [
        at_most(f"{share}, over the horizon", _share(ours, peers), SHARE),
        *(
            at_most(f"{share}, after {first} recurrences", _share(ours, peers, after=first), SHARE)
            for first in (10, 20)
        ),
        at_most(
            f"{name}: workloads with more regret than zeus over the horizon{_named(_behind(outcomes))}",
            float(len(_behind(outcomes))),
            0,
        ),
        *_safety_goals(name, outcomes),
    ]


def _safety_goals(name: str, outcomes: Outcomes) -> list[Goal]:
    """Goals on the cumulative cost of each seed by itself; means over seeds would hide the worst."""
    ratios = {
        _name(case): worst_ratios(played, default)
        for case, played in _of(outcomes, OURS)
        if (default := beside(outcomes, case, "default")) is not None
    }
    worst = max(ratios, key=lambda workload: float(ratios[workload].max()))
    above = above_percent(np.concatenate(list(ratios.values())))
    what = "cumulative cost over the default's"
    return [
        at_most(
            f"{name}: {what}, worst moment of the worst seed ({worst})", float(ratios[worst].max()), WORST_OF_DEFAULT
        ),
        at_most(f"{name}: seeds with {what} above {WORST_OF_DEFAULT:g}", above, MOST_ABOVE_PERCENT, unit=" %"),
    ]


def _drift_goals(drift: str, outcomes: Outcomes) -> list[Goal]:
    ours = _of(outcomes, OURS)
    excess = {
        _name(case): settled_percent(played, oracle)
        for case, played in ours
        if (oracle := beside(outcomes, case, "oracle")) is not None
    }
    worst = max(excess, key=lambda name: excess[name])
    return [
        at_most(
            f"drift {drift}: cost of a run above the new oracle's from 5 recurrences after the change on, "
            f"worst workload ({worst})",
            excess[worst],
            NEAR_ORACLE,
            unit=" %",
        ),
        at_most(
            f"drift {drift}: seeds that were stuck (zeus {_stuck(outcomes, PEER)})", float(_stuck(outcomes, OURS)), 0
        ),
    ]


def _overlap_goals(load: float, outcomes: Outcomes) -> list[Goal]:
    ours, peers = _of(outcomes, OURS), _of(outcomes, PEER)
    return [at_most(f"overlapping submissions, load {load:g}: regret as a share of zeus's", _share(ours, peers), SHARE)]


def _agreement(outcomes: Outcomes) -> list[Goal]:
    """How well our Zeus agrees with its authors', where their package is installed."""
    horizon = [pair for pair in outcomes if pair[0].section == "horizon"]
    pairs = [
        (played, theirs)
        for case, played in _of(horizon, PEER)
        if (theirs := beside(horizon, case, PACKAGE)) is not None
    ]
    worst = max((apart(own, theirs) for own, theirs in pairs), default=None)
    name = f"standard errors between zeus and zeus-package, largest of {len(pairs)} workloads"
    return [at_most(name, worst, AGREEMENT)] if horizon else []


def _share(ours: Outcomes, peers: Outcomes, *, after: int | None = None) -> float | None:
    """Our mean regret over the peer's; None where either is unknown."""
    own, theirs = mean_regret(ours, after=after), mean_regret(peers, after=after)
    return own / theirs if own is not None and theirs else None


def _behind(outcomes: Outcomes) -> list[str]:
    """The workloads on which we pay more than Zeus."""
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
    """Each value once, in order of appearance."""
    return list(dict.fromkeys(values))
