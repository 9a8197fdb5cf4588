"""Published outcomes of training at lower clocks, beside those of the simulated GPUs of the catalogue.

Each row names what its GPU was fitted to, and is judged on something else: other networks, or a saving where only power
curves and times were fitted. Training as it was measured waits for its host. Where others published how the time of a
workload follows the clock, T = a + b·(highest clock/clock), the simulated workload gets the host stall that gives it
this share b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.gpu_model import GpuModel
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload
from wattune_bench.physics.volta import CLOCKS_MHZ, unseen_programs
from wattune_bench.result import Goal, Row

_TITAN_XP = "CNN training on a Titan Xp (pengfei-zou/PowerBound)"
_TANG = "training on P100, V100, 2080 Ti (arXiv 1905.11012)"
_V100 = "17 programs on a V100 SXM2 (zyjopensource/GPU-DVFS-Dataset), mean and its standard error"
_TITAN_X = "CNN training on a Titan X Pascal, memory 5000 to 3500 MHz"

MEASURED_FROM = 0.58
"""Lowest clock over the highest at which the times of the 33 workloads were measured."""
_NETWORK_ACTIVITY = 0.05
"""Power of the arithmetic units of networks on a V100 SXM2 over that of GeMM: our fit of ResNet-50's power, 122 W."""
_HOST_COPIES = 0.075
"""Share of host copies in the training steps on the Titan X: 7 to 8 %."""


@dataclass(frozen=True, slots=True)
class PublishedWorkload:
    """A workload as others measured it: the nearest that we can make, and how its time follows the core clock."""

    name: str
    stands_for: Workload
    clock_share: float | None = None
    """b/(a + b) of the published fit; None where none was published."""
    clocks_mhz: tuple[int, ...] = ()
    """Clocks at which it was measured; all where empty."""

    def on(self, model: GpuModel) -> Workload:
        """Return the workload with the host stall that gives it its clock share; none where it has less already."""
        if self.clock_share is None:
            return self.stands_for
        table = tabulate(model, self.stands_for)[0]
        clocks = np.array(table.sm_mhz, dtype=np.float64)
        used = clocks >= MEASURED_FROM * clocks[-1]
        share = float(np.polyfit(clocks[-1] / clocks[used], table.iteration_s[used], 1)[0] / table.iteration_s[-1])
        return _with_stall(self.stands_for, max(share / self.clock_share - 1.0, 0.0) * float(table.iteration_s[-1]))


def _with_stall(workload: Workload, stall_s: float) -> Workload:
    if not stall_s:
        return workload
    return replace(workload, phases=(*workload.phases, Phase(name="host", host_stall_s=stall_s)))


def _networks(*names: str) -> tuple[PublishedWorkload, ...]:
    return tuple(PublishedWorkload(name, make_workload(name)) for name in names)


def _with_copies(name: str) -> PublishedWorkload:
    """Make a network in FP32, as it was trained, with its host copies; their time is that on an A4000."""
    workload = make_workload(name, pipe=Pipe.FP32)
    table = tabulate(load_model("a4000"), workload)[0]
    busy_s = float(table.iteration_s[_default(load_model("a4000"), (table,))])
    return PublishedWorkload(name, _with_stall(workload, busy_s * _HOST_COPIES / (1.0 - _HOST_COPIES)))


def _volta_programs() -> tuple[PublishedWorkload, ...]:
    programs = unseen_programs(load_model("v100-sxm2"))
    return tuple(PublishedWorkload(program.name, program, clocks_mhz=CLOCKS_MHZ) for program in programs)


def _volta_networks() -> tuple[PublishedWorkload, ...]:
    """Return networks of a V100 with their published times, a + b·(highest clock/clock)."""
    known = (
        ("ResNet-50", "resnet50", 0.49, 0.49),
        ("ResNet-101", "resnet101", 0.46, 0.53),
        ("VGG-19", "vgg19", 0.52, 0.46),
    )
    return tuple(PublishedWorkload(name, _quiet(network), b / (a + b)) for name, network, a, b in known)


def _quiet(name: str) -> Workload:
    workload = make_workload(name)
    return replace(workload, phases=tuple(replace(phase, activity=_NETWORK_ACTIVITY) for phase in workload.phases))


def _default(model: GpuModel, tables: tuple[LoadTable, ...], setting: Setting | None = None) -> int:
    """Return the place of the core clock that a setting, or the driver's default, results in."""
    return loaded_point(model, setting or Setting(), tuple(table.mean_power_w for table in tables)).column


