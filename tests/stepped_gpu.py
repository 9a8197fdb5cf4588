"""A GPU stepped through time, tick by tick: the reference for the closed forms with which wattune simulates.

A controller compares the running average of power with the limit and moves the clock in steps; temperature, leakage
and thermal slowdown follow. `tabulate` and `loaded_point` compute where a GPU settles; this computes the way there.

Notation: T temperature, P power of the tick; T' = (ambient + R·P − T)/τ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattune.core.gpu_spec import Switching
from wattune.core.reading import Throttle
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import FIRMWARE_AVERAGE_S, LoadTable
from wattune.physics.operating_point import IDEAL, delay_of, power_limit_w, requested_point
from wattune.physics.spend import tabulate

TICK_S = 0.02
STEP_MHZ = 15
STEP_SHARE = 0.03
"""One step down for each such share of the limit that the average lies above it."""
PATIENCE = 5
"""Ticks between two steps up."""
RELIEF_K = 2.0
"""The clock may rise again once the GPU is this much below its slowdown temperature."""
STALLED = -1
"""In place of a lane's number: no kernel ran."""


def steps_down(average_w: float, limit_w: float) -> int:
    return ceil((average_w - limit_w) / (STEP_SHARE * limit_w)) if average_w > limit_w else 0


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """End time and cumulative energy of each phase at one clock, from zero, and the leakage at that clock."""

    ends_s: list[float]
    energy_j: list[float]
    leak_w: float
    """At the temperature at which leakage is given."""
    settled_factor: float
    """Leakage included in `energy_j`, relative to `leak_w`."""
    idle_w: float
    """Power without leakage while no kernel runs."""

    @classmethod
    def of(cls, model: GpuModel, table: LoadTable, column: int) -> Lane:
        sm_mhz = np.array([table.sm_mhz[column]], dtype=np.float64)
        duration_s = table.duration_s[:, column]
        settled_c = model.thermal.steady_c(float(table.mean_power_w[column]))
        return cls(
            [0.0, *np.cumsum(duration_s).tolist()],
            [0.0, *np.cumsum(duration_s * table.power_w[:, column]).tolist()],
            float(model.core.leak_w * model.voltage(sm_mhz)[0] ** 2),
            float(model.core.leak_factor(min(settled_c, model.thermal.slowdown_c))),
            float(model.awake_w(sm_mhz, table.mem_mhz)[0]),
        )

    def place(self, offset_s: float) -> tuple[int, float]:
        """Return the phase at a time into the iteration, and the share of it that is done."""
        phase = min(bisect_right(self.ends_s, offset_s), len(self.ends_s) - 1) - 1
        start_s, end_s = self.ends_s[phase : phase + 2]
        return phase, min((offset_s - start_s) / (end_s - start_s), 1.0)

    def offset_s(self, phase: int, share: float) -> float:
        return self.ends_s[phase] + share * (self.ends_s[phase + 1] - self.ends_s[phase])

    def energy_at(self, offset_s: float) -> float:
        phase, share = self.place(offset_s)
        return self.energy_j[phase] + share * (self.energy_j[phase + 1] - self.energy_j[phase])

    def energies_at(self, offset_s: Floats) -> Floats:
        """Return the energy at many times, which may exceed one iteration."""
        laps, rest_s = np.divmod(offset_s, self.ends_s[-1])
        return laps * self.energy_j[-1] + np.interp(rest_s, self.ends_s, self.energy_j)


class Tick(NamedTuple):
    """State at the start of a tick."""

    time_s: float
    energy_j: float
    temperature_c: float
    sm_mhz: int
    mem_mhz: int
    throttle: Throttle
    lane: int
    offset_s: float
    """Time into the iteration."""
    extra_w: float
    """Leakage beyond that of the settled GPU; in a stall, all of the power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU and its load."""

    model: GpuModel
    tables: tuple[LoadTable, ...]
    switching: Switching = IDEAL
    """How long new clocks take; `model.switching` for the GPU's own."""
    seed: int = 0
    start_c: float | None = None
    """Initial temperature; None: that of an idle GPU."""

    @classmethod
    def of(cls, model: GpuModel, workload: Workload) -> Machine:
        return cls(model=model, tables=tabulate(model, workload))


