"""One NVIDIA GPU, read and set through NVML."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from wattune.core.errors import NotSupported
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Restart
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.nvml.counter import EnergyCounter, IntegratedPower
from wattune.devices.nvml.describe import WITHOUT_CORE_LOCK, known
from wattune.devices.nvml.library import Library, fail, translated
from wattune.devices.nvml.readings import Readings, power_query


class NvmlGpu:
    """A `Gpu` on NVML. It does not restore by itself: `open_gpu` does."""

    def __init__(self, handle: Any, spec: GpuSpec, library: Library, *, mig: bool = False) -> None:
        self.spec = spec
        self.refresh: Refresh | None = None
        self._handle = handle
        self._library = library
        self._mig = mig
        self._applied = DRIVER_DEFAULT
        self._found = self._state()
        self.gpu_time_s = library.clock
        self._power_mw = power_query(handle)
        self._readings = Readings(handle)
        self._integrated: IntegratedPower | None = None
        self.count: Callable[[], Count] = self._counter()

    def read(self) -> Reading:
        with translated(f"cannot read {self.spec.label}", mig=self._mig):
            energy_j = self.count().energy_j
            return self._readings.take(time_s=self.gpu_time_s, energy_j=energy_j, power_mw=self._power_mw())

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """The restarts of the energy counter since the GPU was opened."""
        return self._own_counter.restarts

    def on_restart(self, note: Callable[[Restart], None]) -> None:
        """Call this at each restart of the energy counter."""
        self._own_counter.on_restart = note

    def apply(self, setting: Setting) -> None:
        """Set the GPU; knobs that were set before and are None now get the value that was found."""
        self.spec.check(setting)
        with translated(f"cannot set {self.spec.label} to {setting}", mig=self._mig):
            self._set_clocks(setting)
            self._set_limit(setting.power_limit_w)
        self._applied = setting

    def restore(self) -> None:
        self.undo(self._applied.knobs, self._found)

    @property
    def found(self) -> Mapping[str, float | None]:
        """The state in which the GPU was opened. A clock lock set by others cannot be read through NVML."""
        return self._found

    def remember(self) -> None:
        """Take what the GPU has now as what was found."""
        with translated(f"cannot read {self.spec.label}", mig=self._mig):
            self._found = self._state()

    def undo(self, touched: tuple[str, ...], found: Mapping[str, float | None]) -> None:
        """Set each knob that was touched back to what was found."""
        with translated(f"cannot restore {self.spec.label}", mig=self._mig):
            if "sm_clock" in touched or "mem_clock" in touched:
                self._undo_clocks(touched, found)
            limit_w = found.get("power_limit_w")
            if "power_limit" in touched and limit_w is not None:
                pynvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(limit_w * 1000))
        self._applied = DRIVER_DEFAULT

    def close(self) -> None:
        """End the background thread of this GPU."""
        if self._integrated is not None:
            self._integrated.stop()

    def _state(self) -> dict[str, float | None]:
        handle = self._handle
        limit_mw = known(lambda: pynvml.nvmlDeviceGetPowerManagementLimit(handle))
        return {
            "power_limit_w": None if limit_mw is None else limit_mw / 1000,
            "app_sm_mhz": known(lambda: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_GRAPHICS)),
            "app_mem_mhz": known(lambda: pynvml.nvmlDeviceGetApplicationsClock(handle, pynvml.NVML_CLOCK_MEM)),
        }

    def _set_clocks(self, setting: Setting) -> None:
        if self.spec.architecture in WITHOUT_CORE_LOCK:
            self._set_application_clocks(setting)
            return
        if setting.mem_mhz is not None and self.spec.can_lock_mem:
            pynvml.nvmlDeviceSetMemoryLockedClocks(self._handle, setting.mem_mhz, setting.mem_mhz)
        elif self._applied.mem_mhz is not None and self.spec.can_lock_mem:
            pynvml.nvmlDeviceResetMemoryLockedClocks(self._handle)
        if setting.sm_mhz is not None:
            # A range lets the GPU lower its clock while it is idle; under load it runs at the upper end.
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, self.spec.sm_clocks_mhz[0], setting.sm_mhz)
        elif self._applied.sm_mhz is not None:
            pynvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def _set_application_clocks(self, setting: Setting) -> None:
        if setting.sm_mhz is not None or setting.mem_mhz is not None:
            mem_mhz = setting.mem_mhz or self.spec.mem_clocks_mhz[0]
            sm_mhz = setting.sm_mhz or self.spec.sm_clocks_mhz[-1]
            pynvml.nvmlDeviceSetApplicationsClocks(self._handle, mem_mhz, sm_mhz)
        elif self._applied.sm_mhz is not None or self._applied.mem_mhz is not None:
            self._restore_application_clocks(self._found)

    def _set_limit(self, power_limit_w: float | None) -> None:
        if power_limit_w is None and self._applied.power_limit_w is not None:
            power_limit_w = self._found["power_limit_w"]
        if power_limit_w is not None:
            pynvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(power_limit_w * 1000))

    def _undo_clocks(self, touched: tuple[str, ...], found: Mapping[str, float | None]) -> None:
        if self.spec.architecture in WITHOUT_CORE_LOCK:
            self._restore_application_clocks(found)
            return
        if "sm_clock" in touched:
            pynvml.nvmlDeviceResetGpuLockedClocks(self._handle)
        if "mem_clock" in touched and self.spec.can_lock_mem:
            pynvml.nvmlDeviceResetMemoryLockedClocks(self._handle)

    def _restore_application_clocks(self, found: Mapping[str, float | None]) -> None:
        sm_mhz, mem_mhz = found.get("app_sm_mhz"), found.get("app_mem_mhz")
        if sm_mhz is None or mem_mhz is None:
            pynvml.nvmlDeviceResetApplicationsClocks(self._handle)
        else:
            pynvml.nvmlDeviceSetApplicationsClocks(self._handle, int(mem_mhz), int(sm_mhz))

    def _counter(self) -> Callable[[], Count]:
        """Return how to count energy: the GPU's own counter, or integrated power samples if it has none."""
        handle, call = ctypes.cast(self._handle, ctypes.c_void_p), self._library.energy_call
        # Threads may share the buffer: the counter only rises, and the time is taken after the value.
        found = ctypes.c_ulonglong()
        place = ctypes.byref(found)

        def millijoules() -> int:
            code = call(handle, place)
            if code:
                fail(pynvml.NVMLError(code), f"cannot read the energy counter of {self.spec.label}", mig=self._mig)
            return found.value

        self._own_counter = EnergyCounter(millijoules, self._library.clock)
        try:
            self._own_counter.count()
        except NotSupported:
            period_s = self.spec.sensors.power_period_s or 0.05
            self._integrated = IntegratedPower(self._watts, self._library.clock, period_s=period_s)
            return self._integrated.count
        return self._own_counter.count

    def _watts(self) -> float:
        with translated(f"cannot read the power of {self.spec.label}", mig=self._mig):
            power_mw = self._power_mw()
        if power_mw is None:
            raise NotSupported(
                f"{self.spec.label} has neither an energy counter nor a power sensor",
                hint="it cannot be measured through its driver; use an external meter",
            )
        return power_mw / 1000
