"""GPUs and policies for tests of tuning a running program, all in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wattune.control.state import Condition
from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.physics.catalog import load_model
from wattune.workloads.catalog import make_workload


@dataclass(frozen=True)
class Script:
    """A policy that orders these settings one after the other, a baseline first, and holds the last."""

    settings: tuple[Setting, ...]
    seconds: float = 2.0
    precision: float | None = None
    name: str = "script"
    tunes: bool = True
    uses_history: bool = False
    needs_counters: bool = False

    def step(self, windows, spec):
        allowed = [one for one in self.settings if one.sm_mhz is None or one.sm_mhz in spec.sm_clocks_mhz]
        order = [DRIVER_DEFAULT, *allowed]
        place = min(len(windows), len(order) - 1)
        last = place == len(order) - 1 and place > 0
        purpose = Purpose.BASELINE if place == 0 else Purpose.HOLD if last else Purpose.TRIAL
        return Order(
            setting=order[place],
            purpose=purpose,
            least_s=self.seconds,
            most_s=2 * self.seconds,
            precision=self.precision,
        )


class Moody:
    """A program whose condition a test sets."""

    def __init__(self, condition=Condition.WORKING, used=None):
        self.now = condition
        self.uses = used

    def condition(self):
        return self.now

    def used(self):
        return self.uses

    def keep(self, gpus):
        self.kept = gpus


class OddGpu:
    """A simulated GPU in which things go wrong on demand."""

    def __init__(self, name="a100", *, index=0, time=None, workload="resnet50"):
        self.time = time or VirtualTime()
        self.real = SimulatedGpu(load_model(name), index=index, time=self.time)
        if workload is not None:
            self.real.play(make_workload(workload))
        self.spec = self.real.spec
        self.refresh = None
        self.on_apply = None
        """An error, or a function of the setting that gives one."""
        self.ignores = False
        """Whether settings are taken and nothing happens."""
        self.on_read = None
        self.applied = []
        self.twist = lambda reading: reading

    def wait(self, seconds):
        self.time.wait(seconds)

    def count(self):
        if self.on_read is not None:
            raise self.on_read
        reading = self.twist(self.real.read())
        return self.real.count() if reading.energy_j is None else Count(reading.time_s, reading.energy_j)

    def read(self):
        if self.on_read is not None:
            raise self.on_read
        return self.twist(self.real.read())

    def apply(self, setting):
        self.spec.check(setting)
        error = self.on_apply(setting) if callable(self.on_apply) else self.on_apply
        if error is not None:
            raise error
        self.applied.append(setting)
        if not self.ignores:
            self.real.apply(setting)

    def restore(self):
        self.applied.append("restored")
        self.real.restore()


def ticked(loop, gpu, seconds, *, each_s=0.05, step_s=None, marks=None):
    """Nothing; so many seconds have passed, with ticks of the loop and, every `step_s`, a step of the program."""
    done_s = 0.0
    for place in range(round(seconds / each_s)):
        gpu.wait(each_s)
        if step_s is not None and (place + 1) * each_s - done_s >= step_s:
            done_s += step_s
            marks.add(gpu.time.now_s())
        loop.tick()


def window(sm_mhz, purpose, *, step_time_s=1.0, error_s=0.002, power_w=100.0, time_s=10.0, start_s=0.0, **others):
    """A window with plain numbers."""
    base = Window(
        setting=Setting(sm_mhz),
        purpose=purpose,
        start_s=start_s,
        cost=Measurement(time_s, power_w * time_s, None, 0.002 * power_w * time_s),
        settling=Measurement(0.0, 0.0),
        step_time_s=step_time_s,
        step_time_error_s=error_s,
    )
    return replace(base, **others)
