"""The truth of a live run, and the judgement of what was claimed of it; pure, so that saved traces can be judged again.

Notation
    n        iterations of the simulated GPU between the ends of the first and the last step of the program
    t0, e0   seconds and joules of an iteration at the driver's default, as the physics of the GPU has them
True saving: 1 - E / (n·e0); true slowdown: T / (n·t0) - 1, with T and E between those two moments. Where the host
delays the program, the simulated GPU goes on with iterations that no step waits for. They count in n, so that a busy
host changes neither, and their share is the delay of the host.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

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
    def of(cls, gpu: str, workload: str, *, slowdown: float) -> Bound:
        """Find the setting that spends least within the slowdown limit."""
        default = iteration_at(gpu, workload, DRIVER_DEFAULT)
        model = load_model(gpu)
        rows = model.clocks if model.can_lock_mem else model.clocks[:1]
        settings = [
            Setting(sm_mhz, table.mem_mhz if len(rows) > 1 else None) for table in rows for sm_mhz in table.sm_mhz
        ]
        costs = iterations_at(gpu, workload, settings)
        within = [one for one in zip(costs, settings, strict=True) if one[0].time_s <= default.time_s * (1 + slowdown)]
        best, setting = min(within, key=lambda one: one[0].energy_j)
        return cls(default, best, setting)

    @property
    def best_saving_percent(self) -> float:
        return 100 * (1 - self.best.energy_j / self.default.energy_j)


def iteration_at(gpu: str, workload: str, setting: Setting) -> Measurement:
    """Return the true time and energy of an iteration at a setting."""
    return iterations_at(gpu, workload, [setting])[0]


def iterations_at(gpu: str, workload: str, settings: Sequence[Setting]) -> list[Measurement]:
    """Return the true time and energy of an iteration at each setting."""
    model = load_model(gpu)
    tables = tabulate(model, make_workload(workload))
    limited_w = tuple(table.limited_power_w for table in tables)
    points = [loaded_point(model, setting, limited_w) for setting in settings]
    return [
        Measurement(
            float(tables[point.row].iteration_s[point.column]), float(tables[point.row].iteration_j[point.column])
        )
        for point in points
    ]


Event = Literal["start", "step", "end"]


@dataclass(frozen=True, slots=True)
class TracePoint:
    """The node at the start of a command, at the end of one of the program's steps, or at the end of the command."""

    event: Event
    time_s: float
    energy_j: float
    iterations: float
    sm_mhz: int
    mem_mhz: int

    @classmethod
    def of(cls, event: Event, moment: Moment) -> TracePoint:
        return cls(event, moment.time_s, moment.energy_j, moment.iterations, moment.sm_mhz, moment.mem_mhz)


_COLUMNS = [field.name for field in fields(TracePoint)]


def trace_text(trace: Sequence[TracePoint]) -> str:
    """Return a trace as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(point, name) for name in _COLUMNS] for point in trace)
    return out.getvalue()


def parse_trace(text: str) -> tuple[TracePoint, ...]:
    """Read a trace from its CSV."""
    return tuple(
        TracePoint(
            row["event"],  # type: ignore[arg-type]
            *(float(row[name]) for name in _COLUMNS[1:4]),
            *(int(row[name]) for name in _COLUMNS[4:]),
        )
        for row in csv.DictReader(io.StringIO(text))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the node says of a run."""

    steps: int
    time_s: float
    energy_j: float
    saving_percent: float
    slowdown_percent: float
    whole_saving_percent: float
    """The same from the start of the command to its end."""
    late_percent: float
    """Share of the iterations for which no step waited, since the host delayed the program."""
    longest_step: float
    """The longest time between two steps, in iterations."""

    @classmethod
    def of(cls, trace: Sequence[TracePoint], default: Measurement) -> Truth | None:
        """Judge a trace; None where the program did fewer than two steps."""
        steps = [point for point in trace if point.event == "step"]
        if len(steps) < 2:
            return None
        first, last = steps[0], steps[-1]
        done = last.iterations - first.iterations
        return cls(
            steps=len(steps) - 1,
            time_s=last.time_s - first.time_s,
            energy_j=last.energy_j - first.energy_j,
            saving_percent=_saving_percent(first, last, default),
            slowdown_percent=100 * ((last.time_s - first.time_s) / (done * default.time_s) - 1),
            whole_saving_percent=_saving_percent(trace[0], trace[-1], default),
            late_percent=100 * (done - (len(steps) - 1)) / done,
            longest_step=float(np.max(np.diff([point.iterations for point in steps]))),
        )


def _saving_percent(first: TracePoint, last: TracePoint, default: Measurement) -> float:
    would_j = (last.iterations - first.iterations) * default.energy_j
    return 100 * (1 - (last.energy_j - first.energy_j) / would_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a tool says of a run; None where it says nothing, or that it is unknown."""

    saving_percent: float | None = None
    saving_error_percent: float | None = None
    """Half-width of the 95 % interval."""
    slowdown_percent: float | None = None
    slowdown_error_percent: float | None = None


def is_held(claimed: float | None, error: float | None, true: float | None) -> bool | None:
    """Return whether the interval of a claim holds the truth; a claim without an interval does not."""
    if claimed is None or true is None:
        return None
    return error is not None and abs(claimed - true) <= error
