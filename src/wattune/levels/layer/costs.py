"""Time and energy of every layer of a training step at every setting: what all planners of this level work on.

The numbers come from a simulated GPU (`simulated_costs`), or from a table of measurements (`cost_table`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import InputError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import loaded_point
from wattune.physics.overlap import Communication, communication_cost
from wattune.physics.spend import tabulate
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph
from wattune.response.points import candidates_of

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

FORWARD, BACKWARD, STEP = "forward", "backward", "step"
SCOPES = (FORWARD, BACKWARD, STEP)
"""The passes that a plan may cover; a step is forward, backward, all-reduce and optimizer."""

ALL_REDUCE = "all-reduce"
_ALL_REDUCE_SMS = 16
"""SMs that the collective library takes for an all-reduce; 8 to 24 are usual."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerCosts:
    """Time and energy of each layer at each setting. The layers run in order, over and over."""

    workload: str
    """Name of the network with its batch size."""
    gpu: str
    """Name of the GPU model."""
    simulated: bool
    names: tuple[str, ...]
    """PASS/LAYER, each once, in the order in which they run."""
    settings: tuple[Setting, ...]
    """The first is the default: what the driver does by itself, or the highest measured setting."""
    time_s: Floats
    """(layers, settings)"""
    energy_j: Floats
    """(layers, settings)"""
    waiting_w: float
    """Power while a change of clocks stalls the GPU, at the default setting."""
    clocks_mhz: tuple[tuple[int, int], ...] = ()
    """Core and memory clock that each setting leads to; empty where not known."""

    def __post_init__(self) -> None:
        shape = (len(self.names), len(self.settings))
        if not all(shape):
            raise InputError("there are no layers or no settings to plan for", hint="give at least one of each")
        if self.time_s.shape != shape or self.energy_j.shape != shape:
            raise ValueError(f"costs of shape {self.time_s.shape} for {shape[0]} layers and {shape[1]} settings")
        if not (np.all(self.time_s > 0) and np.all(self.energy_j > 0)):
            raise ValueError("times and energies of layers are positive")
        if len(set(self.names)) != len(self.names):
            raise ValueError("two layers share a name")

    @cached_property
    def graph(self) -> WorkGraph:
        """The layers as a chain; each has options of its own."""
        return WorkGraph.chain(tuple(Operation(name, name) for name in self.names))

    @cached_property
    def _choices(self) -> tuple[StageChoice, ...]:
        return tuple(map(StageChoice, self.settings))

    @property
    def default(self) -> Measurement:
        """One step at the default setting."""
        return Measurement(float(self.time_s[:, 0].sum()), float(self.energy_j[:, 0].sum()))

    def only(self, scope: str) -> LayerCosts:
        """Return the layers of one pass, or all of them for a step."""
        if scope == STEP:
            return self
        rows = [row for row, name in enumerate(self.names) if name.partition("/")[0] == scope]
        if not rows:
            raise InputError(f"{self.workload} has no {scope} pass", hint=f"choose one of {', '.join(SCOPES)}")
        names = tuple(self.names[row] for row in rows)
        return replace(self, names=names, time_s=self.time_s[rows], energy_j=self.energy_j[rows])

    @property
    def by_pass(self) -> LayerCosts:
        """The same with one layer per pass: forward, backward, all-reduce, optimizer."""
        passes = [name.partition("/")[0] for name in self.names]
        starts = [row for row, name in enumerate(passes) if row == 0 or name != passes[row - 1]]
        return replace(
            self,
            names=unique_names([passes[row] for row in starts]),
            time_s=np.add.reduceat(self.time_s, starts, axis=0),
            energy_j=np.add.reduceat(self.energy_j, starts, axis=0),
        )

    def plan(self, columns: Ints, added_s: Floats, *, bound_j: float = 0.0) -> Trial[Plan]:
        """Make the plan with these settings per layer; `added_s` are the stalls and waits before each layer."""
        rows = np.arange(len(self.names))
        time_s = self.time_s[rows, columns] + added_s
        energy_j = self.energy_j[rows, columns] + added_s * self.waiting_w
        choices = tuple(self._choices[column] for column in columns.tolist())
        plan = Plan(self.graph, choices, tuple(time_s.tolist()), tuple(energy_j.tolist()), bound_j)
        return Trial(plan, Measurement(float(time_s.sum()), float(energy_j.sum())))


