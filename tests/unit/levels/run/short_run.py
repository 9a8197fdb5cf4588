"""Programs that end soon, under the live loop with our policy, in virtual time: how much slower they really were."""

from __future__ import annotations

import numpy as np
from run_fakes import Moody

from wattune.control.controller import WindowController
from wattune.control.loop import ControlLoop
from wattune.control.progress_estimator import ProgressEstimator
from wattune.core.objective import LeastEnergy
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.policy import CurvePolicy
from wattune.physics.catalog import load_model

TICK_S = 0.1


def slowdowns(gpu, workload, ends_s, *, steps):
    """How much longer the program took than without tuning, had it ended at each of these times."""
    alone, tuned = (_played(gpu, workload, max(ends_s), tune=tune, steps=steps) for tune in (False, True))
    found = []
    for end_s in ends_s:
        done = np.interp(end_s, tuned[:, 0], tuned[:, 1])
        found.append(end_s / np.interp(done, alone[:, 1], alone[:, 0]) - 1)
    return found


def _played(name, workload, seconds, *, tune, steps):
    """(ticks, 2): the time, and the iterations that were over by then."""
    time = VirtualTime()
    gpu = SimulatedGpu(load_model(name), time=time)
    gpu.play(workload)
    watch = ProgressEstimator(gpu.spec.sensors)
    controller = WindowController(CurvePolicy(objective=LeastEnergy(0.05)), gpu.spec)
    loop = ControlLoop(controller, (gpu,), program=Moody(), step_times=watch)
    rows, done = [], 0
    while time.now_s() < seconds:
        time.wait(TICK_S)
        timeline, now_s = gpu.present()
        over = timeline.iterations(now_s)
        rows.append((now_s, over))
        while steps and done + 1 <= over:
            done += 1
            watch.marks.add(timeline.time_of(done))
        if tune:
            loop.tick()
    return np.array(rows)
