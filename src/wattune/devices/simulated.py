"""A simulated GPU.

It follows the same rules as the emulated NVML library. A new setting holds at once, unless the GPU is given switching
times, such as those of its spec: then the old clock holds until the new one starts, and no work runs during the switch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from wattune.core.errors import InputError
from wattune.core.gpu_spec import Switching
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Workload
from wattune.devices.meter import measured
from wattune.devices.passing_time import PassingTime, VirtualTime
from wattune.physics.gpu_model import GpuModel
from wattune.physics.gpu_parts import Floats
from wattune.physics.load_table import LoadTables
from wattune.physics.operating_point import IDEAL, context_point, delay_of, loaded_point, power_limit_w, resting_point
from wattune.physics.sensor import (
    PartTimeCount,
    count_until,
    counter_period_s,
    shown_energy_j,
    shown_power_w,
    shown_utilisation,
)
from wattune.physics.spend import tabulate
from wattune.physics.timeline import NO_STALL, Cycle, Stall, Timeline
from wattune.workloads.catalog import make_workload

DEFAULT_WORKLOAD = "resnet50"


@dataclass(frozen=True, slots=True)
class PendingClock:
    """A setting, when it starts to hold, and for how long no work runs then."""

    setting: Setting
    start_s: float
    stall_s: float


@dataclass(frozen=True, slots=True)
class _Resting:
    """No program uses the GPU."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A program has the GPU open and runs no work."""


@dataclass(frozen=True, slots=True)
class _RunningWorkload:
    """A workload runs; the number distinguishes one start from the next."""

    tables: LoadTables
    start: int


_Activity = _Resting | _Held | _RunningWorkload


