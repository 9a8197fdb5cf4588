"""What others measured when they trained at lower clocks, beside what the simulated GPUs of the catalogue do.

The parts on which the outcomes were measured are not all in the catalogue; where they are not, a part of the same kind
stands for them, and the row says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from wattune.benchmarks.result import Goal, Row
from wattune.core.setting import Setting
from wattune.physics.catalog import load_model
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload, workload_names

_TITAN_XP = "CNN training on a Titan Xp (pengfei-zou/PowerBound)"
_TANG = "training on P100, V100, 2080 Ti (arXiv 1905.11012)"
_V100 = "33 workloads on a V100 SXM2 (zyjopensource/geepafs), from median to mean"
_TITAN_X = "CNN training on a Titan X Pascal, memory 5000 to 3500 MHz"

_CNNS = ("resnet50", "resnet152", "vgg19", "inception3")
"""What was trained on the Titan Xp."""
_TOO_LARGE = ("gpt3-175b", "llama3.3-70b", "llama3.2-3b", "qwen3-1.7b")
"""Do not fit a V100, or were not thought of when its 33 workloads were measured."""


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
        """Energy saved against the default."""
        return float(100.0 * (1.0 - self.table.iteration_j[place] / self.table.iteration_j[self.default]))

    def slowdown_percent(self, place: int) -> float:
        """Time lost against the default."""
        return float(100.0 * (self.table.iteration_s[place] / self.table.iteration_s[self.default] - 1.0))

    def saving_within_percent(self, performance: float) -> float:
        """The largest saving that keeps this share of the speed."""
        fast = self.table.iteration_s <= self.table.iteration_s[self.default] / performance
        return max(self.saving_percent(int(place)) for place in np.flatnonzero(fast))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A figure with its published range, and how ours is found."""

    quantity: str
    gpu: str
    workloads: tuple[str, ...]
    low: float
    high: float
    source: str
    ours: Callable[[str, str], float]
    """Of a GPU and a workload."""


@cache
def _training(gpu: str, workload: str, memory: int = 0) -> _Training:
    model = load_model(gpu)
    tables = tabulate(model, make_workload(workload))
    setting = Setting(mem_mhz=model.mem_clocks_mhz[memory])
    point = loaded_point(model, setting, tuple(table.mean_power_w for table in tables))
    return _Training(tables[memory], point.column)


def judge_published() -> tuple[list[Row], list[Goal]]:
    """A row and a goal for every published outcome."""
    rows: list[Row] = []
    goals: list[Goal] = []
    for outcome in _outcomes():
        ours = fmean(outcome.ours(outcome.gpu, workload) for workload in outcome.workloads)
        inside = outcome.low <= ours <= outcome.high
        rows.append(_row(outcome, ours, inside))
        gpu = f"{outcome.gpu} (simulated)"
        goals.append(
            Goal(f"published: {outcome.quantity}, {gpu}", ours, f"{outcome.low:g} to {outcome.high:g}", inside)
        )
    return rows, goals


def _row(outcome: _Outcome, ours: float, inside: bool) -> Row:
    nearest = min(max(ours, outcome.low), outcome.high)
    return {
        "dataset": f"{outcome.gpu} (simulated)",
        "quantity": outcome.quantity,
        "fitted_on": "the catalogue",
        "judged_on": ", ".join(outcome.workloads)
        if len(outcome.workloads) <= len(_CNNS)
        else _count(outcome.workloads),
        "mape_percent": 100.0 * abs(ours - nearest) / max(abs(nearest), 1.0),
        "published_low": outcome.low,
        "published_high": outcome.high,
        "ours": ours,
        "inside": inside,
        "source": outcome.source,
    }


def _count(workloads: Sequence[str]) -> str:
    return f"mean of {len(workloads)} workloads"


def _outcomes() -> tuple[_Outcome, ...]:
    known = workload_names()
    cnns = tuple(name for name in _CNNS if name in known)
    every = tuple(name for name in known if name not in _TOO_LARGE)
    titan = [
        _Outcome(quantity, gpu, cnns, low, high, source, ours)
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
        _Outcome("time with 29 % less memory clock, %", "a4000", cnns, 15.0, 18.0, _TITAN_X, _memory_time),
        _Outcome("energy with 29 % less memory clock, %", "a4000", cnns, -5.0, 0.4, _TITAN_X, _memory_energy),
    ]
    cap = _Outcome("energy under a cap against a lock of equal speed, %", "v100", cnns, -2.0, 2.0, _TITAN_XP, _cap)
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


def _lowered(gpu: str, workload: str) -> tuple[_Training, _Training, int]:
    """At the default memory clock, at the one nearest to 0.7 of it, and the place of the core clock to compare at."""
    clocks = load_model(gpu).mem_clocks_mhz
    lower = min(range(len(clocks)), key=lambda row: abs(clocks[row] / clocks[0] - 0.7))
    full, less = _training(gpu, workload), _training(gpu, workload, lower)
    return full, less, min(full.default, less.default)


def _memory_time(gpu: str, workload: str) -> float:
    full, less, place = _lowered(gpu, workload)
    return float(100.0 * (less.table.iteration_s[place] / full.table.iteration_s[place] - 1.0))


def _memory_energy(gpu: str, workload: str) -> float:
    full, less, place = _lowered(gpu, workload)
    return float(100.0 * (less.table.iteration_j[place] / full.table.iteration_j[place] - 1.0))


def _cap(gpu: str, workload: str) -> float:
    """At 0.64 of the default limit, as 160 W of a Titan Xp's 250, against the lock that takes just as long."""
    model, training = load_model(gpu), _training(gpu, workload)
    limit_w = max(0.64 * model.default_limit_w, model.power_limits.min_w if model.power_limits else 0.0)
    mean_w = tuple(table.mean_power_w for table in tabulate(model, make_workload(workload)))
    capped = loaded_point(model, Setting(power_limit_w=limit_w), mean_w)
    time_s = training.table.iteration_s
    locked = int(np.argmin(np.abs(time_s - time_s[capped.column])))
    return training.saving_percent(locked) - training.saving_percent(capped.column)