@dataclass(frozen=True, slots=True)
class Command:
    """A setting requested at a time."""

    time_s: float
    setting: Setting


class LoadPlayer:
    """A GPU that plays a load, tick by tick; `ticks` collects the state at the start of each."""

    def __init__(self, machine: Machine) -> None:
        self.model, self.tables = machine.model, machine.tables
        self.lanes: dict[tuple[int, int], tuple[int, Lane]] = {}
        self.ticks: list[Tick] = []
        self.time_s = self.energy_j = self.offset_s = 0.0
        idle_c = self.model.thermal.steady_c(self.model.idle_w)
        self.temperature_c = idle_c if machine.start_c is None else machine.start_c
        self.average_w = self.model.idle_w
        self.laps = self.wait = 0
        self.why = Throttle.NONE
        clocks_mhz = self.model.clocks[0].sm_mhz
        spacing_mhz = (clocks_mhz[-1] - clocks_mhz[0]) / (len(clocks_mhz) - 1)
        self.step = max(round(STEP_MHZ / spacing_mhz), 1)
        self.row, self.column = 0, len(clocks_mhz) - 1
        self.ceiling = self.column
        self.request(DRIVER_DEFAULT)

    @property
    def lane(self) -> Lane:
        return self._numbered()[1]

    def _numbered(self) -> tuple[int, Lane]:
        key = (self.row, self.column)
        if key not in self.lanes:
            self.lanes[key] = (len(self.lanes), Lane.of(self.model, self.tables[self.row], self.column))
        return self.lanes[key]

    def request(self, setting: Setting) -> None:
        """Apply these clocks and this limit."""
        point = requested_point(self.model, setting)
        free = self.column == self.ceiling
        self.ceiling, self.locked = point.column, point.throttle
        self.limit_w = power_limit_w(self.model, setting)
        self.why = self.why if self.column < self.ceiling else Throttle.NONE
        self._enter(point.row, self.ceiling if free else min(self.column, self.ceiling))

    def advance(self, seconds: float) -> None:
        end_s = self.time_s + seconds
        for _ in range(int(seconds / TICK_S + 1e-9)):
            self._tick(TICK_S)
        if end_s - self.time_s > 1e-12:
            self._tick(end_s - self.time_s)

    def stall(self, seconds: float) -> None:
        """Let time pass in which no kernel runs, as when a new clock takes effect."""
        if seconds > 0:
            power_w = self.lane.idle_w + self.lane.leak_w * float(self.model.core.leak_factor(self.temperature_c))
            self._note(STALLED, power_w)
            self._spend(power_w, seconds)

    def _tick(self, tick_s: float) -> None:
        (number, lane), core = self._numbered(), self.model.core
        factor = exp(core.leak_per_k * (self.temperature_c - core.leak_at_c))
        extra_w = lane.leak_w * (factor - lane.settled_factor)
        self._note(number, extra_w)
        before_j = lane.energy_at(self.offset_s)
        laps, offset_s = divmod(self.offset_s + tick_s, lane.ends_s[-1])
        self.laps, self.offset_s = self.laps + int(laps), offset_s
        power_w = (laps * lane.energy_j[-1] + lane.energy_at(offset_s) - before_j) / tick_s + extra_w
        self._spend(power_w, tick_s)
        keep = exp(-tick_s / FIRMWARE_AVERAGE_S)
        self.average_w = self.average_w * keep + power_w * (1.0 - keep)
        self._control()

    def _spend(self, power_w: float, seconds: float) -> None:
        self.time_s += seconds
        self.energy_j += power_w * seconds
        steady_c = self.model.thermal.steady_c(power_w)
        cool = exp(-seconds / self.model.thermal.tau_s)
        self.temperature_c = steady_c + (self.temperature_c - steady_c) * cool

    def _control(self) -> None:
        slowdown_c = self.model.thermal.slowdown_c
        down = steps_down(self.average_w, self.limit_w)
        if down:
            self._move(self.column - down * self.step, Throttle.POWER_CAP)
        elif self.temperature_c > slowdown_c:
            self._move(self.column - self.step, Throttle.THERMAL)
        elif self.column < self.ceiling:
            self.wait -= 1
            cool = self.why is not Throttle.THERMAL or self.temperature_c < slowdown_c - RELIEF_K
            if self.wait <= 0 and cool:
                self._move(self.column + self.step, self.why)

    def _move(self, column: int, why: Throttle) -> None:
        self.wait = PATIENCE
        column = min(max(column, 0), self.ceiling)
        self.why = why if column < self.ceiling else Throttle.NONE
        self._enter(self.row, column)

    def _enter(self, row: int, column: int) -> None:
        """Continue the load at another clock, at the same place in the iteration."""
        place = self.lane.place(self.offset_s)
        if (row, column) != (self.row, self.column):
            self.row, self.column = row, column
            self.offset_s = self.lane.offset_s(*place)

    def _note(self, lane: int, extra_w: float) -> None:
        table, throttle = self.tables[self.row], self.locked | self.why
        clocks = table.sm_mhz[self.column], table.mem_mhz
        state = self.time_s, self.energy_j, self.temperature_c
        self.ticks.append(Tick(*state, *clocks, throttle, lane, self.offset_s, extra_w))


