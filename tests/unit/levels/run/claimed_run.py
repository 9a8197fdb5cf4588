"""Whole runs under the session in virtual time, as on a live machine: what is printed of them, and what was true.

The program starts some seconds after the tuning and ends some before it, its first steps are seen together after some
time, and others a little late; the thread that polls the GPU wakes late, now and then by much.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from wattune.core.objective import LeastEnergy
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.run.figures import RunFigures, figures_of
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload

START_S, UNSEEN_S, END_S = 3.0, 1.5, 2.0
WAKES_S, STEPS_S, LONG_S = 2e-4, 3e-4, 0.015
"""How late the thread wakes and steps are seen at most, and by how much now and then on average."""


@dataclass(frozen=True)
class Claim:
    """What a run says it saved and took longer, and the truth: shares, each with its error where it is said."""

    figures: RunFigures
    saving: float
    slowdown: float

    @property
    def off(self):
        return self.figures.saving.value - self.saving, self.figures.slowdown.value - self.slowdown

    @property
    def holds(self):
        said = self.figures.saving, self.figures.slowdown
        return tuple(abs(off) <= one.error for off, one in zip(self.off, said, strict=True))


def claimed(gpu, workload, seconds, *, seed, late=0.1):
    """Play a run, and the same number of steps at the driver's own clocks; `late` is the share of late wakes."""
    windows, steps = _played(gpu, workload, seconds, Random(seed), late)
    _, default = _played(gpu, workload, 1.1 * seconds, Random(seed), None)
    (start_s, start_j), (end_s, end_j) = steps[0], steps[-1]
    (from_s, from_j), (to_s, to_j) = default[0], default[len(steps) - 1]
    return Claim(
        figures_of(windows, gpus=1, slowdown_limit=0.05),
        1 - (end_j - start_j) / (to_j - from_j),
        (end_s - start_s) / (to_s - from_s) - 1,
    )


def _played(name, workload, seconds, random, late):
    """The windows, and time and true energy at the end of each step; not tuned where `late` is None."""
    time, model = VirtualTime(), load_model(name)
    time.wait(random.random())
    gpu = SimulatedGpu(model, time=time, switching=model.spec().switching)
    gpu.refresh = None  # it is to be found out
    gpu.play(make_workload(workload))
    session = RunSession((gpu,), objective=LeastEnergy(0.05))
    begun_s, steps, unseen = time.now_s(), [], 0
    first = next_step = int(gpu.present()[0].iterations(begun_s + START_S)) + 1
    with session:
        while time.now_s() < begun_s + seconds:
            long_s = random.expovariate(1 / LONG_S) if late and random.random() < late else 0.0
            time.wait(0.1 if late is None else session.loop.wait_s + random.random() * WAKES_S + long_s)
            timeline, now_s = gpu.present()
            while next_step <= timeline.iterations(min(now_s, begun_s + seconds - END_S)):
                step_s = timeline.time_of(next_step)
                steps.append((step_s, timeline.totals(step_s).energy_j))
                next_step, unseen = next_step + 1, unseen + 1
                if late is not None and now_s >= begun_s + START_S + UNSEEN_S:
                    session.watch.marks.add(step_s + random.random() * STEPS_S, unseen)
                    unseen = 0
            if late is not None:
                session.loop.tick()
    assert len(steps) == next_step - first
    return session.progress.windows, steps
