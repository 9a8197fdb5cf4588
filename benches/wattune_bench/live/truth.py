"""The truth of a live run; pure, so that saved traces can be judged again.

Notation
    n        iterations of the simulated GPU between the ends of the first and the last step of the program
    t0, e0   seconds and joules of an iteration at the driver's default, as the physics of the GPU has them
True saving: 1 - E / (n·e0); true slowdown: T / (n·t0) - 1, with T and E between those two moments. Where the host
delays the program, the simulated GPU goes on with iterations that no step waits for. They count in n, so that a busy
host changes neither, and their share is the delay of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.emulator.node import Moment
from wattune.physics.catalog import load_model
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload


@dataclass(frozen=True, slots=True)
class Bound:
    """What physics says of a workload on a GPU: an iteration at the default, and at the best fixed setting."""

    default: Measurement
    best: Measurement
    best_setting: Setting

    @classmethod
    @cache
    def of(cls, gpu: str, workload: str, *, slowdown: float) -> Bound:
        """Find the setting that spends least within the slowdown limit."""
        model = load_model(gpu)
        tables = tabulate(model, make_workload(workload))
        limited_w = tuple(table.limited_power_w for table in tables)

        def cost(setting: Setting) -> Measurement:
            point = loaded_point(model, setting, limited_w)
            table = tables[point.row]
            return Measurement(float(table.iteration_s[point.column]), float(table.iteration_j[point.column]))

        rows = model.clocks if model.can_lock_mem else model.clocks[:1]
        settings = [
            Setting(mhz, table.mem_mhz if row else None) for row, table in enumerate(rows) for mhz in table.sm_mhz
        ]
        costs = {setting: cost(setting) for setting in (DRIVER_DEFAULT, *settings)}
        default = costs[DRIVER_DEFAULT]
        within = [setting for setting in costs if costs[setting].time_s <= default.time_s * (1 + slowdown)]
        best = min(within, key=lambda setting: costs[setting].energy_j)
        return cls(default, costs[best], best)

    @property
    def best_saving_percent(self) -> float:
        return 100 * (1 - self.best.energy_j / self.default.energy_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """The node at the end of a step, or at the start or end of the command."""

    event: str
    """start, step or end"""
    time_s: float
    energy_j: float
    iterations: float
    sm_mhz: int
    mem_mhz: int

    @classmethod
    def of(cls, event: str, moment: Moment) -> Self:
        return cls(
            event=event,
            time_s=moment.time_s,
            energy_j=moment.energy_j,
            iterations=moment.iterations,
            sm_mhz=moment.sm_mhz,
            mem_mhz=moment.mem_mhz,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the node says of a run, between the first and the last step."""

    steps: int
    time_s: float
    energy_j: float
    saving_percent: float
    slowdown_percent: float
    whole_saving_percent: float
    """From the start of the command to its end."""
    step_energy_j: float
    """Of a step of the program, delays of the host included."""
    late_percent: float
    """Share of the iterations for which no step waited, since the host delayed the program."""

    @classmethod
    def of(cls, trace: Sequence[TracePoint], default: Measurement) -> Self | None:
        """Judge a trace, from start to end; None where the program did fewer than two steps."""
        steps = [point for point in trace if point.event == "step"]
        if len(steps) < 2:
            return None
        time_s, energy_j, done = _between(steps[0], steps[-1])
        _, whole_j, whole = _between(trace[0], trace[-1])
        return cls(
            steps=len(steps) - 1,
            time_s=time_s,
            energy_j=energy_j,
            saving_percent=100 * (1 - energy_j / (done * default.energy_j)),
            slowdown_percent=100 * (time_s / (done * default.time_s) - 1),
            whole_saving_percent=100 * (1 - whole_j / (whole * default.energy_j)),
            step_energy_j=energy_j / (len(steps) - 1),
            late_percent=100 * (done - (len(steps) - 1)) / done,
        )


def _between(first: TracePoint, last: TracePoint) -> tuple[float, float, float]:
    """Return seconds, joules and iterations."""
    return last.time_s - first.time_s, last.energy_j - first.energy_j, last.iterations - first.iterations