class SteppedTrace:
    """The ticks as columns; `start_s`, `energy_j` and `temperature_c` end with the state at the end."""

    def __init__(self, player: LoadPlayer) -> None:
        columns = Tick(*zip(*player.ticks, strict=True))
        self.start_s = np.array([*columns.time_s, player.time_s])
        self.energy_j = np.array([*columns.energy_j, player.energy_j])
        self.temperature_c = np.array([*columns.temperature_c, player.temperature_c])
        self.sm_mhz: NDArray[np.int64] = np.array(columns.sm_mhz)
        self.mem_mhz: NDArray[np.int64] = np.array(columns.mem_mhz)
        self.throttle = columns.throttle
        self.lane: NDArray[np.int64] = np.array(columns.lane)
        self.offset_s, self.extra_w = np.array(columns.offset_s), np.array(columns.extra_w)
        self.lanes = dict(player.lanes.values())
        self.iterations = player.laps + player.offset_s / player.lane.ends_s[-1]

    @property
    def power_w(self) -> Floats:
        """Mean power of each tick."""
        return np.diff(self.energy_j) / np.diff(self.start_s)

    def energy_at(self, time_s: Floats) -> Floats:
        """Return the cumulative energy at these times, exact to the phase; times are clipped to the record."""
        time_s = np.clip(time_s, self.start_s[0], self.start_s[-1])
        tick = np.clip(np.searchsorted(self.start_s, time_s, side="right") - 1, 0, len(self.lane) - 1)
        into_s = time_s - self.start_s[tick]
        energy_j = self.energy_j[tick] + self.extra_w[tick] * into_s
        for number, lane in self.lanes.items():
            mine = self.lane[tick] == number
            from_s = self.offset_s[tick[mine]]
            energy_j[mine] += lane.energies_at(from_s + into_s[mine]) - lane.energies_at(from_s)
        return energy_j

    def after(self, time_s: float) -> float:
        """Return the mean power from `time_s` to the end."""
        spent_j = self.energy_j[-1] - self.energy_at(np.array([time_s]))[0]
        return float(spent_j / (self.start_s[-1] - time_s))


def play(machine: Machine, seconds: float, *, commands: Sequence[Command] = ()) -> SteppedTrace:
    """Step a GPU from an idle start through `seconds`, with settings that arrive meanwhile."""
    player = LoadPlayer(machine)
    before, effect_s = DRIVER_DEFAULT, 0.0
    for number, command in enumerate(sorted(commands, key=lambda command: command.time_s)):
        after, change = command.setting, machine.model.change
        delay = delay_of(machine.switching, change, before=before, after=after, seed=machine.seed, number=number)
        # Commands take effect in the order in which they were given: none overtakes another.
        before, effect_s = after, max(effect_s, command.time_s + delay.wait_s)
        if effect_s >= seconds:
            break
        player.advance(max(effect_s - player.time_s, 0.0))
        player.request(after)
        player.stall(min(delay.stall_s, seconds - player.time_s))
    player.advance(max(seconds - player.time_s, 0.0))
    return SteppedTrace(player)
