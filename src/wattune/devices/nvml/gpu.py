"""One NVIDIA GPU, read and set through NVML."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from wattune.core.errors import DeviceError, NotSupported
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Throttle
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.nvml.describe import WITHOUT_CORE_LOCK, known
from wattune.devices.nvml.library import Library, fail, translated


class IntegratedPower:
    """Integrates power in a background thread, from the first count on; between samples the last power is assumed."""

    def __init__(self, watts: Callable[[], float], clock: Callable[[], float], *, period_s: float) -> None:
        self._watts = watts
        self._clock = clock
        self._period_s = period_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._time_s = self._energy_j = self._power_w = 0.0
        self._failure: DeviceError | None = None

    def count(self) -> Count:
        """Return the energy since the first call."""
        with self._lock:
            if self._thread is None:
                self._time_s, self._power_w = self._clock(), self._watts()
                self._thread = threading.Thread(target=self._sample, name="wattune-integrator", daemon=True)
                self._thread.start()
            if self._failure is not None:
                raise self._failure
            self._extend(self._power_w)
            return Count(self._time_s, self._energy_j)

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _extend(self, power_w: float) -> None:
        """Extend the integral to now with the mean of old and new power."""
        now_s = self._clock()
        self._energy_j += max(now_s - self._time_s, 0.0) * (self._power_w + power_w) / 2
        self._time_s, self._power_w = now_s, power_w

    def _sample(self) -> None:
        while not self._ended.wait(self._period_s):
            try:
                power_w = self._watts()
            except DeviceError as error:
                with self._lock:
                    self._failure = error
                return
            with self._lock:
                self._extend(power_w)


THROTTLE_BITS = (
    (pynvml.nvmlClocksThrottleReasonGpuIdle, Throttle.IDLE),
    (pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting, Throttle.LOCKED),
    (pynvml.nvmlClocksThrottleReasonSwPowerCap, Throttle.POWER_CAP),
    (pynvml.nvmlClocksThrottleReasonHwSlowdown, Throttle.HARDWARE),
    (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, Throttle.HARDWARE),
    (pynvml.nvmlClocksThrottleReasonSwThermalSlowdown, Throttle.THERMAL),
    (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, Throttle.THERMAL),
    (pynvml.nvmlClocksThrottleReasonSyncBoost, Throttle.OTHER),
    (pynvml.nvmlClocksThrottleReasonDisplayClockSetting, Throttle.OTHER),
)


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
        self._power_mw = self._power_query()
        self._integrated: IntegratedPower | None = None
        self.count: Callable[[], Count] = self._counter()

    def read(self) -> Reading:
        handle = self._handle
        with translated(f"cannot read {self.spec.label}", mig=self._mig):
            energy_j = self.count().energy_j
            power_mw = self._power_mw()
            utilisation = known(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
            limit_mw = known(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
            memory = known(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
            return Reading(
                time_s=self._library.clock(),
                energy_j=energy_j,
                power_w=None if power_mw is None else power_mw / 1000,
                temperature_c=known(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
                sm_mhz=known(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
                mem_mhz=known(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
                throttle=_throttle(known(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
                power_limit_w=None if limit_mw is None else limit_mw / 1000,
                sm_util=None if utilisation is None else utilisation.gpu / 100,
                mem_util=None if utilisation is None else utilisation.memory / 100,
                memory_used_bytes=None if memory is None else int(memory.used),
            )

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
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, setting.sm_mhz, setting.sm_mhz)
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

    def _power_query(self) -> Callable[[], int | None]:
        """Return how to read power: the instant field if there is one, because the plain reading may be 1 s old."""
        handle = self._handle
        if _field(handle, pynvml.NVML_FI_DEV_POWER_INSTANT) is not None:
            return lambda: _field(handle, pynvml.NVML_FI_DEV_POWER_INSTANT)
        return lambda: known(lambda: int(pynvml.nvmlDeviceGetPowerUsage(handle)))

    def _counter(self) -> Callable[[], Count]:
        """Return how to count energy: the GPU's own counter, or integrated power samples if it has none."""
        handle = ctypes.cast(self._handle, ctypes.c_void_p)
        call, clock, new = self._library.energy_call, self._library.clock, tuple.__new__
        # Threads may share the buffer: the counter only rises, and the time is taken after the value.
        millijoules = ctypes.c_ulonglong()
        place = ctypes.byref(millijoules)

        def count() -> Count:
            code = call(handle, place)
            if code:
                fail(pynvml.NVMLError(code), f"cannot read the energy counter of {self.spec.label}", mig=self._mig)
            joules = millijoules.value / 1000
            return new(Count, (clock(), joules))

        try:
            count()
        except NotSupported:
            period_s = self.spec.sensors.power_period_s or 0.05
            self._integrated = IntegratedPower(self._watts, self._library.clock, period_s=period_s)
            return self._integrated.count
        return count

    def _watts(self) -> float:
        with translated(f"cannot read the power of {self.spec.label}", mig=self._mig):
            power_mw = self._power_mw()
        if power_mw is None:
            raise NotSupported(
                f"{self.spec.label} has neither an energy counter nor a power sensor",
                hint="it cannot be measured through its driver; use an external meter",
            )
        return power_mw / 1000


def _field(handle: Any, field: int) -> int | None:
    values = known(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [field]))
    if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def _throttle(bits: int | None) -> Throttle | None:
    if bits is None:
        return None
    reasons = Throttle.NONE
    for bit, reason in THROTTLE_BITS:
        if bits & bit:
            reasons |= reason
    return reasons
