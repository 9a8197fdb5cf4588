"""Power of one busy unit against the clock: by the form alone, and by the simulated GPUs of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.benchmarks.datasets.clock_sweep import SOURCE, read_clock_sweeps
from wattune.benchmarks.physics.judgement import Judgement, relative
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.fit.power_curve import fit_power
from wattune.physics.load_table import Floats
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate

_GOAL = 2.0
_EACH = "each clock in turn"
_REST = "all other clocks"


@dataclass(frozen=True, slots=True)
class Stress:
    """A load that keeps one unit busy, measured by others: requested clock in MHz to mean power in W."""

    gpu: str
    load: str
    power_w: dict[int, float]
    capped: tuple[int, ...]
    """Requested clocks at which the power limit held the GPU back."""


# Means of steady stretches of published runs; the last clock of each is held back by the power limit.
_STRESS = (
    Stress("a100", "DGEMM", {510: 128, 810: 168, 1005: 197.5, 1110: 249, 1200: 300, 1305: 370, 1410: 399}, (1410,)),
    Stress("a40", "SGEMM", {900: 203, 1200: 238, 1740: 299}, (1740,)),
    Stress(
        "a4000",
        "FP32 kernel",
        {405: 43.9, 585: 52.1, 780: 59.0, 960: 65.0, 1155: 72.2, 1335: 79.9, 1530: 103.0, 1710: 133.8, 2100: 139.2},
        (2100,),
    ),
)
_STRESS_SOURCE = {
    "a100": "runs published with arXiv 2607.00819",
    "a40": "runs published with arXiv 2607.00819",
    "a4000": "KernelTuner/kernel_tuner",
}
# The form has four parameters, so it is judged only where at least five points are left.
_FEWEST = 6


def judge_clock_sweep(file: Path) -> list[Judgement]:
    """Each clock of a sweep predicted from the others; a sweep of a few clocks is not judged."""
    return [
        _left_out(f"{file.stem}: {sweep.gpu}, {sweep.kernel}", sweep.sm_mhz, sweep.power_w, source=SOURCE)
        for sweep in read_clock_sweeps(file)
        if len(sweep.sm_mhz) >= _FEWEST
    ]


def judge_stress() -> list[Judgement]:
    """Published stress points: predicted from each other where there are enough, and by the catalogue."""
    found = []
    for stress in _STRESS:
        free = {mhz: power_w for mhz, power_w in stress.power_w.items() if mhz not in stress.capped}
        if len(free) >= _FEWEST and stress.gpu != "a4000":
            sm_mhz, power_w = np.array(list(free), dtype=np.float64), np.array(list(free.values()))
            found.append(_left_out(f"{stress.gpu} {stress.load}", sm_mhz, power_w, source=_STRESS_SOURCE[stress.gpu]))
        found.append(_by_catalogue(stress))
    return found


def _left_out(dataset: str, sm_mhz: Floats, power_w: Floats, *, source: str) -> Judgement:
    ours, plain = [], []
    for place in range(len(sm_mhz)):
        others = np.arange(len(sm_mhz)) != place
        ours.append(float(fit_power(sm_mhz[others], power_w[others]).power_w(sm_mhz[[place]])[0]))
        plain.append(float(PchipInterpolator(sm_mhz[others], power_w[others])(sm_mhz[place])))
    return Judgement(
        dataset=dataset,
        quantity="power",
        fitted_on=_REST,
        judged_on=_EACH,
        errors=relative(np.array(ours), power_w),
        baseline="PCHIP",
        baseline_errors=relative(np.array(plain), power_w),
        goal_percent=_GOAL,
        source=source,
    )


def _by_catalogue(stress: Stress) -> Judgement:
    model = load_model(stress.gpu)
    # Pure arithmetic on the pipe whose rate the load has: FP64 tensor cores of an A100 are as fast as its FP32.
    tables = tabulate(model, Workload(name=stress.load, phases=(Phase(name="multiply", flops=1e14, pipe=Pipe.FP32),)))
    mean_w = tuple(table.mean_power_w for table in tables)
    points = [loaded_point(model, Setting(sm_mhz=mhz), mean_w) for mhz in stress.power_w]
    ours = np.array([mean_w[point.row][point.column] for point in points])
    return Judgement(
        dataset=f"{stress.gpu} (simulated) {stress.load}",
        quantity="power",
        fitted_on="the catalogue, which was set with these points",
        judged_on="all clocks, the power limit acting",
        errors=relative(ours, np.array(list(stress.power_w.values()))),
        goal_percent=_GOAL,
        source=_STRESS_SOURCE[stress.gpu],
    )
