"""A GPU stepped through time: a controller that enforces the power limit, temperature, and delayed clock changes.

`tabulate` and `operating_point` compute where a GPU settles; this module computes the way there.

Notation: T temperature, P power of the tick, Π its running average; T' = (ambient + R·P − T)/τ.
The state is mutable, unlike elsewhere in the physics, because it changes millions of times.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp

import numpy as np

from wattune.core.errors import InputError
from wattune.core.gpu_spec import Switching
from wattune.core.reading import Throttle
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.load_table import FIRMWARE_AVERAGE_S, LoadTable
from wattune.physics.operating_point import IDEAL, delay_of, power_limit_w, requested_point
from wattune.physics.played import STALLED, Lane, SteppedTrace, Tick
from wattune.physics.spend import tabulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Parameters of the power controller; firmware does not publish its own."""

    tick_s: float = 0.02
    average_s: float = FIRMWARE_AVERAGE_S
    """Time constant of the power average that it compares with the limit."""
    step_mhz: int = 15
    step_share: float = 0.03
    """One step down for each such share of the limit that the average lies above it."""
    patience: int = 5
    """Ticks between two steps up."""
    relief_k: float = 2.0
    """The clock may rise again once the GPU is this much below its slowdown temperature."""

    @property
    def keep(self) -> float:
        """Weight of the old average after one tick."""
        return exp(-self.tick_s / self.average_s)

    def steps_down(self, average_w: float, limit_w: float) -> int:
        if average_w <= limit_w:
            return 0
        return ceil((average_w - limit_w) / (self.step_share * limit_w))


USUAL = Controller()


class LoadPlayer:
    """A GPU that plays a load, tick by tick; `ticks` collects the state at the start of each."""

    def __init__(
        self, model: GpuModel, tables: tuple[LoadTable, ...], controller: Controller, *, temperature_c: float
    ) -> None:
        self._model, self._tables, self._controller = model, tables, controller
        self.lanes: list[Lane] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._number = 0
        self.ticks: list[Tick] = []
        self.time_s = self.energy_j = 0.0
        self.temperature_c = temperature_c
        self.laps = 0
        self._average_w = model.idle_w
        self._offset_s = self._spent_j = 0.0
        self._wait = 0
        self._why = Throttle.NONE
        self._step = max(round(controller.step_mhz / _spacing_mhz(model)), 1)
        self._column = self._ceiling = len(tables[0].sm_mhz) - 1
        self.request(DRIVER_DEFAULT)

    @property
    def iterations(self) -> float:
        return self.laps + self._offset_s / self._lane.ends_s[-1]

    def request(self, setting: Setting) -> None:
        """Apply these clocks and this limit."""
        point = requested_point(self._model, setting)
        was_free = self._column == self._ceiling
        self._ceiling, self._locked = point.column, point.throttle
        self._limit_w = power_limit_w(self._model, setting)
        self._row = point.row
        self._why = self._why if self._column < self._ceiling else Throttle.NONE
        self._throttle = self._locked | self._why
        self._enter(self._ceiling if was_free else min(self._column, self._ceiling))

    def advance(self, seconds: float) -> None:
        tick_s = self._controller.tick_s
        keep, cool = self._controller.keep, exp(-tick_s / self._model.thermal.tau_s)
        end_s = self.time_s + seconds
        for _ in range(int(seconds / tick_s + 1e-9)):
            self._tick(tick_s, keep, cool)
        rest_s = end_s - self.time_s
        if rest_s > 1e-12:
            self._tick(rest_s, exp(-rest_s / self._controller.average_s), exp(-rest_s / self._model.thermal.tau_s))

    def stall(self, seconds: float) -> None:
        """Let time pass in which no kernel runs, as when a new clock takes effect."""
        if seconds <= 0:
            return
        lane, core = self._lane, self._model.core
        power_w = lane.idle_w + lane.leak_w * float(core.leak_factor(self.temperature_c))
        self._note(STALLED, power_w)
        self.time_s += seconds
        self.energy_j += power_w * seconds
        self._warm(power_w, exp(-seconds / self._model.thermal.tau_s))

    def _tick(self, tick_s: float, keep: float, cool: float) -> None:
        lane, core = self._lane, self._model.core
        factor = exp(core.leak_per_k * (self.temperature_c - core.leak_at_c))
        extra_w = lane.leak_w * (factor - lane.settled_factor)
        self._note(self._number, extra_w)
        offset_s, spent_j = self._offset_s + tick_s, -self._spent_j
        if offset_s >= lane.ends_s[-1]:
            laps = int(offset_s / lane.ends_s[-1])
            offset_s -= laps * lane.ends_s[-1]
            spent_j += laps * lane.energy_j[-1]
            self.laps += laps
        self._offset_s, self._spent_j = offset_s, lane.energy_at(offset_s)
        power_w = (spent_j + self._spent_j) / tick_s + extra_w
        self.time_s += tick_s
        self.energy_j += power_w * tick_s
        self._average_w = self._average_w * keep + power_w * (1.0 - keep)
        self._warm(power_w, cool)
        self._control()

    def _warm(self, power_w: float, cool: float) -> None:
        thermal = self._model.thermal
        steady_c = thermal.ambient_c + thermal.resistance_k_per_w * power_w
        self.temperature_c = steady_c + (self.temperature_c - steady_c) * cool

    def _control(self) -> None:
        column, controller, slowdown_c = self._column, self._controller, self._model.thermal.slowdown_c
        down = controller.steps_down(self._average_w, self._limit_w)
        if down:
            self._move(column - down * self._step, Throttle.POWER_CAP)
        elif self.temperature_c > slowdown_c:
            self._move(column - self._step, Throttle.THERMAL)
        elif column < self._ceiling:
            self._wait -= 1
            if self._wait <= 0 and (
                self._why is not Throttle.THERMAL or self.temperature_c < slowdown_c - controller.relief_k
            ):
                self._move(column + self._step, self._why)

    def _move(self, column: int, why: Throttle) -> None:
        self._wait = self._controller.patience
        column = min(max(column, 0), self._ceiling)
        self._why = why if column < self._ceiling else Throttle.NONE
        self._throttle = self._locked | self._why
        if column != self._column:
            self._enter(column)

    def _enter(self, column: int) -> None:
        """Continue the load at another clock."""
        old = self.lanes[self._number] if self.lanes else None
        key = (self._row, column)
        if key not in self._numbers:
            self._numbers[key] = len(self.lanes)
            self.lanes.append(Lane.of(self._model, self._tables[self._row], column))
        self._number, self._column = self._numbers[key], column
        self._lane = self.lanes[self._number]
        if old is not None:
            self._offset_s = self._lane.resumed_at(old, self._offset_s)
            self._spent_j = self._lane.energy_at(self._offset_s)

    def _note(self, lane: int, extra_w: float) -> None:
        self.ticks.append(
            Tick(
                self.time_s,
                self.energy_j,
                self.temperature_c,
                self._row,
                self._column,
                self._throttle,
                lane,
                self._offset_s,
                extra_w,
            )
        )


def _spacing_mhz(model: GpuModel) -> float:
    clocks_mhz = model.clocks[0].sm_mhz
    return (clocks_mhz[-1] - clocks_mhz[0]) / (len(clocks_mhz) - 1)


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
