"""Measure layers on a GPU: each layer at each setting, over and over until the energy counter resolves it.

At each setting the whole step runs, over and over, until the temperature has settled. Then the layers take turns: each
runs in a window, so many times in a row that the counter's error is small, until all are exact enough. So every layer
is measured at the temperature of the step, and costs of layers add up. The settings are visited in an order that jumps
between high and low ones, so that a slow drift of the room does not look like an effect of the clock.

Notation: P power of a window, w its length, τ thermal time constant. Power approaches its end value as exp(−t/τ), so
what is left to come is about τ/w times the change from one window to the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import Protocol, runtime_checkable

from wattune.control.record_file import appended_records, read_records
from wattune.control.window_state import Measuring, Settling, Until
from wattune.core.errors import DeviceError, InputError
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.devices.gpu import Gpu
from wattune.devices.meter import measured
from wattune.emulator.node import Node
from wattune.levels.layer.costs import unique_names
from wattune.levels.layer.table_file import LayerCell
from wattune.physics.gpu_model import GpuModel
from wattune.physics.spend import tabulate

PRECISION = 0.01
"""Default of the relative error of the energy of a layer."""

THERMAL_S = 50.0
"""τ of a large heat sink (physics/catalog: 25 to 50 s)."""
SETTLING_WINDOW_S = 4.0
"""Length of a window while the temperature settles: long enough that the counter's error is far below `SETTLED`."""
SETTLED = Until(least_steps=2, most_s=6 * THERMAL_S, precision=0.01)
"""When the temperature counts as settled: the error is the relative change of power that is left to come."""

MOST_WINDOWS = 12
"""Windows of one layer at one setting, after which it is as exact as it gets."""
GROWTH = 8.0
"""Largest ratio of the runs of a window to those of the window before."""

REST_S = 0.5
"""Length of the measurement of the power while no kernel runs."""


class LayerRunner(Protocol):
    """Runs the layers of a model on a GPU, one at a time."""

    @property
    def names(self) -> tuple[str, ...]:
        """The layers in the order in which a step runs them."""

    def prepare(self, name: str) -> Callable[[int], None]:
        """Return a function that runs a layer so many times in a row, and waits until that is done."""

    def wait(self, seconds: float) -> None:
        """Let time pass without work, while the program keeps the GPU open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFileHeader:
    """What a file is about to which cells are appended, so that a run that was stopped can continue."""

    format: int = 1
    workload: str
    gpu: str
    simulated: bool
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatedRuns:
    """So many runs in a row, and what they took in all."""

    runs: int
    cost: Measurement

    @property
    def error(self) -> float:
        """Of the energy, relative."""
        return (self.cost.energy_error_j or 0.0) / self.cost.energy_j if self.cost.energy_j else inf

    def __add__(self, other: RepeatedRuns) -> RepeatedRuns:
        return RepeatedRuns(self.runs + other.runs, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class CellChoice:
    """A layer and the setting to measure it at."""

    layer: str
    setting: Setting


StepSettling = Settling[Setting, tuple[Measurement, ...]]
"""A setting, and the windows of whole steps since it was applied."""
CellMeasuring = Measuring[CellChoice, tuple[RepeatedRuns, ...]]


def has_settled(state: StepSettling) -> bool:
    """Return whether the power of the step hardly changes any more."""
    windows = state.since
    drift = inf
    if len(windows) >= 2 and windows[-2].power_w > 0:
        change = abs(windows[-1].power_w / windows[-2].power_w - 1.0)
        drift = change * THERMAL_S / windows[-1].time_s
    return SETTLED.is_over(time_s=sum(one.time_s for one in windows), steps=len(windows), error=drift)


def next_runs(state: CellMeasuring, precision: float) -> int:
    """Return how many runs the next window needs so that the counter's error in it is small enough."""
    if not state.window:
        return 1
    last = state.window[-1]
    return max(ceil(last.runs * min(last.error / precision, GROWTH)), last.runs)


def cell_result(state: CellMeasuring, precision: float) -> RepeatedRuns | None:
    """Return all that counts, once that is enough: windows that were far too short are left out."""
    if not state.window:
        return None
    until = Until(most_steps=MOST_WINDOWS, precision=precision)
    longest = max(window.runs for window in state.window)
    counted = [window for window in state.window if 2 * window.runs >= longest]
    total = sum(counted[1:], start=counted[0])
    return total if until.is_over(steps=len(state.window), error=total.error) else None


@dataclass(frozen=True, slots=True)
class LayerProgress:
    """How many cells of how many have been measured, and the last one."""

    done: int
    total: int
    cell: LayerCell


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayers:
    """What a measurement of layers found."""

    cells: tuple[LayerCell, ...]
    waiting_w: float
    """Power at the default setting while no kernel runs."""


def measure_cells(
    gpu: Gpu,
    runner: LayerRunner,
    settings: Sequence[Setting],
    *,
    workload: str,
    precision: float = PRECISION,
    file: Path | None = None,
    progress: Callable[[LayerProgress], None] | None = None,
) -> MeasuredLayers:
    """Measure every layer at every setting, as far as the file does not have it; the GPU is restored afterwards."""
    _check(gpu, settings, precision)
    names = runner.names
    header = CellFileHeader(workload=workload, gpu=gpu.spec.name, simulated=gpu.spec.simulated, layers=names)
    found = {} if file is None else {(cell.layer, cell.setting): cell for cell in read_records(file, header, LayerCell)}
    wanted = [(layer, setting) for layer in names for setting in dict.fromkeys(settings)]
    with ExitStack() as stack:
        stack.callback(gpu.restore)
        append = None if file is None else stack.enter_context(appended_records(file, header))
        for setting in jumping(settings):
            left = tuple(layer for layer in names if (layer, setting) not in found)
            for cell in _at_setting(gpu, runner, setting, left, precision) if left else ():
                found[cell.layer, cell.setting] = cell
                if append is not None:
                    append(cell)
                if progress is not None:
                    progress(LayerProgress(sum(key in found for key in wanted), len(wanted), cell))
        waiting_w = _waiting_w(gpu, runner)
    return MeasuredLayers(cells=tuple(found[key] for key in wanted), waiting_w=waiting_w)