def simulated_costs(model: GpuModel, workload: Workload, *, all_reduce_gpus: int = 1) -> LayerCosts:
    """Compute the costs of a workload, a layer per phase, on a GPU of the catalogue.

    All are at the temperature at which the GPU settles by default, so that the costs of layers add up. A setting stands
    for the clock that it leads to under the power limit; settings that lead to the same clock count once. With
    `all_reduce_gpus` above 1, the gradients are summed over so many GPUs between backward pass and optimizer.
    """
    settled = tabulate(model, workload)
    point = loaded_point(model, DRIVER_DEFAULT, tuple(table.limited_power_w for table in settled))
    temperature_c = min(model.thermal.steady_c(float(settled[0].mean_power_w[point.column])), model.thermal.slowdown_c)
    tables = tuple(table.merged(_starts(workload)) for table in tabulate(model, workload, temperature_c=temperature_c))
    names = unique_names([phase.name for phase in workload.phases])
    chosen = _effective(model, tables)
    columns = list(chosen.values())
    time_s = np.stack([tables[row].duration_s[:, column] for row, column in columns], axis=1)
    power_w = np.stack([tables[row].power_w[:, column] for row, column in columns], axis=1)
    costs = LayerCosts(
        workload=workload.name,
        gpu=model.name,
        simulated=True,
        names=names,
        settings=tuple(chosen),
        time_s=time_s,
        energy_j=time_s * power_w,
        waiting_w=float(model.context_idle_w(np.array([float(point.sm_mhz)]), point.mem_mhz)[0]),
        clocks_mhz=tuple((model.clocks[row].sm_mhz[column], model.mem_clocks_mhz[row]) for row, column in columns),
    )
    return costs if all_reduce_gpus < 2 else _with_all_reduce(costs, model, workload, columns, all_reduce_gpus)


def _starts(workload: Workload) -> tuple[int, ...]:
    """Return the first row of each phase: work and wait for the host are a row each."""
    rows = [
        max(int(bool(phase.flops or phase.dram_bytes or phase.launches)) + bool(phase.host_stall_s), 1)
        for phase in workload.phases
    ]
    return (0, *np.cumsum(rows)[:-1].tolist())


def _effective(model: GpuModel, tables: tuple[LoadTable, ...]) -> dict[Setting, tuple[int, int]]:
    """Return each useful setting, the default first, with its row and column in the GPU's tables.

    None has a higher core clock than the driver reaches by itself: a plan that used such a clock for the layers of
    highest power alone could exceed the power limit, although the setting as a whole does not.
    """
    power_w = tuple(table.limited_power_w for table in tables)
    highest_mhz = loaded_point(model, DRIVER_DEFAULT, power_w).sm_mhz
    found: dict[tuple[int, int], Setting] = {}
    for setting in (DRIVER_DEFAULT, *sorted(candidates_of(model.spec()), reverse=True)):
        point = loaded_point(model, setting, power_w)
        if point.sm_mhz <= highest_mhz and (point.row, point.column) not in found:
            found[point.row, point.column] = (
                setting if setting == DRIVER_DEFAULT else Setting(point.sm_mhz, setting.mem_mhz)
            )
    return {setting: place for place, setting in found.items()}


def _with_all_reduce(
    costs: LayerCosts, model: GpuModel, workload: Workload, columns: list[tuple[int, int]], gpus: int
) -> LayerCosts:
    """Insert the sum of all gradients before the optimizer, without overlap."""
    gradient_bytes = 4 * (workload.parameters or 0.0)
    if not gradient_bytes:
        raise InputError(f"{workload.name} has no parameters to sum up", hint="leave out the all-reduce")
    communication = Communication.all_reduce(gradient_bytes, gpus=gpus)
    found = {
        row: communication_cost(model, communication, comm_sms=_ALL_REDUCE_SMS, mem_mhz=model.mem_clocks_mhz[row])
        for row in {row for row, _ in columns}
    }
    place = next((row for row, name in enumerate(costs.names) if name == "optimizer"), len(costs.names))
    time_s = np.array([found[row].time_s[column] for row, column in columns])
    energy_j = np.array([found[row].energy_j[column] for row, column in columns])
    return replace(
        costs,
        names=(*costs.names[:place], ALL_REDUCE, *costs.names[place:]),
        time_s=np.insert(costs.time_s, place, time_s, axis=0),
        energy_j=np.insert(costs.energy_j, place, energy_j, axis=0),
    )


def unique_names(names: list[str]) -> tuple[str, ...]:
    """Number the names that occur several times: relu, relu#2, relu#3."""
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return tuple(result)
