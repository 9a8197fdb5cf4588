"""True time and power of a training program at every setting of a simulated GPU, phase by phase.

A program repeats a pass: steps, evaluated batches, a checkpoint. Each phase has its own time and power at each core
and memory clock, from the same physics as the simulated device. Leakage is separate, because it follows the
temperature; a power limit lowers the clock, as in `physics.operating_point`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.operating_point import power_limit_w, requested_point
from wattune.physics.spend import tabulate
from wattune.workloads.family import FamilyMember
from wattune.workloads.training_run import Loop, Wait, unrolled

_ANY_C = 60.0
"""Temperature at which leakage is added and subtracted again."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPhase:
    """One unit of a phase of the pass (a step, an evaluated batch, a checkpoint): a row per memory clock."""

    name: str
    time_s: tuple[Floats, ...]
    power_w: tuple[Floats, ...]
    """Mean power without leakage."""
    limited_w: tuple[Floats, ...]
    """The power that a power limit acts on, without leakage."""
    swing_w: tuple[Floats, ...]
    """Standard deviation of the power within the unit."""
    busy: tuple[Floats, ...]
    """Share of the time in which a kernel runs."""
    traffic: tuple[Floats, ...]
    """Share of the memory bandwidth in use."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedProgram:
    """The phases of a pass, and their order in it."""

    name: str
    model: GpuModel
    phases: tuple[ProgramPhase, ...]
    """The step first."""
    order: tuple[tuple[int, int], ...]
    """(phase, units) one after the other."""
    step: Workload
    leak_w: tuple[Floats, ...]
    """Leakage at each clock, at the temperature `leak_at_c` of the GPU."""

    @property
    def round(self) -> tuple[tuple[int, int], ...]:
        """Return the shortest repeated sequence within the pass: the steps and the evaluation after them."""
        for length in range(2, len(self.order) // 2 + 1):
            if self.order[:length] == self.order[length : 2 * length]:
                return self.order[:length]
        return self.order

    def columns(self, setting: Setting, temperature_c: float) -> tuple[int, tuple[int, ...]]:
        """Return the row of the memory clock, and for each phase the column of the core clock that is reached."""
        asked = requested_point(self.model, setting)
        most_w = min(power_limit_w(self.model, setting), self.model.thermal.most_w)
        leak_w = self.leak_w[asked.row] * self.leak_factor(temperature_c)
        return asked.row, tuple(
            _highest(phase.limited_w[asked.row] + leak_w, most_w, asked.column) for phase in self.phases
        )

    def leak_factor(self, temperature_c: float) -> float:
        """Return the leakage at a temperature relative to that at `leak_at_c`."""
        core = self.model.core
        return exp(core.leak_per_k * (min(temperature_c, self.model.thermal.slowdown_c) - core.leak_at_c))


def program_of(model: GpuModel, member: FamilyMember) -> SimulatedProgram:
    """Tabulate a member of the family on a GPU."""
    phases: dict[str, ProgramPhase] = {}
    order: list[tuple[str, int]] = []
    for loop in _units(member.loop):
        if loop.name not in phases:
            phases[loop.name] = _tabulated(model, loop)
        if order and order[-1][0] == loop.name:
            order[-1] = (loop.name, order[-1][1] + loop.times)
        else:
            order.append((loop.name, loop.times))
    names = sorted(phases, key=lambda name: name != "step")
    places = tuple((names.index(name), times) for name, times in order)
    clocks = [np.array(table.sm_mhz, dtype=np.float64) for table in model.clocks]
    leaks_w = tuple(model.leak_w(sm_mhz, model.core.leak_at_c) for sm_mhz in clocks)
    return SimulatedProgram(member.name, model, tuple(phases[name] for name in names), places, member.step, leaks_w)


def _units(loop: Loop) -> list[Loop]:
    """Return the innermost loops that count as units, in order: steps, evaluated batches, single waits."""
    found: list[Loop] = []
    for item in loop.body:
        match item:
            case Loop() if item.name in ("step", "evaluated batch"):
                found.append(item)
            case Loop():
                found.extend(_units(item) * item.times)
            case Wait() | Phase():
                found.append(Loop(item.name, (item,)))
    return found


def _tabulated(model: GpuModel, loop: Loop) -> ProgramPhase:
    once = Loop(loop.name, loop.body)
    workload = Workload(name=loop.name, phases=tuple(unrolled(once, seed=None)))
    tables = tabulate(model, workload, temperature_c=_ANY_C)
    leaks_w = [model.leak_w(np.array(table.sm_mhz, dtype=np.float64), _ANY_C) for table in tables]
    means_w = [table.mean_power_w for table in tables]
    return ProgramPhase(
        name=loop.name,
        time_s=tuple(table.iteration_s for table in tables),
        power_w=tuple(mean_w - leak_w for mean_w, leak_w in zip(means_w, leaks_w, strict=True)),
        limited_w=tuple(table.limited_power_w - leak_w for table, leak_w in zip(tables, leaks_w, strict=True)),
        swing_w=tuple(
            np.sqrt((table.duration_s * (table.power_w - mean_w) ** 2).sum(axis=0) / table.iteration_s)
            for table, mean_w in zip(tables, means_w, strict=True)
        ),
        busy=tuple((table.duration_s * table.sm_util[:, None]).sum(axis=0) / table.iteration_s for table in tables),
        traffic=tuple((table.duration_s * table.mem_util).sum(axis=0) / table.iteration_s for table in tables),
    )


def counters(program: SimulatedProgram, row: int, column: int) -> dict[str, float]:
    """Return the counters of the step at a clock: use of tensor and FP32 units, of the memory, and busy share."""
    phase, model = program.phases[0], program.model
    time_s = float(phase.time_s[row][column])
    clock = np.array([model.clocks[row].sm_mhz[column]], dtype=np.float64)
    used = {"tensor": 0.0, "fp32": 0.0}
    for kernel in program.step.phases:
        unit = model.unit(kernel.pipe)
        used["fp32" if unit.pipe is Pipe.FP32 else "tensor"] += kernel.flops / float(unit.flops(clock)[0])
    dram, busy = float(phase.traffic[row][column]), float(phase.busy[row][column])
    return {**{name: min(seconds / time_s, 1.0) for name, seconds in used.items()}, "dram": dram, "sm": busy}


def _highest(power_w: Floats, most_w: float, column: int) -> int:
    """Return the highest clock at or below `column` whose power is allowed; the lowest where none is."""
    allowed = np.flatnonzero(power_w[: column + 1] <= most_w)
    return int(allowed[-1]) if len(allowed) else 0
