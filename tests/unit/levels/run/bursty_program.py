"""A program that works and pauses by turns on a simulated GPU, in virtual time, and whoever ticks along with it."""

from __future__ import annotations

from dataclasses import dataclass

from run_fakes import Moody

from wattune.control.controller import WindowController
from wattune.control.loop import ControlLoop
from wattune.control.progress_estimator import ProgressEstimator
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.policy import CurvePolicy
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

TICK_S = 0.05
WORKLOAD = make_workload("resnet50")


class TickingTime(VirtualTime):
    """Virtual time in which something is done every twentieth of a second."""

    def __init__(self):
        super().__init__()
        self.tick = lambda: None

    def wait(self, seconds):
        end_s = self.now_s() + seconds
        while end_s - self.now_s() > 1e-9:
            super().wait(min(TICK_S, end_s - self.now_s()))
            self.tick()


@dataclass(frozen=True)
class Bursts:
    """What came of a program that works in bursts."""

    time_s: float
    energy_j: float
    applied: tuple[tuple[float, Setting], ...]
    """When what was set."""
    events: tuple[str, ...] = ()
    changed: int = 0
    """Windows in which the program was thought to do something else."""


def default_bursts(*, work_s, pause_s, bursts):
    """The bursts with the driver's own clocks."""
    time, gpu, applied = _made()
    _played(gpu, iterations=_iterations(work_s), pause_s=pause_s, bursts=bursts)
    return Bursts(time.now_s(), gpu.truth_j, tuple(applied))


def tuned_bursts(*, work_s, pause_s, bursts, steps=False, slowdown=0.05):
    """The same under the live loop with our policy, with reported steps or without."""
    time, gpu, applied = _made()
    watch = ProgressEstimator(gpu.spec.sensors)
    controller = WindowController(CurvePolicy(objective=LeastEnergy(slowdown)), gpu.spec)
    loop = ControlLoop(controller, (gpu,), program=Moody(), step_times=watch)
    time.tick = loop.tick
    marks = watch.marks if steps else None
    _played(gpu, iterations=_iterations(work_s), pause_s=pause_s, bursts=bursts, marks=marks)
    progress = loop.progress
    return Bursts(
        time.now_s(),
        gpu.truth_j,
        tuple(applied),
        tuple(event.text for event in progress.events),
        sum(window.changed for window in progress.windows),
    )


def locked_low_bursts(*, work_s, pause_s, bursts, after_s=2.0):
    """The same under the idle rule of GPOEO: the lowest clocks after 2 s of rest, the old ones after 2 s of work."""
    time, gpu, applied = _made()
    low = Setting(gpu.spec.sm_clocks_mhz[0])
    since = {"busy": 0.0, "idle": 0.0}

    def watcher():
        now_s, busy = time.now_s(), (gpu.read().sm_util or 0.0) > 0.0
        since["idle" if busy else "busy"] = now_s
        if gpu.setting != low and now_s - since["idle"] > after_s:
            gpu.apply(low)
        elif gpu.setting == low and now_s - since["busy"] > after_s:
            gpu.apply(DRIVER_DEFAULT)

    time.tick = watcher
    _played(gpu, iterations=_iterations(work_s), pause_s=pause_s, bursts=bursts, at_once=1)
    return Bursts(time.now_s(), gpu.truth_j, tuple(applied))


def _made():
    time, applied = TickingTime(), []
    gpu = SimulatedGpu(load_model("a100"), time=time)
    take = gpu.apply

    def apply(setting):
        applied.append((time.now_s(), setting))
        take(setting)

    gpu.apply = apply
    return time, gpu, applied


def _iterations(work_s):
    gpu = SimulatedGpu(load_model("a100"))
    gpu.run(WORKLOAD, iterations=10)
    return max(round(work_s * 10 / gpu.read().time_s), 1)


def _played(gpu, *, iterations, pause_s, bursts, marks=None, at_once=5):
    """Nothing; the bursts are over.

    Few iterations at once: a simulated GPU waits for all it was asked to run at the clock that holds when it begins.
    """
    for _ in range(bursts):
        for done in range(0, iterations, at_once):
            count = min(at_once, iterations - done)
            gpu.run(WORKLOAD, iterations=count)
            if marks is not None:
                marks.add(gpu.read().time_s, count)
        gpu.idle(pause_s)
