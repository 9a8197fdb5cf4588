"""`wattune bench physics`: fits on measurements that they have not seen, and the catalogue on published outcomes.

Published outcomes are what others measured when they trained at lower clocks. Not all of their GPUs are in the
catalogue; where one is missing, a GPU of the same kind represents it, and the row names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median

import numpy as np

from wattune.benchmarks.datasets import overlap_sweep, stage_profiles, zeus_profiles, zeus_tables
from wattune.benchmarks.datasets.clock_sweep import is_clock_sweep
from wattune.benchmarks.datasets.find import data_files, with_columns
from wattune.benchmarks.physics.fits import (
    judge_clock_sweep,
    judge_overlap,
    judge_profiles,
    judge_stages,
    judge_stress,
    judge_table,
)
from wattune.benchmarks.physics.judgement import Judgement
from wattune.benchmarks.physics.streams import judge_streams
from wattune.benchmarks.result import Bench, Goal, Row
from wattune.core.setting import Setting
from wattune.core.workload import Workload
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload, workload_names

OnFile = Callable[[Path], None]

_NOTES = (
    "Fits never see what they are judged on. Three limits, four clocks and thirty settings are chosen as each row "
    "states, the same for every file.",
    "Priors and shapes were chosen by errors at points left out of the public V100, A40 and A100 files, so the figures "
    "of these are somewhat optimistic; files of other GPUs are the stricter test.",
    "noise floor: error of the best monotone curve through all points, those judged on included. Where it is near the "
    "goal, the measurements themselves scatter about as much.",
)
_TABULATED = (("a100", "resnet50"), ("a100-80gb", "gpt3-175b@1/8:1"))


def bench_physics(data: Path | None, *, on_file: OnFile | None = None) -> Bench:
    """Run all comparisons that the files under `data` allow, and those with published figures, which need none."""
    judgements = [*(_judge_files(data, on_file or _ignored) if data else []), *judge_stress()]
    published, published_goals = judge_published()
    notes = [*_NOTES, *_speed_notes()]
    if data is None:
        notes.append("No measurements were given, so no fit was judged: use --data DIR or set WATTUNE_DATA.")
    return Bench(
        bench="physics",
        simulated=True,
        rows=(*(judgement.row for judgement in judgements), *published),
        goals=(*(judgement.goal for judgement in judgements if judgement.goal is not None), *published_goals),
        notes=tuple(notes),
    )


def _judge_files(data: Path, on_file: OnFile) -> list[Judgement]:
    files = data_files(data)
    found: list[Judgement] = []
    for file in with_columns(files, zeus_tables.COLUMNS):
        on_file(file)
        found += judge_table(file)
    found += judge_profiles(with_columns(files, zeus_profiles.COLUMNS))
    for columns, judge in (
        (stage_profiles.COLUMNS, judge_stages),
        (overlap_sweep.COLUMNS, judge_overlap),
        (overlap_sweep.COLUMNS, judge_streams),
    ):
        for file in with_columns(files, columns):
            on_file(file)
            found += judge(file)
    for file in files:
        if file.suffix == ".json" and is_clock_sweep(file):
            on_file(file)
            found += judge_clock_sweep(file)
    return found


def _ignored(file: Path) -> None:
    del file


def _speed_notes() -> list[str]:
    """Report how long a table of all clocks takes."""
    notes = []
    for gpu, name in _TABULATED:
        model, workload = load_model(gpu), make_workload(name)
        milliseconds = median(_tabulate_ms(model, workload) for _ in range(9))
        notes.append(
            f"An iteration of {workload.name} on {gpu} (simulated) at all {len(model.clocks[0].sm_mhz)} clocks at "
            f"once: {milliseconds:.2f} ms."
        )
    return notes


def _tabulate_ms(model: GpuModel, workload: Workload) -> float:
    start_s = time.perf_counter()
    tabulate(model, workload)
    return (time.perf_counter() - start_s) * 1000


_TITAN_XP = "CNN training on a Titan Xp (pengfei-zou/PowerBound)"
_TANG = "training on P100, V100, 2080 Ti (arXiv 1905.11012)"
_V100 = "33 workloads on a V100 SXM2 (zyjopensource/geepafs), from median to mean"
_TITAN_X = "CNN training on a Titan X Pascal, memory 5000 to 3500 MHz"

_CNNS = ("resnet50", "resnet152", "vgg19", "inception3")
"""The networks trained on the Titan Xp."""
_TOO_LARGE = ("gpt3-175b", "llama3.3-70b", "llama3.2-3b", "qwen3-1.7b")
"""Too large for a V100, or newer than the measurements of its 33 workloads."""


@dataclass(frozen=True, slots=True, eq=False)
class _Training:
    """A workload on a GPU at every core clock, and the place at which the driver's default runs."""

    table: LoadTable
    default: int

    @property
    def best(self) -> int:
        """The place of least energy."""
        return int(np.argmin(self.table.iteration_j))

    def saving_percent(self, place: int) -> float:
        return float(100.0 * (1.0 - self.table.iteration_j[place] / self.table.iteration_j[self.default]))

    def slowdown_percent(self, place: int) -> float:
        return float(100.0 * (self.table.iteration_s[place] / self.table.iteration_s[self.default] - 1.0))

    def saving_within_percent(self, performance: float) -> float:
        """Return the largest saving that keeps this share of the speed."""
        fast = self.table.iteration_s <= self.table.iteration_s[self.default] / performance
        return max(self.saving_percent(int(place)) for place in np.flatnonzero(fast))