def jumping(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Order the settings so that each is far from the one before."""
    ordered = sorted(set(settings), reverse=True)
    # In the order of the multiples of the golden ratio, modulo 1, neighbours are about 0.4 or 0.6 of the way apart.
    return tuple(ordered[place] for place in sorted(range(len(ordered)), key=lambda place: place * 0.618034 % 1.0))


def _check(gpu: Gpu, settings: Sequence[Setting], precision: float) -> None:
    if not settings:
        raise InputError("there are no settings to measure at", hint="give at least the driver's default")
    if not 0 < precision < 1:
        raise InputError(f"an error of {precision:g} is no goal", hint="give a share such as 0.01 for 1 %")
    for setting in settings:
        gpu.spec.check(setting)


def _at_setting(
    gpu: Gpu, runner: LayerRunner, setting: Setting, layers: Sequence[str], precision: float
) -> Iterator[LayerCell]:
    """Settle, then let the layers take turns until each is exact enough."""
    gpu.apply(setting)
    _settle(gpu, runner, setting)
    states: list[CellMeasuring] = [Measuring(CellChoice(layer, setting), ()) for layer in layers]
    while states:
        unfinished = []
        for state in states:
            runs, run = next_runs(state, precision), runner.prepare(state.choice.layer)
            with measured(gpu, wait=runner.wait) as span:
                run(runs)
            after = Measuring(state.choice, (*state.window, RepeatedRuns(runs, span.measurement)))
            result = cell_result(after, precision)
            if result is None:
                unfinished.append(after)
            else:
                yield _cell(gpu, state.choice, result)
        states = unfinished


def _settle(gpu: Gpu, runner: LayerRunner, setting: Setting) -> None:
    """Run steps, all runs of a layer in a row, until the power hardly changes any more."""
    state: StepSettling = Settling(setting, ())
    steps = 1
    while not has_settled(state):
        with measured(gpu, wait=runner.wait) as span:
            for name in runner.names:
                runner.prepare(name)(steps)
        time_s = span.measurement.time_s
        if not time_s > 0:
            raise DeviceError(
                f"no time passes on {gpu.spec.label} while layers run", hint="measure on a GPU that runs them"
            )
        if time_s >= SETTLING_WINDOW_S / 2:
            state = Settling(setting, (*state.since, span.measurement))
        steps = max(ceil(steps * min(SETTLING_WINDOW_S / time_s, 100.0)), 1)


def _cell(gpu: Gpu, choice: CellChoice, result: RepeatedRuns) -> LayerCell:
    each = result.cost / result.runs
    if not (each.time_s > 0 and each.energy_j > 0):
        raise DeviceError(
            f"the energy counter of {gpu.spec.label} does not move while {choice.layer} runs",
            hint="see `wattune doctor`",
        )
    return LayerCell(choice.layer, choice.setting, each.time_s, each.energy_j)


def _waiting_w(gpu: Gpu, runner: LayerRunner) -> float:
    gpu.apply(DRIVER_DEFAULT)
    with measured(gpu, wait=runner.wait) as span:
        runner.wait(REST_S)
    return span.measurement.power_w


@runtime_checkable
class RunsWork(Protocol):
    """A GPU that runs described work by itself, as one that is simulated in this process."""

    def run(self, workload: Workload, *, iterations: float = 1) -> None:
        """Run so many iterations, and return when they are done."""

    def idle(self, seconds: float) -> None:
        """Let time pass without work."""


class TracedLayers:
    """Runs the layers of a workload on a GPU that is simulated in this process."""

    def __init__(self, gpu: RunsWork, traced: Workload) -> None:
        self._gpu = gpu
        self._work = _work_of(traced)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._work)

    def prepare(self, name: str) -> Callable[[int], None]:
        return lambda times: self._gpu.run(self._work[name], iterations=times)

    def wait(self, seconds: float) -> None:
        self._gpu.idle(seconds)


class EmulatedLayers:
    """Runs the layers of a workload on a GPU of the emulated NVML library, on behalf of this process."""

    def __init__(self, node: Node, model: GpuModel, traced: Workload, *, index: int = 0) -> None:
        self._node, self._index = node, index
        self._tables = {name: tabulate(model, work) for name, work in _work_of(traced).items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def prepare(self, name: str) -> Callable[[int], None]:
        def run(times: int) -> None:
            self._node.play(self._index, self._tables[name])
            self._node.run(self._index, times)
            self._node.idle(self._index)

        return run

    def wait(self, seconds: float) -> None:
        if self._node.is_virtual:
            self._node.advance(seconds)
        else:
            time.sleep(seconds)


def _work_of(traced: Workload) -> dict[str, Workload]:
    names = unique_names([phase.name for phase in traced.phases])
    return {name: Workload(name=name, phases=(phase,)) for name, phase in zip(names, traced.phases, strict=True)}
