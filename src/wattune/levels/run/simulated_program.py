"""Time and power of a training step at every clock of a simulated GPU, by the physics of the simulated device.

Leakage is separate, because it follows the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.core.workload import Pipe, Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.spend import tabulate

_ANY_C = 60.0
"""Temperature at which leakage is added and subtracted again."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SimulatedProgram:
    """The step of a program on a GPU: a row per memory clock, with a value per core clock."""

    name: str
    model: GpuModel
    step: Workload
    time_s: tuple[Floats, ...]
    power_w: tuple[Floats, ...]
    """Mean power without leakage."""
    limited_w: tuple[Floats, ...]
    """The power that a power limit acts on, without leakage."""
    busy: tuple[Floats, ...]
    """Share of the time in which a kernel runs."""
    traffic: tuple[Floats, ...]
    """Share of the memory bandwidth in use."""

    @classmethod
    def of(cls, model: GpuModel, step: Workload, *, name: str) -> SimulatedProgram:
        """Tabulate the step of a program on a GPU."""
        tables = tabulate(model, step, temperature_c=_ANY_C)
        leaks_w = [model.leak_w(np.array(table.sm_mhz, dtype=np.float64), _ANY_C) for table in tables]
        return cls(
            name=name,
            model=model,
            step=step,
            time_s=tuple(table.iteration_s for table in tables),
            power_w=tuple(table.mean_power_w - leak_w for table, leak_w in zip(tables, leaks_w, strict=True)),
            limited_w=tuple(table.limited_power_w - leak_w for table, leak_w in zip(tables, leaks_w, strict=True)),
            busy=tuple((table.duration_s * table.sm_util[:, None]).sum(axis=0) / table.iteration_s for table in tables),
            traffic=tuple((table.duration_s * table.mem_util).sum(axis=0) / table.iteration_s for table in tables),
        )


def counters(program: SimulatedProgram, row: int, column: int) -> dict[str, float]:
    """Return the counters of the step at a clock: use of tensor and FP32 units, of the memory, and busy share."""
    model, time_s = program.model, float(program.time_s[row][column])
    clock = np.array([model.clocks[row].sm_mhz[column]], dtype=np.float64)
    used = {"tensor": 0.0, "fp32": 0.0}
    for phase in program.step.phases:
        unit = model.unit(phase.pipe)
        used["fp32" if unit.pipe is Pipe.FP32 else "tensor"] += phase.flops / float(unit.flops(clock)[0])
    dram, busy = float(program.traffic[row][column]), float(program.busy[row][column])
    return {**{name: min(seconds / time_s, 1.0) for name, seconds in used.items()}, "dram": dram, "sm": busy}
