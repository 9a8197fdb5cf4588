"""`wattune bench run --table`: the shipped session on GPUs played from recorded sweeps, beside the oracle.

A program reports its steps, which take a second each at the reference. Each step takes and spends what the table
has for the setting that is set, each times 1 plus noise, so that means over ten seconds have the noise that was asked
for. Whole runs are judged, by what the steps take without the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import ClassVar
from zlib import crc32

import numpy as np

from wattune.core.errors import InputError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, RunPolicy, Window
from wattune.devices.table import SweepTable, TableGpu, read_sweep
from wattune.levels.run.policies import policy_named
from wattune.levels.run.policy import CurvePolicy
from wattune.levels.run.session import RunSession
from wattune_bench.parallel import in_processes
from wattune_bench.result import Bench, Goal, Row, at_least
from wattune_bench.run.outcome import (
    BestSetting,
    PlayedRun,
    RunMark,
    RunRecorder,
    fixed_run,
    policy_means,
    run_row,
)
from wattune_bench.run.policies import DEFAULT, ORACLE, OURS, check_own

GRID = "grid"
HOUR_S = 3600.0
NOISE_S = 10.0
"""The mean of so many seconds has the noise that was asked for: as long as a trial takes."""
LEAST_SAVING_PERCENT = 0.1
"""A share of less than this would be a ratio of noise."""
_ALMOST = 1e-12
_GRID_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBench:
    """The options of the bench."""

    tables: tuple[Path, ...]
    seeds: int = 20
    hours: float = 1.0
    slowdown: float = 0.05
    noise: float = 0.01
    ripple: float = 0.0
    """Standard deviation of factors on the times and energies of the tables, one of each per setting, drawn once."""
    workloads: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    """Policies written elsewhere, which are played beside the others."""
    processes: int = 2


@dataclass(frozen=True, slots=True, eq=False)
class RecordedWorkload:
    """One workload of a table, scaled so that a step takes a second at the reference."""

    file: str
    name: str
    costs: dict[Setting, Measurement]
    """Of one step."""
    steps: int
    """In a run."""

    @classmethod
    def of(cls, file: str, name: str, costs: dict[Setting, Measurement], *, hours: float = 1.0) -> RecordedWorkload:
        scale = 1.0 / costs[_reference(costs)].time_s
        scaled = {setting: Measurement(c.time_s * scale, c.energy_j * scale) for setting, c in costs.items()}
        return cls(file, name, scaled, max(round(hours * HOUR_S), 1))

    @property
    def reference(self) -> Setting:
        """The reference of savings: the driver's default or, where that was not recorded, the highest setting."""
        return _reference(self.costs)

    def oracle(self, slowdown: float) -> BestSetting:
        """Find the setting of least energy within the slowdown limit."""
        most_s = self.costs[self.reference].time_s * (1 + slowdown + _ALMOST)
        within = [setting for setting, cost in self.costs.items() if cost.time_s <= most_s]
        best = min(within, key=lambda setting: self.costs[setting].energy_j)
        return BestSetting(best, *(self._whole(self.costs[one]) for one in (self.reference, best)))

    def _whole(self, step: Measurement) -> Measurement:
        return Measurement(self.steps * step.time_s, self.steps * step.energy_j)

    def mixture_saving(self, slowdown: float) -> float:
        """Return the most that two settings by turns save within the slowdown limit, as a share."""
        default = self.costs[self.reference]
        most_s = default.time_s * (1 + slowdown)
        within = [cost for cost in self.costs.values() if cost.time_s <= most_s * (1 + _ALMOST)]
        beyond = [cost for cost in self.costs.values() if cost.time_s > most_s * (1 + _ALMOST)]
        mixed_j = [_mixed_j(fast, slow, most_s) for fast in within for slow in beyond]
        return 1 - min([cost.energy_j for cost in within] + mixed_j) / default.energy_j


def rippled(costs: dict[Setting, Measurement], ripple: float, *, draw: str) -> dict[Setting, Measurement]:
    """Multiply the time and energy of each setting by a factor of its own; the same draw gives the same factors."""
    random = np.random.default_rng(list(draw.encode()))
    factors = np.exp(ripple * random.standard_normal((len(costs), 2))).tolist()
    return {
        setting: Measurement(cost.time_s * slower, cost.energy_j * costlier)
        for (setting, cost), (slower, costlier) in zip(costs.items(), factors, strict=True)
    }


def _mixed_j(fast: Measurement, slow: Measurement, time_s: float) -> float:
    """Return the energy of a step if the share of steps at each setting makes the mean time this."""
    share = (time_s - fast.time_s) / (slow.time_s - fast.time_s)
    return fast.energy_j + share * (slow.energy_j - fast.energy_j)


