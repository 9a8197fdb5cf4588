"""A GPU stepped through time: a controller that enforces the power limit, temperature, and delayed clock changes.

`tabulate` and `operating_point` compute where a GPU settles; this module computes the way there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattune.core.errors import InputError
from wattune.core.gpu_spec import Switching
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import IDEAL, delay_of
from wattune.physics.played import SteppedTrace
from wattune.physics.player import USUAL, Controller, LoadPlayer
from wattune.physics.spend import tabulate


@dataclass(frozen=True, slots=True)
class Command:
    """A setting requested at a time."""

    time_s: float
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU, its load, and the parameters of its firmware."""

    model: GpuModel
    tables: tuple[LoadTable, ...]
    controller: Controller = USUAL
    switching: Switching = IDEAL
    """How long new clocks take; `model.switching` for the GPU's own."""
    seed: int = 0
    start_c: float | None = None
    """Initial temperature; None: that of an idle GPU."""

    @classmethod
    def of(cls, model: GpuModel, workload: Workload) -> Machine:
        """Make a GPU that repeats a workload."""
        return cls(model=model, tables=tabulate(model, workload))


def play(machine: Machine, seconds: float, *, commands: Sequence[Command] = ()) -> SteppedTrace:
    """Step a GPU from an idle start through `seconds`, with settings that arrive meanwhile."""
    if not seconds > 0:
        raise InputError(f"a GPU plays for more than 0 s, not {seconds}", hint="give a positive time")
    model = machine.model
    start_c = model.thermal.steady_c(model.idle_w) if machine.start_c is None else machine.start_c
    player = LoadPlayer(model, machine.tables, machine.controller, temperature_c=start_c)
    for effect_s, setting, stall_s in _effects(machine, commands):
        if effect_s >= seconds:
            break
        player.advance(max(effect_s - player.time_s, 0.0))
        player.request(setting)
        player.stall(min(stall_s, seconds - player.time_s))
    player.advance(max(seconds - player.time_s, 0.0))
    return _played(machine, player)


def _effects(machine: Machine, commands: Sequence[Command]) -> list[tuple[float, Setting, float]]:
    """When each command takes effect, in the order in which they were given: none overtakes another."""
    effects: list[tuple[float, Setting, float]] = []
    before, last_s = DRIVER_DEFAULT, 0.0
    for number, command in enumerate(sorted(commands, key=lambda command: command.time_s)):
        machine.model.spec().check(command.setting)
        delay = delay_of(
            machine.switching,
            machine.model.change,
            before=before,
            after=command.setting,
            seed=machine.seed,
            number=number,
        )
        last_s = max(last_s, command.time_s + delay.wait_s)
        effects.append((last_s, command.setting, delay.stall_s))
        before = command.setting
    return effects


def _played(machine: Machine, player: LoadPlayer) -> SteppedTrace:
    ticks, tables = player.ticks, machine.tables
    return SteppedTrace(
        start_s=np.array([*(tick.time_s for tick in ticks), player.time_s]),
        energy_j=np.array([*(tick.energy_j for tick in ticks), player.energy_j]),
        temperature_c=np.array([*(tick.temperature_c for tick in ticks), player.temperature_c]),
        sm_mhz=np.array([tables[tick.row].sm_mhz[tick.column] for tick in ticks], dtype=np.int64),
        mem_mhz=np.array([tables[tick.row].mem_mhz for tick in ticks], dtype=np.int64),
        throttle=tuple(tick.throttle for tick in ticks),
        iterations=player.iterations,
        lane=np.array([tick.lane for tick in ticks], dtype=np.int64),
        offset_s=np.array([tick.offset_s for tick in ticks]),
        extra_w=np.array([tick.extra_w for tick in ticks]),
        lanes=tuple(player.lanes),
    )


def simulated_seconds_per_second(machine: Machine, *, seconds: float = 600.0) -> float:
    """Measure how many times faster than real time `play` runs."""
    begun_s = time.perf_counter()
    play(machine, seconds)
    return seconds / (time.perf_counter() - begun_s)
