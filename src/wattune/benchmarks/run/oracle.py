"""The best that a fixed setting could do, known beforehand: what savings are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from wattune.benchmarks.run.environment import SimulatedRun
from wattune.benchmarks.run.play import FixedSetting, play
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.run.simulated_program import SimulatedProgram

_CANDIDATES = 4
_SETTLED_C = 60.0


@dataclass(frozen=True, slots=True)
class Standard:
    """What the default takes for its work, and the best fixed setting within the promise."""

    passes: float
    default: Measurement
    best: Setting
    oracle: Measurement

    @property
    def saving(self) -> float:
        """The oracle's, as a share of the default's energy."""
        return 1.0 - self.oracle.energy_j / self.default.energy_j


def standard_of(program: SimulatedProgram, *, seconds: float, slowdown: float) -> Standard:
    """The default for so long, without noise, and the oracle on the same work."""
    run = SimulatedRun(program, noisy=False)
    run.look(FixedSetting("default", window_s=seconds).step((), run.spec))
    passes, default = run.passes, run.spent
    best, oracle = DRIVER_DEFAULT, default
    for setting in _promising(program, slowdown)[:_CANDIDATES]:
        cost = play(FixedSetting("oracle", setting), SimulatedRun(program, noisy=False), passes=passes).cost
        if cost.time_s <= default.time_s * (1 + slowdown) and cost.energy_j < oracle.energy_j:
            best, oracle = setting, cost
    return Standard(passes, default, best, oracle)


def _promising(program: SimulatedProgram, slowdown: float) -> list[Setting]:
    """Settings by the energy of a pass at some warm temperature, cheapest first; those within the promise alone."""
    base_s, _ = _pass(program, DRIVER_DEFAULT)
    found: list[tuple[float, Setting]] = []
    rows = program.model.clocks if program.model.can_lock_mem else program.model.clocks[:1]
    for row, table in enumerate(rows):
        for sm_mhz in table.sm_mhz:
            setting = Setting(sm_mhz, table.mem_mhz if row else None)
            pass_s, energy_j = _pass(program, setting)
            found.append((energy_j if pass_s <= base_s * (1 + slowdown) else inf, setting))
    return [setting for energy_j, setting in sorted(found) if energy_j < inf]


def _pass(program: SimulatedProgram, setting: Setting) -> tuple[float, float]:
    row, columns = program.columns(setting, _SETTLED_C)
    factor = program.leak_factor(_SETTLED_C)
    pass_s = energy_j = 0.0
    for place, units in program.order:
        part, column = program.parts[place], columns[place]
        part_s = units * float(part.time_s[row][column])
        pass_s += part_s
        energy_j += part_s * (float(part.power_w[row][column]) + float(program.leak_w[row][column]) * factor)
    return pass_s, energy_j