def _reference(costs: dict[Setting, Measurement]) -> Setting:
    return DRIVER_DEFAULT if DRIVER_DEFAULT in costs else max(costs)


@dataclass(frozen=True, slots=True)
class GridPolicy:
    """Measures every setting once and holds the best that seemed to be within the slowdown limit."""

    settings: tuple[Setting, ...]
    reference: Setting
    slowdown: float
    name: str = GRID
    tunes: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    needs_counters: ClassVar[bool] = False

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        del spec
        measured = {window.setting: window.unit for window in windows if window.purpose is not Purpose.HOLD}
        todo = [setting for setting in (self.reference, *self.settings) if setting not in measured]
        if todo:
            purpose = Purpose.BASELINE if todo[0] == self.reference else Purpose.TRIAL
            return Order(setting=todo[0], purpose=purpose, least_s=_GRID_S, most_s=_GRID_S)
        base = measured[self.reference]
        within = {
            setting: cost.energy_j
            for setting, cost in measured.items()
            if cost is not None and (base is None or cost.time_s <= base.time_s * (1 + self.slowdown))
        }
        best = min(within, key=lambda setting: within[setting], default=self.reference)
        return Order(setting=best, purpose=Purpose.HOLD, least_s=HOUR_S, most_s=HOUR_S)


def bench_table(asked: TableBench, *, on_step: Callable[[str, int, int], None] | None = None) -> Bench:
    """Play recorded sweeps and judge the whole runs."""
    workloads = _chosen(asked)
    check_own(asked.policies, asked.slowdown)

    def report(done: int) -> None:
        if on_step is not None:
            on_step("playing", done, len(workloads))

    found = in_processes(partial(_all_seeds, asked), workloads, processes=asked.processes, on_case=report)
    rows = [row for each in found for row in each]
    ours = [row for row in rows if row["policy"] == OURS]
    return Bench(
        bench="run",
        simulated=True,
        rows=tuple(rows),
        goals=tuple(_goals(ours)),
        notes=_notes(asked, workloads, ours),
        figures={
            "tables": _by_table(ours),
            "hours": asked.hours,
            "promise_percent": 100 * asked.slowdown,
            "noise_percent": 100 * asked.noise,
            "ripple_percent": 100 * asked.ripple,
            "policies": policy_means(rows),
            "of_mixture_percent": _saved_of(ours, "mixture_saving_percent"),
        },
    )


def _chosen(asked: TableBench) -> list[RecordedWorkload]:
    words = asked.workloads
    tables = [read_sweep(file) for file in asked.tables]
    for table in tables:
        if not table.costs:
            raise InputError(f"{table.file} has no rows", hint="give a sweep CSV, as `wattune sweep --csv` writes")
    found = [
        RecordedWorkload.of(
            table.file,
            name,
            rippled(costs, asked.ripple, draw=f"{Path(table.file).name} {name}") if asked.ripple else costs,
            hours=asked.hours,
        )
        for table in tables
        for name, costs in table.costs.items()
        if not words or any(word in name for word in words)
    ]
    if not found:
        names = dict.fromkeys(name for table in tables for name in table.costs)
        raise InputError(f"{tables[0].file} has no such workload", hint=f"it has {', '.join(names)}")
    return found


def _all_seeds(asked: TableBench, workload: RecordedWorkload) -> list[Row]:
    best, reference = workload.oracle(asked.slowdown), workload.reference
    rows: list[Row] = []
    for seed in range(asked.seeds):
        runs = (
            fixed_run(DEFAULT, reference, best.default, workload.steps),
            *(play_workload(workload, policy, asked, seed=seed) for policy in _policies(workload, asked)),
            fixed_run(ORACLE, best.setting, best.cost, workload.steps),
        )
        for played in runs:
            row = run_row(workload.name, seed, played, best, slowdown=asked.slowdown)
            mixture = 100 * workload.mixture_saving(asked.slowdown)
            more = {"mixture_saving_percent": mixture, "settings": len(workload.costs), "table": workload.file}
            rows.append({**row, **more})
    return rows


def _policies(workload: RecordedWorkload, asked: TableBench) -> tuple[RunPolicy, ...]:
    """Return those to play; ours may set what was recorded, which evenly spaced limits of the GPU need not be."""
    settings, objective = tuple(sorted(workload.costs)), LeastEnergy(asked.slowdown)
    return (
        GridPolicy(settings, workload.reference, asked.slowdown),
        CurvePolicy(objective=objective, candidates=settings, baseline=workload.reference),
        *(policy_named(name, objective) for name in asked.policies),
    )


