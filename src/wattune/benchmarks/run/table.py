"""`wattune bench run --table`: recorded sweeps as GPUs, by wattune, by measuring everything, and by the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from wattune.benchmarks.result import Bench, Goal, Row, at_least, at_most
from wattune.benchmarks.run.bound import provable_saving
from wattune.benchmarks.run.case import one_thread_each
from wattune.benchmarks.run.policies import DEFAULT, ORACLE, OURS
from wattune.benchmarks.run.sweep import Sweep, play_sweep, sweeps_of
from wattune.core.errors import InputError
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.table import read_sweep

GRID = "grid"
"""Measures every setting once and takes the best that seemed to keep the promise."""

POLICIES = (DEFAULT, GRID, OURS, ORACLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBench:
    """What is to be played."""

    table: Path
    seeds: int = 20
    slowdown: float = 0.05
    noise: float = 0.01
    workloads: tuple[str, ...] = ()
    processes: int = 2


def bench_table(asked: TableBench, *, on_step: Callable[[str, int, int], None] | None = None) -> Bench:
    """How near the choices come to the best recorded one, and whether they keep the promise."""
    sweeps = _chosen(sweeps_of(read_sweep(asked.table)), asked.workloads, asked.table)
    rows: list[Row] = []
    for done, found in enumerate(_played(sweeps, asked)):
        rows += found
        if on_step is not None:
            on_step("playing", done + 1, len(sweeps))
    return Bench(
        bench="run",
        simulated=True,
        rows=tuple(rows),
        goals=tuple(_goals([row for row in rows if row["policy"] == OURS])),
        notes=_notes(asked, sweeps, rows),
        figures={
            "table": asked.table.name,
            "promise_percent": 100 * asked.slowdown,
            "noise_percent": 100 * asked.noise,
            "policies": [_mean_row(name, rows) for name in POLICIES],
            "provable_points": fmean(row["oracle_saving_percent"] - row["provable_saving_percent"] for row in rows),
        },
    )


def _played(sweeps: tuple[Sweep, ...], asked: TableBench) -> Iterator[list[Row]]:
    """The rows of each sweep, in their order."""
    if asked.processes < 2 or len(sweeps) < 2:
        yield from (_all_seeds(sweep, asked) for sweep in sweeps)
        return
    with ExitStack() as stack:
        stack.enter_context(one_thread_each())
        pool = stack.enter_context(ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")))
        stack.callback(pool.shutdown, cancel_futures=True)
        yield from pool.map(_all_seeds, sweeps, [asked] * len(sweeps))


def _all_seeds(sweep: Sweep, asked: TableBench) -> list[Row]:
    return [row for seed in range(asked.seeds) for row in _rows(sweep, asked, seed)]


def _chosen(sweeps: tuple[Sweep, ...], words: tuple[str, ...], table: Path) -> tuple[Sweep, ...]:
    for word in words:
        if not any(word in sweep.workload for sweep in sweeps):
            known = ", ".join(sweep.workload for sweep in sweeps[:5])
            raise InputError(f"{table} has no workload {word!r}", hint=f"it has {known}")
    found = tuple(sweep for sweep in sweeps if not words or any(word in sweep.workload for word in words))
    if not found:
        raise InputError(f"{table} has no rows", hint="give a sweep CSV, as `wattune sweep --csv` writes")
    return found


def _rows(sweep: Sweep, asked: TableBench, seed: int) -> list[Row]:
    ours = play_sweep(sweep, slowdown=asked.slowdown, noise=asked.noise, seed=seed)
    found: list[Row] = [
        _row(sweep, asked, seed, policy=DEFAULT, chosen=sweep.reference, evaluations=0),
        _row(sweep, asked, seed, policy=GRID, chosen=_grid(sweep, asked, seed), evaluations=len(sweep.costs) - 1),
        _row(sweep, asked, seed, policy=OURS, chosen=ours.chosen, evaluations=ours.evaluations),
        _row(sweep, asked, seed, policy=ORACLE, chosen=sweep.oracle(asked.slowdown), evaluations=0),
    ]
    found[2] = {
        **found[2],
        "looks": ours.looks,
        "baselines": ours.baselines,
        "run_saving_percent": 100 * ours.run_saving,
        "run_slowdown_percent": 100 * ours.run_slowdown,
        "changes": ours.changes,
        "settled": str(ours.settled),
    }
    return found


def _row(
    sweep: Sweep, asked: TableBench, seed: int, *, policy: str, chosen: Setting, evaluations: int
) -> dict[str, Any]:
    slower = sweep.slowdown(chosen)
    return {
        "workload": sweep.workload,
        "policy": policy,
        "seed": seed,
        "saving_percent": 100 * sweep.saving(chosen),
        "oracle_saving_percent": 100 * sweep.saving(sweep.oracle(asked.slowdown)),
        "provable_saving_percent": 100 * provable_saving(sweep, slowdown=asked.slowdown, noise=asked.noise),
        "slowdown_percent": 100 * slower,
        "promise_kept": slower <= asked.slowdown + 1e-12,
        "evaluations": evaluations,
        "looks": evaluations,
        "baselines": min(evaluations, 1),
        "run_saving_percent": 100 * sweep.saving(chosen),
        "run_slowdown_percent": 100 * slower,
        "settings": len(sweep.costs),
        "held": str(chosen),
        "changes": 0,
        "settled": str(chosen),
    }


def _grid(sweep: Sweep, asked: TableBench, seed: int) -> Setting:
    """The best within the promise by one noisy measurement of each."""
    random = np.random.default_rng((seed, 7))
    seen = {
        setting: (cost.time_s * (1 + asked.noise * one), cost.energy_j * (1 + asked.noise * two))
        for (setting, cost), (one, two) in zip(
            sweep.costs.items(), random.standard_normal((len(sweep.costs), 2)), strict=True
        )
    }
    most_s = seen[sweep.reference][0] * (1 + asked.slowdown)
    return min((setting for setting in seen if seen[setting][0] <= most_s), key=lambda setting: seen[setting][1])


def _mean_row(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    own = [row for row in rows if row["policy"] == name]
    return {
        "policy": name,
        "runs": len(own),
        "saving_percent": fmean(row["saving_percent"] for row in own),
        "points_from_oracle": fmean(row["oracle_saving_percent"] - row["saving_percent"] for row in own),
        "slowdown_percent": fmean(row["slowdown_percent"] for row in own),
        "slowdown_most_percent": max(row["slowdown_percent"] for row in own),
        "promise_kept_percent": 100 * fmean(row["promise_kept"] for row in own),
        "evaluations": fmean(row["evaluations"] for row in own),
        "looks": fmean(row["looks"] for row in own),
        "run_saving_percent": fmean(row["run_saving_percent"] for row in own),
    }


def _goals(ours: Sequence[Row]) -> list[Goal]:
    points = fmean(row["oracle_saving_percent"] - row["saving_percent"] for row in ours)
    return [
        at_most("points of saving from the oracle's", points, 1.0),
        at_least("seeds that keep the promise", 100 * fmean(row["promise_kept"] for row in ours), 95.0, unit=" %"),
        at_most("settings evaluated, at most", max(row["evaluations"] for row in ours), 6),
    ]


def _notes(asked: TableBench, sweeps: Sequence[Sweep], rows: Sequence[Row]) -> tuple[str, ...]:
    ours = [row for row in rows if row["policy"] == OURS]
    points = fmean(row["oracle_saving_percent"] - row["provable_saving_percent"] for row in ours)
    spent = fmean(row["oracle_saving_percent"] - row["run_saving_percent"] for row in ours)
    notes = [
        f"played from {asked.table.name}: only recorded settings are set; every window, trial or held, is off by "
        f"{100 * asked.noise:g} % in time and in energy; the setting held in the end is judged by the table.",
        f"a setting counts as evaluated once, however often it is looked at: {fmean(row['looks'] for row in ours):.0f} "
        f"looks at trials and {fmean(row['baselines'] for row in ours):.0f} at the reference in a run, on average. "
        f"Over the whole hour, with all looks, the saving is {spent:.1f} points from the oracle's.",
        f"with as many looks as an hour has, a policy that knew what every setting saves could prove all but "
        f"{points:.2f} points of the oracle's saving.",
    ]
    without = sum(sweep.reference != DRIVER_DEFAULT for sweep in sweeps)
    if without:
        notes.append(
            f"{without} of {len(sweeps)} workloads have no row of the driver's default; there the highest recorded "
            f"setting is what slowdown and saving are measured against."
        )
    return tuple(notes)
