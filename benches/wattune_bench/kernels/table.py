"""`wattune bench kernels --table`: measurements until the frontier of a measured sweep is found, search by search.

Notation
    ε   factor, minus 1, by which the points found must be scaled down in time and in energy to dominate the frontier
        of the whole sweep
    n   measurements until ε is at most 0.5 %; beside it the share of the hypervolume that is then found, reference
        1.1 × the largest time and energy of the sweep, a loose one

Every search runs with every seed until it is there; a search with a budget of its own goes on in the same manner. The
searches are the published ones: ours composes whole passes and knows their operations, which a sweep does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattune.core.frontier import History
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.levels.overlap.hypervolume import epsilon, front_places, hypervolume
from wattune.levels.overlap.kareus_search import KareusSearch
from wattune.levels.overlap.search import RandomSearch, Searcher, search
from wattune.response import boosted_trees
from wattune_bench.kernels import peer_search
from wattune_bench.kernels.overlap_table import OverlapTable, Setting, missing_note, read_overlap_tables
from wattune_bench.kernels.peer_search import NSGA, TPE, OptunaSearch
from wattune_bench.parallel import in_processes
from wattune_bench.result import Bench, Row

KAREUS, RANDOM = "kareus", "random"
EPSILON = 0.005
_LOOSE = 1.1
_INITIAL_SHARE = 0.15
"""Of a space, that Kareus measures at random before it models: 96 of 640 to 720, 36 of 180."""

OnStep = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    table: OverlapTable
    search: str
    seed: int
    noisy: bool


def bench_table(
    file: Path, *, seeds: int = 20, on_step: OnStep | None = None, processes: int = 2, noise: bool = False
) -> Bench:
    """Count measurements of all searches on each partition of a sweep; `noise` scatters them as its repeats do."""
    say = on_step or (lambda *_: None)
    tables = read_overlap_tables(file)
    searches = _searches()
    cases = [_Case(table, name, seed, noise) for table in tables for name in searches for seed in range(seeds)]
    rows = in_processes(_row, cases, processes=processes, on_case=lambda done: say("table", done, len(cases)))
    return Bench(
        bench="kernels",
        simulated=False,
        rows=tuple(rows),
        goals=(),
        notes=tuple(_notes(tables, searches, noise)),
        figures={"medians": _medians(rows)},
    )


def _searches() -> tuple[str, ...]:
    peers = (TPE, NSGA) if peer_search.installed() else ()
    return (*((KAREUS,) if boosted_trees.installed() else ()), RANDOM, *peers)


def _row(case: _Case) -> Row:
    history = _history(case)
    places = [case.table.space.place[trial.choice] for trial in history]
    found, costs = case.table.costs[places], case.table.costs
    limit = _LOOSE * costs.max(axis=0)
    front = costs[front_places(costs)]
    reached = epsilon(found, front)
    return {
        "partition": case.table.partition,
        "search": case.search,
        "seed": case.seed,
        "measurements": len(history) if reached <= EPSILON else None,
        "epsilon_percent": 100.0 * reached,
        "hypervolume_ratio": hypervolume(found, limit) / hypervolume(front, limit),
    }


def _history(case: _Case) -> History[Setting]:
    space, costs = case.table.space, case.table.costs
    front = costs[front_places(costs)]
    random = np.random.default_rng((case.seed, 1))

    def measure(setting: Setting) -> Measurement:
        time_s, energy_j = (float(value) for value in costs[space.place[setting]])
        if not case.noisy:
            return Measurement(time_s, energy_j)
        scatter = np.exp(case.table.noise * random.standard_normal(2))
        errors = SIGMAS_95 * case.table.noise * (time_s, energy_j)
        return Measurement(
            time_s * float(scatter[0]), energy_j * float(scatter[1]), *(float(error) for error in errors)
        )

    def there(history: History[Setting]) -> bool:
        return epsilon(costs[[space.place[trial.choice] for trial in history]], front) <= EPSILON

    if case.search in (TPE, NSGA):
        return OptunaSearch(seed=case.seed, name=case.search).run(space, measure, until=there)
    return search(space, _searcher(case), measure, budget=4 * len(space), until=there)


def _searcher(case: _Case) -> Searcher:
    if case.search == RANDOM:
        return RandomSearch(seed=case.seed)
    size = len(case.table.space)
    initial = min(96, max(int(_INITIAL_SHARE * size), 12))
    return KareusSearch(seed=case.seed, initial=initial, batch=max(initial // 3, 4))


def _figures(rows: Iterable[Row], partition: str, name: str) -> tuple[float, float] | None:
    """Return median and 90th percentile of the measurements; a search that never gets there counts as infinite."""
    counts = [
        np.inf if row["measurements"] is None else float(row["measurements"])
        for row in rows
        if row["partition"] == partition and row["search"] == name
    ]
    if not counts:
        return None
    return float(np.median(counts)), float(np.quantile(counts, 0.9, method="higher"))


def _medians(rows: list[Row]) -> list[dict[str, object]]:
    pairs = dict.fromkeys((str(row["partition"]), str(row["search"])) for row in rows)
    found = {pair: _figures(rows, *pair) for pair in pairs}
    return [
        {"partition": partition, "search": name, "median": _finite(figures[0]), "percentile_90": _finite(figures[1])}
        for (partition, name), figures in found.items()
        if figures is not None
    ]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _notes(tables: tuple[OverlapTable, ...], searches: tuple[str, ...], noise: bool) -> Iterable[str]:
    yield (
        "Means of the sweep are the truth, for the searches and for the frontier."
        if not noise
        else ("Every measurement scatters as the repeats of the sweep do; the frontier is that of its means.")
    )
    yield "LightGBM stands for XGBoost in kareus, which goes on with batches until it is there."
    yield from (note for table in tables if (note := missing_note(table)) is not None)
    if KAREUS not in searches:
        yield f"kareus is left out: {boosted_trees.MISSING}; {boosted_trees.MISSING_HINT}"
    if TPE not in searches:
        yield peer_search.MISSING