@cache
def _training(gpu: str, workload: str, memory: int = 0) -> _Training:
    model = load_model(gpu)
    tables = tabulate(model, make_workload(workload))
    setting = Setting(mem_mhz=model.mem_clocks_mhz[memory])
    point = loaded_point(model, setting, tuple(table.mean_power_w for table in tables))
    return _Training(tables[memory], point.column)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A figure with its published range, and how ours is computed for a GPU and a workload."""

    quantity: str
    gpu: str
    workloads: tuple[str, ...]
    low: float
    high: float
    source: str
    ours: Callable[[str, str], float]


def judge_published() -> tuple[list[Row], list[Goal]]:
    """Make a row and a goal for every published outcome."""
    rows: list[Row] = []
    goals: list[Goal] = []
    for outcome in _outcomes():
        ours = fmean(outcome.ours(outcome.gpu, workload) for workload in outcome.workloads)
        low, high, gpu = outcome.low, outcome.high, f"{outcome.gpu} (simulated)"
        inside, nearest = low <= ours <= high, min(max(ours, low), high)
        several = len(outcome.workloads) > len(_CNNS)
        rows.append(
            {
                "dataset": gpu,
                "quantity": outcome.quantity,
                "fitted_on": "the catalogue",
                "judged_on": f"mean of {len(outcome.workloads)} workloads" if several else ", ".join(outcome.workloads),
                "mape_percent": 100.0 * abs(ours - nearest) / max(abs(nearest), 1.0),
                "published_low": low,
                "published_high": high,
                "ours": ours,
                "inside": inside,
                "source": outcome.source,
            }
        )
        goals.append(Goal(f"published: {outcome.quantity}, {gpu}", ours, f"{low:g} to {high:g}", inside))
    return rows, goals


def _outcomes() -> tuple[_Outcome, ...]:
    every = tuple(name for name in workload_names() if name not in _TOO_LARGE)
    titan = [
        _Outcome(quantity, gpu, _CNNS, low, high, source, ours)
        for gpu in ("v100", "p100")
        for quantity, low, high, source, ours in (
            ("best clock over highest", 0.62, 0.735, f"{_TITAN_XP}; steady loads on V100, A100", _best_clock),
            ("saving at the best clock, %", 8.7, 26.3, f"{_TANG}; {_TITAN_XP}", _best_saving),
            ("slowdown at the best clock, %", 9.2, 12.9, _TITAN_XP, _best_slowdown),
            ("saving at performance ≥ 0.99, %", 0.0, 7.0, _TITAN_XP, _within(0.99)),
            ("saving at performance ≥ 0.95, %", 12.0, 20.0, _TITAN_XP, _within(0.95)),
        )
    ]
    v100 = [
        _Outcome(f"saving at performance ≥ {share:g}, %", "v100-sxm2", every, low, high, _V100, _within(share))
        for share, low, high in ((0.99, 4.6, 10.4), (0.95, 18.2, 20.7), (0.90, 25.5, 26.8))
    ]
    memory = [
        _Outcome("time with 29 % less memory clock, %", "a4000", _CNNS, 15.0, 18.0, _TITAN_X, _memory_time),
        _Outcome("energy with 29 % less memory clock, %", "a4000", _CNNS, -5.0, 0.4, _TITAN_X, _memory_energy),
    ]
    cap = _Outcome("energy under a cap against a lock of equal speed, %", "v100", _CNNS, -2.0, 2.0, _TITAN_XP, _cap)
    return (*titan, *v100, *memory, cap)


def _best_clock(gpu: str, workload: str) -> float:
    training = _training(gpu, workload)
    return training.table.sm_mhz[training.best] / training.table.sm_mhz[-1]


def _best_saving(gpu: str, workload: str) -> float:
    training = _training(gpu, workload)
    return training.saving_percent(training.best)


def _best_slowdown(gpu: str, workload: str) -> float:
    training = _training(gpu, workload)
    return training.slowdown_percent(training.best)


def _within(performance: float) -> Callable[[str, str], float]:
    return lambda gpu, workload: _training(gpu, workload).saving_within_percent(performance)


def _lowered(gpu: str, workload: str) -> tuple[LoadTable, LoadTable, int]:
    """Return tables at the default memory clock and near 0.7 of it, and the place of the core clock to compare at."""
    clocks = load_model(gpu).mem_clocks_mhz
    lower = min(range(len(clocks)), key=lambda row: abs(clocks[row] / clocks[0] - 0.7))
    full, less = _training(gpu, workload), _training(gpu, workload, lower)
    return full.table, less.table, min(full.default, less.default)


def _memory_time(gpu: str, workload: str) -> float:
    full, less, place = _lowered(gpu, workload)
    return float(100.0 * (less.iteration_s[place] / full.iteration_s[place] - 1.0))


def _memory_energy(gpu: str, workload: str) -> float:
    full, less, place = _lowered(gpu, workload)
    return float(100.0 * (less.iteration_j[place] / full.iteration_j[place] - 1.0))


def _cap(gpu: str, workload: str) -> float:
    """Compare 0.64 of the default limit, as 160 W of a Titan Xp's 250, with the lock that takes just as long."""
    model, training = load_model(gpu), _training(gpu, workload)
    limit_w = max(0.64 * model.default_limit_w, model.power_limits.min_w if model.power_limits else 0.0)
    mean_w = tuple(table.mean_power_w for table in tabulate(model, make_workload(workload)))
    capped = loaded_point(model, Setting(power_limit_w=limit_w), mean_w)
    time_s = training.table.iteration_s
    locked = int(np.argmin(np.abs(time_s - time_s[capped.column])))
    return training.saving_percent(locked) - training.saving_percent(capped.column)
