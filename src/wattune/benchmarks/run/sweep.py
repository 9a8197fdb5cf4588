"""A recorded sweep that stands for the GPU: only what was measured may be set, and every window has noise.

A window is one look, however long it lasts: its time and its energy are those of the table, each times 1 plus noise.
What is judged is the setting that is held in the end, by the table itself. An evaluation is a setting other than the
reference that was ever set, for however many windows and whatever for; looks count every window that was not held.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from wattune.benchmarks.run.play import PlayOutcome, play
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import SIGMAS_95, Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.devices.table import SweepTable, TableGpu
from wattune.levels.run.policy import CurvePolicy

CONFIDENCE = 0.96
"""The goal is to keep the promise in 95 % of seeds. The setting that is held in the end is judged by itself, so it must
keep the promise by itself."""

HORIZON_S = 86_400.0
"""What is held in the end is what counts, so looks are paid for by a day of it."""

RUN_S = 3600.0
"""A program runs for an hour at its reference."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """One workload of a table."""

    file: str
    workload: str
    costs: dict[Setting, Measurement]
    spec: GpuSpec

    @property
    def reference(self) -> Setting:
        """What savings are measured against: the driver's default or, where that was not recorded, the highest."""
        return DRIVER_DEFAULT if DRIVER_DEFAULT in self.costs else max(self.costs)

    def slowdown(self, setting: Setting) -> float:
        """By the table, against the reference, as a share."""
        return self.costs[setting].time_s / self.costs[self.reference].time_s - 1.0

    def saving(self, setting: Setting) -> float:
        """By the table, against the reference, as a share."""
        return 1.0 - self.costs[setting].energy_j / self.costs[self.reference].energy_j

    def oracle(self, slowdown: float) -> Setting:
        """The setting of least energy within the promise."""
        within = [setting for setting in self.costs if self.slowdown(setting) <= slowdown + 1e-12]
        return max(within, key=self.saving)


def sweeps_of(table: SweepTable) -> tuple[Sweep, ...]:
    """The workloads of a table; the GPU of each has what was measured with it."""
    return tuple(
        Sweep(Path(table.file).name, workload, costs, TableGpu(SweepTable(table.file, {workload: costs})).spec)
        for workload, costs in table.costs.items()
    )


class SweepRun:
    """A program on such a GPU, seen in windows."""

    luck_s = 0.0

    def __init__(self, sweep: Sweep, *, noise: float, seed: int) -> None:
        self.spec = sweep.spec
        self._sweep = sweep
        self._noise = noise
        self._random = np.random.default_rng((seed, sum(sweep.workload.encode())))
        # Tables count iterations or epochs; either way a run takes as long.
        self._scale = RUN_S / 1000.0 / sweep.costs[sweep.reference].time_s
        self.passes = 0.0
        self.spent = Measurement(0.0, 0.0)

    def look(self, order: Order, *, until_passes: float | None = None) -> Window:
        """The window that was ordered."""
        cost = self._sweep.costs[order.setting]
        unit_s, unit_j = cost.time_s * self._scale, cost.energy_j * self._scale
        units = order.least_s / unit_s
        if until_passes is not None:
            units = min(units, until_passes - self.passes)
        start_s = self.spent.time_s
        self.passes += units
        self.spent = self.spent + Measurement(unit_s * units, unit_j * units)
        slower, costlier = np.maximum(1.0 + self._noise * self._random.standard_normal(2), 0.1)
        step_time_s, energy_j = unit_s * float(slower), unit_j * float(costlier)
        error = SIGMAS_95 * self._noise
        # Power is energy over time, so that a unit's time and energy have the noise of the table each.
        interval = Measurement(step_time_s * units, energy_j * units, None, error * energy_j * units)
        return Window(
            setting=order.setting,
            purpose=order.purpose,
            start_s=start_s,
            cost=interval,
            settling=Measurement(0.0, 0.0),
            step_time_s=step_time_s,
            step_time_error_s=error * step_time_s,
            counted=True,
        )


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What became of a seed."""

    chosen: Setting
    """Held in the end."""
    settled: Setting
    """Held first."""
    evaluations: int
    """Settings other than the reference that were set."""
    looks: int
    """Windows at such settings that were tried and not held."""
    baselines: int
    """Windows at the reference, for comparison."""
    run_saving: float
    """Energy saved over the whole run, all looks included, as a share."""
    run_slowdown: float
    changes: int


def play_sweep(sweep: Sweep, *, slowdown: float, noise: float, seed: int) -> SweepOutcome:
    """Our policy on a sweep."""
    policy = CurvePolicy(
        objective=LeastEnergy(slowdown),
        candidates=tuple(sorted(sweep.costs)),
        baseline=sweep.reference,
        confidence=CONFIDENCE,
        held_confidence=CONFIDENCE,
        horizon_s=HORIZON_S,
    )
    outcome: PlayOutcome = play(policy, SweepRun(sweep, noise=noise, seed=seed), passes=1000.0)
    held = [window.setting for window in outcome.windows if window.purpose is Purpose.HOLD]
    held = held or [sweep.reference]
    purposes = [window.purpose for window in outcome.windows]
    default = sweep.costs[sweep.reference] / sweep.costs[sweep.reference].time_s
    return SweepOutcome(
        chosen=held[-1],
        settled=held[0],
        evaluations=len({window.setting for window in outcome.windows} - {sweep.reference}),
        looks=purposes.count(Purpose.TRIAL),
        baselines=purposes.count(Purpose.BASELINE),
        run_saving=1.0 - outcome.cost.energy_j / (RUN_S * default.energy_j),
        run_slowdown=outcome.cost.time_s / RUN_S - 1.0,
        changes=sum(a != b for a, b in pairwise(held)),
    )