@dataclass(frozen=True, slots=True, eq=False)
class _Training:
    """A workload on a GPU at every core clock, the place at which the driver's default runs, and those that count."""

    table: LoadTable
    default: int
    places: NDArray[np.intp]

    @property
    def best(self) -> int:
        """The place of least energy."""
        return int(self.places[np.argmin(self.table.iteration_j[self.places])])

    def saving_percent(self, place: int) -> float:
        return float(100.0 * (1.0 - self.table.iteration_j[place] / self.table.iteration_j[self.default]))

    def slowdown_percent(self, place: int) -> float:
        return float(100.0 * (self.table.iteration_s[place] / self.table.iteration_s[self.default] - 1.0))

    def saving_within_percent(self, performance: float) -> float:
        """Return the largest saving that keeps this share of the speed."""
        longest_s = self.table.iteration_s[self.default] / performance
        return max(
            self.saving_percent(int(place)) for place in self.places if self.table.iteration_s[place] <= longest_s
        )


@cache
def _training(gpu: str, measured: PublishedWorkload, memory: int = 0) -> _Training:
    model = load_model(gpu)
    tables = tabulate(model, measured.on(model))
    clocks = np.array(tables[memory].sm_mhz)
    counted = np.isin(clocks, measured.clocks_mhz) if measured.clocks_mhz else np.ones(len(clocks), dtype=bool)
    if measured.clock_share is not None:
        counted &= clocks >= MEASURED_FROM * clocks[-1]
    place = _default(model, tables, Setting(mem_mhz=model.mem_clocks_mhz[memory]))
    return _Training(tables[memory], place, np.flatnonzero(counted))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A figure with its published range, what the GPU was fitted to, and how ours is computed."""

    quantity: str
    gpu: str
    fitted_on: str
    workloads: tuple[PublishedWorkload, ...]
    low: float
    high: float
    source: str
    ours: Callable[[str, PublishedWorkload], float]
    stands_in: bool = False
    """True where the range belongs to another GPU: then the row has no goal."""


def judge_published() -> tuple[list[Row], list[Goal]]:
    """Make a row for every published outcome, and a goal for those of the GPU itself."""
    rows: list[Row] = []
    goals: list[Goal] = []
    for outcome in _outcomes():
        ours = fmean(outcome.ours(outcome.gpu, workload) for workload in outcome.workloads)
        low, high, gpu = outcome.low, outcome.high, f"{outcome.gpu} (simulated)"
        inside, nearest = low <= ours <= high, min(max(ours, low), high)
        rows.append(
            {
                "dataset": gpu,
                "quantity": outcome.quantity,
                "fitted_on": outcome.fitted_on,
                "judged_on": ", ".join(workload.name for workload in outcome.workloads),
                "mape_percent": 100.0 * abs(ours - nearest) / max(abs(nearest), 1.0),
                "published_low": low,
                "published_high": high,
                "ours": ours,
                "inside": inside,
                "stands_in": outcome.stands_in,
                "source": outcome.source,
            }
        )
        if not outcome.stands_in:
            goals.append(Goal(f"published: {outcome.quantity}, {gpu}", ours, f"{low:g} to {high:g}", inside))
    return rows, goals


def _outcomes() -> tuple[_Outcome, ...]:
    return (*_on_titan_xp(), *_on_volta_sxm2(), *_on_both_tesla(), *_on_a4000(), *_stand_ins())


def _on_titan_xp() -> list[_Outcome]:
    """Judge the Titan Xp on networks that were not used to fit it."""
    fitted = "catalogue: speed and power of ResNet-50 and VGG-19 on a Titan Xp"
    return [
        _Outcome(quantity, "titan-xp", fitted, _networks("resnet152", "inception3"), low, high, _TITAN_XP, ours)
        for quantity, low, high, ours in (
            ("best clock over highest", 0.714, 0.735, _best_clock),
            ("saving at the best clock, %", 22.2, 26.3, _best_saving),
            ("slowdown at the best clock, %", 9.2, 12.9, _best_slowdown),
            ("saving at performance ≥ 0.99, %", 0.0, 7.0, _within(0.99)),
            ("saving at performance ≥ 0.95, %", 12.0, 20.0, _within(0.95)),
            ("energy under a cap against a lock of equal speed, %", -2.0, 2.0, _cap),
        )
    ]


def _on_volta_sxm2() -> list[_Outcome]:
    """Judge the mean saving of the programs that were not fitted: published mean, less and plus its standard error."""
    fitted = "catalogue: power of 16 other programs; workloads: their published speeds and power at the highest clock"
    return [
        _Outcome(quantity, "v100-sxm2", fitted, _volta_programs(), low, high, _V100, ours)
        for quantity, low, high, ours in (
            ("saving at performance ≥ 0.99, %", 5.7, 12.1, _within(0.99)),
            ("saving at performance ≥ 0.98, %", 9.4, 15.9, _within(0.98)),
            ("saving at performance ≥ 0.95, %", 16.3, 21.6, _within(0.95)),
            ("saving at performance ≥ 0.9, %", 22.0, 26.2, _within(0.90)),
            ("saving at the best clock, %", 29.0, 31.6, _best_saving),
        )
    ]


def _on_both_tesla() -> list[_Outcome]:
    cnns = _volta_networks()
    zeus = "catalogue: ResNet-50 under power limits (ml-energy/zeus); workloads: their published times"
    estimate = "catalogue: estimates alone; workloads: their published times on a V100"
    return [
        _Outcome(quantity, gpu, fitted, cnns, low, high, source, ours)
        for gpu, fitted in (("v100", zeus), ("p100", estimate))
        for quantity, low, high, source, ours in (
            ("best clock over highest", 0.62, 0.735, f"{_TITAN_XP}; steady loads on V100, A100", _best_clock),
            ("saving at the best clock, %", 8.7, 26.3, f"{_TANG}; {_TITAN_XP}", _best_saving),
        )
    ]


def _on_a4000() -> list[_Outcome]:
    fitted = "catalogue: an FP32 kernel; memory power is an estimate"
    cnns = tuple(_with_copies(name) for name in ("resnet50", "resnet152", "vgg19", "inception3"))
    return [
        _Outcome(f"{quantity} with 29 % less memory clock, %", "a4000", fitted, cnns, low, high, _TITAN_X, ours)
        for quantity, low, high, ours in (("time", 15.0, 18.0, _memory_time), ("energy", -5.0, 0.4, _memory_energy))
    ]


def _stand_ins() -> list[_Outcome]:
    """Compare with a Titan Xp, whose default is held back by its limit, GPUs whose default is not."""
    fitted = {"v100": "catalogue: ResNet-50 under power limits (ml-energy/zeus)", "p100": "catalogue: estimates alone"}
    cnns = _networks("resnet50", "resnet152", "vgg19", "inception3")
    return [
        _Outcome(quantity, gpu, fitted[gpu], cnns, low, high, f"stands in: {_TITAN_XP}", ours, stands_in=True)
        for gpu in fitted
        for quantity, low, high, ours in (
            ("slowdown at the best clock, %", 9.2, 12.9, _best_slowdown),
            ("saving at performance ≥ 0.99, %", 0.0, 7.0, _within(0.99)),
            ("saving at performance ≥ 0.95, %", 12.0, 20.0, _within(0.95)),
        )
    ]


def _best_clock(gpu: str, workload: PublishedWorkload) -> float:
    training = _training(gpu, workload)
    return training.table.sm_mhz[training.best] / training.table.sm_mhz[-1]


def _best_saving(gpu: str, workload: PublishedWorkload) -> float:
    training = _training(gpu, workload)
    return training.saving_percent(training.best)


def _best_slowdown(gpu: str, workload: PublishedWorkload) -> float:
    training = _training(gpu, workload)
    return training.slowdown_percent(training.best)


def _within(performance: float) -> Callable[[str, PublishedWorkload], float]:
    return lambda gpu, workload: _training(gpu, workload).saving_within_percent(performance)


def _lowered(gpu: str, workload: PublishedWorkload) -> tuple[LoadTable, LoadTable, int]:
    """Return tables at the default memory clock and near 0.7 of it, and the place of the core clock to compare at."""
    clocks = load_model(gpu).mem_clocks_mhz
    lower = min(range(len(clocks)), key=lambda row: abs(clocks[row] / clocks[0] - 0.7))
    full, less = _training(gpu, workload), _training(gpu, workload, lower)
    return full.table, less.table, min(full.default, less.default)


def _memory_time(gpu: str, workload: PublishedWorkload) -> float:
    full, less, place = _lowered(gpu, workload)
    return float(100.0 * (less.iteration_s[place] / full.iteration_s[place] - 1.0))


def _memory_energy(gpu: str, workload: PublishedWorkload) -> float:
    full, less, place = _lowered(gpu, workload)
    return float(100.0 * (less.iteration_j[place] / full.iteration_j[place] - 1.0))


def _cap(gpu: str, workload: PublishedWorkload) -> float:
    """Compare 160 W of a Titan Xp's 250 with the lock that takes just as long."""
    model, training = load_model(gpu), _training(gpu, workload)
    capped = _default(model, tabulate(model, workload.on(model)), Setting(power_limit_w=160.0))
    time_s = training.table.iteration_s
    locked = int(np.argmin(np.abs(time_s - time_s[capped])))
    return training.saving_percent(locked) - training.saving_percent(capped)
