"""`wattune bench run --live SECONDS --contended RUNS`: a busy host must not look like a program that changed.

Constant programs on simulated GPUs in wall time are tuned end to end by the shipped session, all of a load at once,
while so many other processes keep the CPU busy. A change that the session notices is false, and the true slowdown, by
the iterations that the GPU has done, is held against the limit.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import fmean

from wattune.benchmarks.result import Goal, Row, at_most
from wattune.core.objective import LeastEnergy
from wattune.core.workload import Workload
from wattune.devices.passing_time import VirtualTime, WallTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.figures import figures_of
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

LOADS = (0, 2, 8, 16)
"""Processes that keep the CPU busy."""
WORKLOADS = ("resnet50:256", "bert-large:256")
"""Steps of half a second, which show in power at once, and of three seconds, which show seldom."""
_SPIN = "while True: pass"
_BEFORE_S = 200.0


@dataclass(frozen=True, slots=True)
class ContendedRun:
    """The outcome of one run."""

    false_changes: int
    slowdown: float
    """The true one, by the iterations of the simulated GPU."""
    claimed: float | None
    """The slowdown that the report gives; None where it claims nothing."""
    late_ticks: int


@contextmanager
def busy_cpu(processes: int) -> Iterator[None]:
    """Keep the CPU busy with so many processes until the block ends."""
    with ExitStack() as stack:
        for _ in range(processes):
            spinning = subprocess.Popen([sys.executable, "-S", "-c", _SPIN])
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        yield


def contended_rows(
    gpu: str,
    *,
    runs: int,
    seconds: float,
    slowdown: float,
    on_step: Callable[[str], None] | None = None,
    loads: Sequence[int] = LOADS,
) -> tuple[Row, ...]:
    """Tune so many constant programs at once under each load."""
    rows = []
    for load in loads:
        if on_step is not None:
            on_step(f"tunes {runs} programs at once for {seconds:g} s under a load of {load}")
        with busy_cpu(load):
            outcomes = _played(gpu, runs=runs, seconds=seconds, slowdown=slowdown)
        rows.append(_row(load, outcomes, slowdown))
    return tuple(rows)


def contended_goals(rows: Sequence[Row]) -> tuple[Goal, ...]:
    """Judge the rows of all loads together."""
    runs = sum(row["runs"] for row in rows)
    note = f"of {runs} runs"
    return (
        at_most("false changes on a busy host", sum(row["false_changes"] for row in rows), 0, note=note),
        at_most("limits broken on a busy host", sum(row["limits_broken"] for row in rows), 0, note=note),
    )


def _played(gpu: str, *, runs: int, seconds: float, slowdown: float) -> list[ContendedRun]:
    made = [_program(gpu, place, slowdown) for place in range(runs)]
    with ExitStack() as stack:
        for one in made:
            stack.enter_context(one.session)
        time.sleep(seconds)
    return [_outcome(one, gpu, place, slowdown) for place, one in enumerate(made)]


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """A program that never changes, on a GPU of its own; where it was when the watch began."""

    session: RunSession
    device: SimulatedGpu
    start_s: float
    start_iterations: float


def _program(gpu: str, place: int, slowdown: float) -> _Program:
    device = SimulatedGpu(load_model(gpu), index=place, time=WallTime(), seed=place)
    device.play(_workload(place))
    timeline, start_s = device.present()
    session = RunSession((device,), objective=LeastEnergy(slowdown))
    return _Program(session, device, start_s, timeline.iterations(start_s))


def _workload(place: int) -> Workload:
    return make_workload(WORKLOADS[place % len(WORKLOADS)])


def _outcome(program: _Program, gpu: str, place: int, slowdown: float) -> ContendedRun:
    session = program.session
    timeline, now_s = program.device.present()
    done = timeline.iterations(now_s) - program.start_iterations
    claimed = figures_of(session.progress.windows, gpus=1, slowdown_limit=slowdown).slowdown
    return ContendedRun(
        false_changes=len(session.progress.changes),
        slowdown=(now_s - program.start_s) / (done * _default_s(gpu, place)) - 1,
        claimed=None if claimed is None else claimed.value,
        late_ticks=session.loop.late_ticks,
    )


def _default_s(gpu: str, place: int) -> float:
    """Return the time of an iteration at the driver's own clocks."""
    clock = VirtualTime()
    device = SimulatedGpu(load_model(gpu), index=place, time=clock, seed=place)
    device.play(_workload(place))
    clock.wait(_BEFORE_S)
    timeline, now_s = device.present()
    return now_s / timeline.iterations(now_s)


def _row(load: int, outcomes: Sequence[ContendedRun], slowdown: float) -> Row:
    wrong = [abs(one.claimed - one.slowdown) for one in outcomes if one.claimed is not None]
    return {
        "load": load,
        "runs": len(outcomes),
        "false_changes": sum(one.false_changes for one in outcomes),
        "limits_broken": sum(one.slowdown > slowdown for one in outcomes),
        "slowdown_most_percent": 100 * max(one.slowdown for one in outcomes),
        "claims": len(wrong),
        "claim_error_most_percent": 100 * max(wrong) if wrong else None,
        "late_ticks": fmean(one.late_ticks for one in outcomes),
    }