class SimulatedGpu:
    """One simulated GPU. In virtual time (the default) seconds pass when work is run, and then at once."""

    def __init__(
        self,
        model: GpuModel,
        *,
        index: int = 0,
        time: PassingTime | None = None,
        seed: int | None = None,
        switching: Switching = IDEAL,
    ) -> None:
        self.model = model
        self.spec = model.spec(index)
        self._time = time or VirtualTime()
        self._seed = zlib.crc32(self.spec.uuid.encode()) if seed is None else seed
        self._switching = switching
        self._lock = Lock()
        period_s = counter_period_s(model)
        self.refresh: Refresh | None = Refresh(period_s, 0.0) if period_s else None
        self._setting = self._clocks = DRIVER_DEFAULT
        self._change: PendingClock | None = None
        self._asked = 0
        self._counted = PartTimeCount() if model.counter_window_s else None
        self._highest_j = 0.0
        self._activity: _Activity = _Resting()
        self._starts = 0
        self._context_idle_w = _context_idle_w(model)
        self._tables: dict[Workload, LoadTables] = {}
        self._timeline = Timeline.begin(model.thermal, resting_point(model, DRIVER_DEFAULT), model.idle_w)

    @property
    def setting(self) -> Setting:
        return self._setting

    @property
    def truth_j(self) -> float:
        """The energy really spent until now, which no sensor reports."""
        timeline, now_s = self.present()
        return timeline.totals(now_s).energy_j

    @property
    def iterations(self) -> float:
        timeline, now_s = self.present()
        return timeline.iterations(now_s)

    def read(self) -> Reading:
        setting = self._setting
        timeline, now_s = self.present()
        sm_util, mem_util = shown_utilisation(timeline, now_s)
        return Reading(
            time_s=now_s,
            energy_j=self._shown_j(timeline, now_s),
            power_w=shown_power_w(self.model, timeline, now_s, seed=self._seed),
            temperature_c=timeline.temperature_c(now_s),
            sm_mhz=timeline.now.point.sm_mhz,
            mem_mhz=timeline.now.point.mem_mhz,
            throttle=timeline.now.point.throttle,
            power_limit_w=power_limit_w(self.model, setting),
            sm_util=sm_util,
            mem_util=mem_util,
        )

    def count(self) -> Count:
        timeline, now_s = self.present()
        return Count(now_s, self._shown_j(timeline, now_s))

    def apply(self, setting: Setting) -> None:
        self.spec.check(setting)
        self._catch_up()
        with self._lock:
            self._setting = setting
            self._ask(setting, self._time.now_s())

    def restore(self) -> None:
        self.apply(DRIVER_DEFAULT)

    def play(self, workload: Workload | LoadTables) -> None:
        """Run the workload, or one by its tables, again and again until something else is asked for."""
        self._starts += 1
        self._do(_RunningWorkload(self._tabulated(workload), self._starts))

    def _tabulated(self, workload: Workload | LoadTables) -> LoadTables:
        if isinstance(workload, tuple):
            return workload
        if workload not in self._tables:
            self._tables[workload] = tabulate(self.model, workload)
        return self._tables[workload]

    def pause(self) -> None:
        """Stop the workload; the program keeps the GPU open."""
        self._do(_Held())

    def release(self) -> None:
        """Stop the workload and close the GPU."""
        self._do(_Resting())

    def run(self, workload: Workload | LoadTables, *, iterations: float = 1) -> None:
        """Run so many iterations and stop.

        More are run if another thread raises the clock while this one waits in wall time.
        """
        if not iterations > 0:
            raise InputError(f"the number of iterations is above 0, not {iterations}", hint="run at least one")
        self.play(workload)
        # A clock that was lowered meanwhile requires another wait; in virtual time only a pending clock can change it.
        while (left_s := self._left_s(iterations)) > 0:
            before_s = self._time.now_s()
            self._time.wait(left_s)
            if self._time.now_s() == before_s:  # less is left than the clock resolves
                break
        self.pause()

    def prepare_workload(self, name: str | None) -> tuple[str, Callable[[int], Measurement]]:
        load = make_workload(name or DEFAULT_WORKLOAD)

        def measure(iterations: int) -> Measurement:
            # The counter's refresh is learned in the GPU's own time, which takes no wall time.
            with measured(self, wait=self.idle) as span:
                self.run(load, iterations=iterations)
            return span.measurement

        return load.name, measure

    def idle(self, seconds: float) -> None:
        """Let time pass without work."""
        if not seconds >= 0:
            raise InputError(f"idle time is not negative, not {seconds} s", hint="wait for 0 s or more")
        if isinstance(self._activity, _RunningWorkload):
            self.pause()
        self._time.wait(seconds)

    def wait(self, seconds: float) -> None:
        self._time.wait(seconds)

    def _left_s(self, iterations: float) -> float:
        """Return how long to wait until so many iterations are done or, if earlier, until a new clock starts."""
        timeline, now_s = self.present()
        change, done_s = self._change, timeline.time_of(iterations)
        return (done_s if change is None else min(done_s, change.start_s)) - now_s

    def present(self) -> tuple[Timeline, float]:
        """Return the timeline and a time that is not before its newest interval."""
        self._catch_up()
        timeline = self._timeline
        return timeline, self._time.now_s()

    def _shown_j(self, timeline: Timeline, now_s: float) -> float:
        """Return the counter, which never falls.

        By rounding, the same instant may come out lower after a change of clock than before it, and so may a timeline
        that another thread changed meanwhile: both would look like a reset.
        """
        with self._lock:
            if self._counted is not None:
                self._counted = count_until(self.model, timeline, now_s, before=self._counted)
            shown_j = shown_energy_j(self.model, timeline, now_s, counted=self._counted)
            self._highest_j = max(self._highest_j, shown_j)
            return self._highest_j

    def _do(self, activity: _Activity) -> None:
        self._catch_up()
        with self._lock:
            self._activity = activity
            self._follow(self._time.now_s())

    def _ask(self, setting: Setting, now_s: float) -> None:
        """Start a setting, now or when its clocks are ready; the lock is held."""
        delay = delay_of(
            self._switching, self.model.change, before=self._clocks, after=setting, seed=self._seed, number=self._asked
        )
        if delay.wait_s:
            # The firmware applies a limit at once; only the clocks take time.
            self._clocks = replace(self._clocks, power_limit_w=setting.power_limit_w)
            change = self._change or PendingClock(setting, now_s + delay.wait_s, delay.stall_s)
            self._change = replace(change, setting=setting)
        else:
            self._clocks, self._change = setting, None
            self._asked += 1
        self._follow(now_s)

    def _catch_up(self) -> None:
        """Apply pending clocks that are due, at the time at which they started."""
        if self._change is None or self._change.start_s > self._time.now_s():
            return
        with self._lock:
            change, self._change = self._change, None
            if change is not None:  # another thread may have been quicker
                self._clocks = change.setting
                self._asked += 1
                self._follow(change.start_s, stall_s=change.stall_s)

    def _follow(self, time_s: float, *, stall_s: float = 0.0) -> None:
        """Continue the timeline from `time_s` with the present setting and activity; the lock is held."""
        model, setting, activity = self.model, self._clocks, self._activity
        if self._counted is not None:
            self._counted = count_until(model, self._timeline, time_s, before=self._counted)
        idle_w = self._context_idle_w
        match activity:
            case _Resting():
                point = resting_point(model, setting)
                cycle = Cycle.steady(model.idle_w)
            case _Held():
                point = context_point(model, setting, idle_w)
                cycle = Cycle.steady(float(idle_w[point.row][point.column]))
            case _RunningWorkload(tables=tables):
                point = loaded_point(model, setting, tuple(table.limited_power_w for table in tables))
                cycle = Cycle.of(tables[point.row], point.column)
        stall = Stall(stall_s, float(idle_w[point.row][point.column])) if stall_s else NO_STALL
        self._timeline = self._timeline.changed(time_s, load=activity, point=point, cycle=cycle, stall=stall)


def _context_idle_w(model: GpuModel) -> tuple[Floats, ...]:
    return tuple(
        model.context_idle_w(np.array(table.sm_mhz, dtype=np.float64), mem_mhz)
        for mem_mhz, table in zip(model.mem_clocks_mhz, model.clocks, strict=True)
    )