def play_workload(workload: RecordedWorkload, policy: RunPolicy, asked: TableBench, *, seed: int) -> PlayedRun:
    """Run all steps under the session; what is charged is what the table has for each step."""
    table = SweepTable(workload.file, {workload.name: workload.costs})
    # Each workload has noise of its own: one draw for all would be a single piece of luck.
    own = crc32(f"{Path(workload.file).name} {workload.name} {seed}".encode())
    gpu = TableGpu(table, noise=asked.noise * sqrt(NOISE_S), seed=own)
    session = RunSession((gpu,), objective=LeastEnergy(asked.slowdown), policy=policy)
    recorder, spent, control_s = RunRecorder(session), Measurement(0.0, 0.0), 0.0
    with session:
        for step in range(1, workload.steps + 1):
            measured_as = table.measured_as(gpu.setting)
            assert measured_as is not None
            spent = spent + workload.costs[measured_as]
            gpu.run(workload.name)
            begun_s = process_time()
            session.step()
            control_s += process_time() - begun_s
            recorder.mark(partial(RunMark, spent, step))
    played = recorder.outcome(policy.name, RunMark(spent, workload.steps), control_s)
    return played if played.held != DRIVER_DEFAULT else replace(played, held=workload.reference)


def _goals(ours: Sequence[Row]) -> list[Goal]:
    within = 100 * fmean(row["promise_kept"] for row in ours)
    share = _saved_of(ours, "oracle_saving_percent")
    return [
        at_least("energy saved over whole runs, of the best single setting's", share, 97.0, unit=" %"),
        at_least("whole runs within the slowdown limit", within, 99.0, unit=" %"),
    ]


def _saved_of(ours: Sequence[Row], bound: str) -> float | None:
    """Return the energy saved in percent of a bound; None where next to nothing can be saved."""
    saved, most = (fmean(row[name] for row in ours) for name in ("saving_percent", bound))
    return 100 * saved / most if most >= LEAST_SAVING_PERCENT else None


MEAN, LEAST = "mean", "least of each"


def _by_table(ours: Sequence[Row]) -> list[Row]:
    """Return a row for each table, then their mean and the least of each column."""
    files = dict.fromkeys(row["table"] for row in ours)
    found = [_table_row(file, [row for row in ours if row["table"] == file]) for file in files]
    if len(found) < 2:
        return found
    known = {name: [row[name] for row in found if row[name] is not None] for name in found[0] if name != "table"}
    return found + [
        {"table": word, **{name: each(values) if values else None for name, values in known.items()}}
        for word, each in ((MEAN, fmean), (LEAST, min))
    ]


def _table_row(file: str, own: Sequence[Row]) -> Row:
    return {
        "table": Path(file).name,
        "settings": max(row["settings"] for row in own),
        "runs": len(own),
        "saving_percent": fmean(row["saving_percent"] for row in own),
        "of_single_percent": _saved_of(own, "oracle_saving_percent"),
        "of_mixture_percent": _saved_of(own, "mixture_saving_percent"),
        "promise_kept_percent": 100 * fmean(row["promise_kept"] for row in own),
    }


def _notes(asked: TableBench, workloads: Sequence[RecordedWorkload], ours: Sequence[Row]) -> tuple[str, ...]:
    mixed = _saved_of(ours, "mixture_saving_percent")
    lines = [
        [row for row in ours if (row["table"], row["workload"]) == (workload.file, workload.name)]
        for workload in workloads
    ]
    less = sum((_saved_of(own, "oracle_saving_percent") or 100.0) < 97.0 for own in lines)
    without = sum(workload.reference != DRIVER_DEFAULT for workload in workloads)
    return (
        f"The shipped session on a GPU played from {', '.join(file.name for file in asked.tables)}: "
        f"{workloads[0].steps} steps of a second at the reference, which the program reports. Means of time and energy "
        f"over {NOISE_S:g} s have a noise of {100 * asked.noise:g} %; "
        f"whole runs are judged, search included, by the table's own figures"
        + (f", each with a ripple of {100 * asked.ripple:g} % that was drawn once." if asked.ripple else "."),
        f"{less} of {len(workloads)} workloads saved less than 97 % of what their best single setting saves."
        + ("" if mixed is None else f" All saved {mixed:.1f} % of what the best two settings by turns save."),
        *(
            [
                f"{without} of {len(workloads)} workloads have no row of the driver's default; there the highest "
                f"recorded setting is what slowdown and saving are measured against."
            ]
            if without
            else []
        ),
    )
