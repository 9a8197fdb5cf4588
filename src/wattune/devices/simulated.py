"""A simulated GPU: the physics behind the protocol of every GPU.

It follows the same rules as the emulated NVML library. A new setting holds at once: the switching times of its spec are
for planners to reckon with.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from threading import Lock

import numpy as np

from wattune.core.errors import InputError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.devices.passing_time import PassingTime, VirtualTime
from wattune.physics.cycle import Cycle
from wattune.physics.gpu_model import Floats, GpuModel
from wattune.physics.load_table import LoadTable
from wattune.physics.operating_point import context_point, loaded_point, power_limit_w, resting_point
from wattune.physics.sensor import shown_energy_j, shown_power_w, shown_utilisation
from wattune.physics.spend import tabulate
from wattune.physics.timeline import Timeline


@dataclass(frozen=True, slots=True)
class _Resting:
    """No program holds the GPU."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A program holds the GPU and runs nothing."""


@dataclass(frozen=True, slots=True)
class _Playing:
    """A load plays; the number tells one start from the next."""

    workload: Workload
    start: int


_Activity = _Resting | _Held | _Playing


class SimulatedGpu:
    """One simulated GPU. In virtual time (the default) seconds pass when work is run, and then at once."""

    def __init__(
        self, model: GpuModel, *, index: int = 0, time: PassingTime | None = None, seed: int | None = None
    ) -> None:
        self._model = model
        self._spec = model.spec(index)
        self._time = time or VirtualTime()
        self._seed = zlib.crc32(self._spec.uuid.encode()) if seed is None else seed
        self._lock = Lock()
        period_s = model.sensors.counter_period_s
        self.refresh: Refresh | None = Refresh(period_s, 0.0) if period_s else None
        self._setting = DRIVER_DEFAULT
        self._activity: _Activity = _Resting()
        self._starts = 0
        self._tables: dict[Workload, tuple[LoadTable, ...]] = {}
        self._timeline = Timeline.begin(model.thermal, resting_point(model, DRIVER_DEFAULT), model.idle_w)

    @property
    def spec(self) -> GpuSpec:
        """What the part is and what may be set on it."""
        return self._spec

    @property
    def model(self) -> GpuModel:
        """The physics behind it."""
        return self._model

    @property
    def setting(self) -> Setting:
        """What is set now."""
        return self._setting

    @property
    def truth_j(self) -> float:
        """What was really spent until now, which no sensor shows."""
        timeline = self._timeline
        return timeline.totals(self._time.now_s()).energy_j

    def read(self) -> Reading:
        """Everything the part tells now."""
        # The timeline is taken first: the time read after it cannot lie before its newest stretch.
        timeline, setting = self._timeline, self._setting
        now_s = self._time.now_s()
        sm_util, mem_util = shown_utilisation(timeline, now_s)
        return Reading(
            time_s=now_s,
            energy_j=shown_energy_j(self._model, timeline, now_s),
            power_w=shown_power_w(self._model, timeline, now_s, seed=self._seed),
            temperature_c=timeline.temperature_c(now_s),
            sm_mhz=timeline.now.point.sm_mhz,
            mem_mhz=timeline.now.point.mem_mhz,
            throttle=timeline.now.point.throttle,
            power_limit_w=power_limit_w(self._model, setting),
            sm_util=sm_util,
            mem_util=mem_util,
        )

    def count(self) -> Count:
        """The energy counter now."""
        timeline = self._timeline
        now_s = self._time.now_s()
        return Count(now_s, shown_energy_j(self._model, timeline, now_s))

    def apply(self, setting: Setting) -> None:
        """Nothing; the part now has this setting, and each None in it is back with the driver."""
        self._spec.check(setting)
        with self._lock:
            self._setting = setting
            self._follow()

    def restore(self) -> None:
        """Nothing; everything is back with the driver, as it was found."""
        self.apply(DRIVER_DEFAULT)

    def play(self, workload: Workload) -> None:
        """Nothing; the workload runs, iteration after iteration, until something else is asked for."""
        self._table(workload)
        with self._lock:
            self._starts += 1
            self._activity = _Playing(workload, self._starts)
            self._follow()

    def pause(self) -> None:
        """Nothing; the program that holds the GPU runs nothing."""
        self._do(_Held())

    def release(self) -> None:
        """Nothing; no program holds the GPU any more."""
        self._do(_Resting())

    def run(self, workload: Workload, *, iterations: float = 1) -> None:
        """Nothing; so many iterations were run, and the GPU is held and idle.

        More were run where another thread raised the clock while this one waited on the wall's time.
        """
        if not iterations > 0:
            raise InputError(f"the number of iterations is above 0, not {iterations}", hint="run at least one")
        self.play(workload)
        # A clock that was lowered meanwhile makes another wait; in virtual time nothing happens meanwhile.
        while (left_s := self._timeline.time_of(iterations) - self._time.now_s()) > 0:
            before_s = self._time.now_s()
            self._time.wait(left_s)
            if self._time.now_s() == before_s:  # less is left than the clock can tell
                break
        self.pause()

    def idle(self, seconds: float) -> None:
        """Nothing; so much time has passed while the GPU ran nothing."""
        if not seconds >= 0:
            raise InputError(f"idle time is not negative, not {seconds} s", hint="wait for 0 s or more")
        if isinstance(self._activity, _Playing):
            self.pause()
        self._time.wait(seconds)

    def _do(self, activity: _Activity) -> None:
        with self._lock:
            self._activity = activity
            self._follow()

    def _follow(self) -> None:
        """Bring the timeline up to what is set and done now; the lock is held."""
        model, setting, activity = self._model, self._setting, self._activity
        match activity:
            case _Resting():
                point = resting_point(model, setting)
                cycle = Cycle.steady(model.idle_w)
            case _Held():
                idle_w = self._context_idle_w()
                point = context_point(model, setting, idle_w)
                cycle = Cycle.steady(float(idle_w[point.row][point.column]))
            case _Playing(workload=workload):
                tables = self._table(workload)
                point = loaded_point(model, setting, tuple(table.mean_power_w for table in tables))
                cycle = Cycle.of(tables[point.row], point.column)
        self._timeline = self._timeline.changed(self._time.now_s(), load=activity, point=point, cycle=cycle)

    def _table(self, workload: Workload) -> tuple[LoadTable, ...]:
        if workload not in self._tables:
            self._tables[workload] = tabulate(self._model, workload)
        return self._tables[workload]

    def _context_idle_w(self) -> tuple[Floats, ...]:
        return tuple(
            self._model.context_idle_w(np.array(table.sm_mhz, dtype=np.float64), mem_mhz)
            for mem_mhz, table in zip(self._model.mem_clocks_mhz, self._model.clocks, strict=True)
        )
