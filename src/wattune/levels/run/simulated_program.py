"""What a training program really takes and spends at every setting of a simulated GPU, part by part.

A program is a pass that it repeats: steps, evaluated batches, a checkpoint. Each part has its own time and power at
each core and memory clock, from the same physics as the simulated device. Leakage is kept apart, because it follows the
temperature; a power limit is met by the clock, as `physics.operating_point` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

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
"""A temperature at which leakage is added and taken off again."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramPhase:
    """One unit of a part of the pass (a step, an evaluated batch, a checkpoint): a row per memory clock."""

    name: str
    time_s: tuple[Floats, ...]
    power_w: tuple[Floats, ...]
    """Mean power, but for leakage."""
    limited_w: tuple[Floats, ...]
    """What a power limit acts on, but for leakage."""
    swing_w: tuple[Floats, ...]
    """Standard deviation of the power within the unit."""
    busy: tuple[Floats, ...]
    """Share of the time in which a kernel runs."""
    traffic: tuple[Floats, ...]
    """Share of the memory bandwidth in use."""
    jitter_s: float
    """Standard deviation of the unit's time, from the waits of its host."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedProgram:
    """The parts of a pass, and how often each comes in it, in order."""

    name: str
    model: GpuModel
    parts: tuple[ProgramPhase, ...]
    """The step first."""
    order: tuple[tuple[int, int], ...]
    """(part, units) one after the other."""
    step: Workload
    leak_w: tuple[Floats, ...]
    """Leakage at each clock, at the temperature `leak_at_c` of the part."""

    @property
    def round(self) -> tuple[tuple[int, int], ...]:
        """What repeats within the pass, where evaluations do: the steps and the evaluation after them."""
        for length in range(2, len(self.order) // 2 + 1):
            if self.order[:length] == self.order[length : 2 * length]:
                return self.order[:length]
        return self.order

    def columns(self, setting: Setting, temperature_c: float) -> tuple[int, tuple[int, ...]]:
        """The row of the memory clock, and for each part the column of the core clock that holds."""
        asked = requested_point(self.model, setting)
        most_w = min(power_limit_w(self.model, setting), self.model.thermal.most_w)
        leak_w = self.leak_w[asked.row] * self.leak_factor(temperature_c)
        return asked.row, tuple(
            _highest(part.limited_w[asked.row] + leak_w, most_w, asked.column) for part in self.parts
        )

    def leak_factor(self, temperature_c: float) -> float:
        """Leakage at a temperature over that at `leak_at_c`."""
        core = self.model.core
        return exp(core.leak_per_k * (min(temperature_c, self.model.thermal.slowdown_c) - core.leak_at_c))


def program_of(model: GpuModel, member: FamilyMember) -> SimulatedProgram:
    """A member of the family on a GPU."""
    parts: dict[str, ProgramPhase] = {}
    order: list[tuple[str, int]] = []
    for loop in _parts(member.loop):
        if loop.name not in parts:
            parts[loop.name] = _part(model, loop)
        if order and order[-1][0] == loop.name:
            order[-1] = (loop.name, order[-1][1] + loop.times)
        else:
            order.append((loop.name, loop.times))
    names = sorted(parts, key=lambda name: name != "step")
    places = tuple((names.index(name), times) for name, times in order)
    clocks = [np.array(table.sm_mhz, dtype=np.float64) for table in model.clocks]
    leaks_w = tuple(model.leak_w(sm_mhz, model.core.leak_at_c) for sm_mhz in clocks)
    return SimulatedProgram(member.name, model, tuple(parts[name] for name in names), places, member.step, leaks_w)


def _parts(loop: Loop) -> list[Loop]:
    """The innermost loops that count as units, in order: steps, evaluated batches, single waits."""
    found: list[Loop] = []
    for part in loop.body:
        match part:
            case Loop() if part.name in ("step", "evaluated batch"):
                found.append(part)
            case Loop():
                found.extend(_parts(part) * part.times)
            case Wait():
                found.append(Loop(part.name, (part,)))
            case Phase():
                found.append(Loop(part.name, (part,)))
    return found


def _part(model: GpuModel, loop: Loop) -> ProgramPhase:
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
        jitter_s=sqrt(_variance(once)),
    )


def _variance(loop: Loop) -> float:
    """Variance of one pass of the loop's body, from its waits."""
    total = 0.0
    for part in loop.body:
        match part:
            case Loop():
                total += part.times * _variance(part)
            case Wait():
                total += (part.mean_s * part.spread) ** 2
    return total


def counters(program: SimulatedProgram, row: int, column: int) -> dict[str, float]:
    """What counters of the step would show at a clock: use of tensor and FP32 units, of the memory, and busy share."""
    part, model = program.parts[0], program.model
    time_s = float(part.time_s[row][column])
    clock = np.array([model.clocks[row].sm_mhz[column]], dtype=np.float64)
    used = {"tensor": 0.0, "fp32": 0.0}
    for phase in program.step.phases:
        unit = model.unit(phase.pipe)
        used["fp32" if unit.pipe is Pipe.FP32 else "tensor"] += phase.flops / float(unit.flops(clock)[0])
    dram, busy = float(part.traffic[row][column]), float(part.busy[row][column])
    return {**{name: min(seconds / time_s, 1.0) for name, seconds in used.items()}, "dram": dram, "sm": busy}


def _highest(power_w: Floats, most_w: float, column: int) -> int:
    """The highest clock at or below `column` whose power is allowed; the lowest where none is."""
    allowed = np.flatnonzero(power_w[: column + 1] <= most_w)
    return int(allowed[-1]) if len(allowed) else 0
