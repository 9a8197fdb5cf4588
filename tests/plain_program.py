"""A program of plain numbers on a GPU of plain numbers, seen in windows: for tests of run-level rules."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.gpoeo.models import FEATURES, Predicted, reference_setting


@dataclass
class PlainProgram:
    """A step takes host + compute/f + memory/m seconds, f and m being shares of the highest clocks."""

    spec: GpuSpec
    host_s: float = 0.1
    compute_s: float = 0.6
    memory_s: float = 0.3
    has_step_time: bool = True
    has_counters: bool = True
    factor: float = 1.0
    """What everything that is drawn is multiplied with: another program, where it is changed midway."""
    now_s: float = 0.0
    setting: Setting = DRIVER_DEFAULT
    orders: list[Order] = field(default_factory=list)

    def shares(self, setting):
        top = self.spec.clocks[0]
        share = (setting.sm_mhz or top.sm_mhz[-1]) / top.sm_mhz[-1]
        memory = (setting.mem_mhz or top.mem_mhz or 1) / (top.mem_mhz or 1)
        if setting.power_limit_w is not None:
            while share > 0.2 and self._power_w(share, memory) > setting.power_limit_w:
                share -= 0.01
        return share, memory

    def step_s(self, setting=DRIVER_DEFAULT):
        share, memory = self.shares(setting)
        return self.host_s + self.compute_s / share + self.memory_s / memory

    def power_w(self, setting=DRIVER_DEFAULT):
        return self._power_w(*self.shares(setting))

    def _power_w(self, share, memory):
        voltage = 1.0 + 0.9 * max(share - 0.62, 0.0)
        return self.factor * (50.0 + 20.0 * memory + 130.0 * share * voltage**2)

    def energy_j(self, setting=DRIVER_DEFAULT):
        return self.step_s(setting) * self.power_w(setting)

    def window(self, order):
        self.spec.check(order.setting)
        self.orders.append(order)
        settle_s = 0.0 if order.setting == self.setting else order.settle_s or 0.0
        self.setting = order.setting
        self.now_s += settle_s
        step_s, power_w = self.step_s(order.setting), self.power_w(order.setting)
        window = Window(
            setting=order.setting,
            purpose=order.purpose,
            start_s=self.now_s,
            cost=Measurement(order.least_s, order.least_s * power_w),
            settling=Measurement(settle_s, settle_s * power_w),
            step_time_s=step_s if self.has_step_time and order.least_s >= 2 * step_s else None,
            sm_mhz=self.shares(order.setting)[0] * self.spec.sm_clocks_mhz[-1] if self.spec.clocks else None,
            sm_util=1.0 - self.host_s / step_s,
            mem_util=self.memory_s / self.shares(order.setting)[1] / step_s,
            features=self.counters(order.setting) if self._counts(order) else {},
        )
        self.now_s += order.least_s
        return window

    def _counts(self, order):
        return self.has_counters and order.purpose is Purpose.REFERENCE

    def counters(self, setting):
        share, memory = self.shares(setting)
        step_s = self.step_s(setting)
        used = (0.0, self.compute_s / share / step_s, self.memory_s / memory / step_s, 1.0 - self.host_s / step_s)
        return dict(zip(FEATURES, used, strict=True))


@dataclass(frozen=True, eq=False)
class PerfectModels:
    """Knows what a program takes and spends."""

    program: PlainProgram

    @property
    def reference(self):
        return reference_setting(self.program.spec)

    def predict(self, features, settings):
        assert set(features) == set(FEATURES)
        here = self.reference
        time = np.array([self.program.step_s(setting) for setting in settings]) / self.program.step_s(here)
        energy = np.array([self.program.energy_j(setting) for setting in settings]) / self.program.energy_j(here)
        return Predicted(time, energy)


def played(policy, program, *, until=lambda windows: windows[-1].purpose is Purpose.HOLD, most=80):
    """The windows of a program under a policy, until something is so; the policy is asked twice and must not waver."""
    windows = []
    for _ in range(most):
        order = policy.step(tuple(windows), program.spec)
        assert order == policy.step(tuple(windows), program.spec)
        windows.append(program.window(order))
        if until(windows):
            return windows
    raise AssertionError(f"{policy.name} did not come to an end in {most} windows")
