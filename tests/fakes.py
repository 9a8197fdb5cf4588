"""A GPU made of plain numbers, for tests of what stands on the protocol."""

from __future__ import annotations

from math import floor

from wattune.core.gpu_spec import ClockTable, GpuSpec, PowerLimits, Sensors
from wattune.core.reading import Count, Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting


class FakeGpu:
    """A constant load on a counter that moves once a period; time passes when `wait` is called."""

    def __init__(self, *, power_w=200.0, period_s=0.1, phase_s=0.037, nominal_s=0.1, uuid="GPU-fake", fails=None):
        self.spec = GpuSpec(
            name="Fake GPU",
            uuid=uuid,
            clocks=(ClockTable(1215, (900, 1005, 1410)),),
            power_limits=PowerLimits(100, 400, 400),
            simulated=True,
            sensors=Sensors(counter_period_s=nominal_s, power_period_s=nominal_s),
        )
        self.refresh = None
        self.now_s = 100.0
        self.power_w = power_w
        self.calls = 0
        self.setting = DRIVER_DEFAULT
        self.history = []
        self.found_mw = 400_000
        self.fails = fails
        self._period_s = period_s
        self._phase_s = phase_s

    def wait(self, seconds):
        self.now_s += seconds

    def count(self):
        self.calls += 1
        refreshes = floor((self.now_s - self._phase_s) / self._period_s)
        return Count(self.now_s, self.power_w * (refreshes * self._period_s + self._phase_s))

    def read(self):
        return Reading(
            time_s=self.now_s, energy_j=self.count().energy_j, power_w=self.power_w, sm_mhz=self.setting.sm_mhz or 1410
        )

    @property
    def found(self):
        return {"power_limit": self.found_mw}

    def apply(self, setting):
        if self.fails is not None:
            raise self.fails
        self.setting = setting
        self.history.append(setting)

    def remember(self):
        self.history.append("remembered")

    def wanted(self, setting):
        knobs = {
            "sm_clock": setting.sm_mhz,
            "power_limit": setting.power_limit_w and round(setting.power_limit_w * 1000),
        }
        return {knob: value for knob, value in knobs.items() if value is not None}

    def adopt(self, ours):
        return ()

    def undo(self, ours, found, *, since_s):
        self.setting = Setting()
        self.history.append(("undo", ours, dict(found)))
        return ()

    def restore(self):
        self.undo({"sm_clock": (900,)}, self.found, since_s=0.0)
