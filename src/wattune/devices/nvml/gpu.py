"""One NVIDIA GPU, read and set through NVML."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

from wattune.core.errors import DeviceError, NotSupported
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Throttle
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.entry import FOREIGN, judge
from wattune.devices.fork import disarm_in_children, refuse_in_child
from wattune.devices.nvml.describe import WITHOUT_CORE_LOCK, known
from wattune.devices.nvml.library import Library, fail, native, translated
from wattune.devices.nvml.undo import Refused, read_knob, undo


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

    def fail(self, error: DeviceError) -> None:
        """Let every later count raise an error."""
        self._lock = threading.Lock()  # in a forked child, the thread that may hold the other one is gone
        self._failure = error

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


Change = Callable[[Setting, Setting], None]
"""Takes one knob from what a setting gives it to what another gives it."""

READABLE = ("power_limit", "app_sm_clock", "app_mem_clock")
"""The knobs that can be read; a lock cannot."""


class NvmlGpu:
    """A `Gpu` on NVML. It does not restore by itself: `open_gpu` does."""

    def __init__(self, handle: Any, spec: GpuSpec, library: Library, *, mig: bool = False) -> None:
        self.spec = spec
        self.refresh: Refresh | None = None
        self._handle = handle
        self._library = library
        self._mig = mig
        self._owner = os.getpid()
        self._applied = DRIVER_DEFAULT
        self._found = self._state()
        self._power_mw = self._power_query()
        self._integrated: IntegratedPower | None = None
        self._refuse_counts: Callable[[], None] = lambda: None
        self.count: Callable[[], Count] = self._counter()
        disarm_in_children(self)

    def read(self) -> Reading:
        handle = self._handle
        with self._translated(f"cannot read {self.spec.label}"):
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
        """Set the GPU; knobs that were set before and are None now get the value that was found.

        If a knob is refused, those that were set before it go back to what they had.
        """
        self.spec.check(setting)
        done: list[Change] = []
        with self._translated(f"cannot set {self.spec.label} to {setting}"):
            try:
                for change in self._changes():
                    change(self._applied, setting)
                    done.append(change)
            except pynvml.NVMLError:
                for change in reversed(done):
                    with suppress(pynvml.NVMLError):  # the journal has what does not go back
                        change(setting, self._applied)
                raise
        self._applied = setting

    def restore(self) -> None:
        self.undo({knob: (value,) for knob, value in self.wanted(self._applied).items()}, self._found)

    @property
    def found(self) -> Mapping[str, int]:
        """The state in which the GPU was opened. A clock lock set by others cannot be read through NVML."""
        return self._found

    def remember(self) -> None:
        """Take what the GPU has now as what was found."""
        with self._translated(f"cannot read {self.spec.label}"):
            self._found = self._state()

    def wanted(self, setting: Setting) -> Mapping[str, int]:
        """Return the knobs of the driver that a setting turns, in milliwatts and megahertz."""
        knobs: dict[str, int] = {}
        if setting.power_limit_w is not None:
            knobs["power_limit"] = round(setting.power_limit_w * 1000)
        if self.spec.architecture in WITHOUT_CORE_LOCK:
            if setting.sm_mhz is not None or setting.mem_mhz is not None:
                knobs["app_mem_clock"], knobs["app_sm_clock"] = self._application_clocks(setting)
            return knobs
        if setting.sm_mhz is not None:
            knobs["sm_clock"] = setting.sm_mhz
        if setting.mem_mhz is not None and self.spec.can_lock_mem:
            knobs["mem_clock"] = setting.mem_mhz
        return knobs

    def adopt(self, ours: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
        """Take a limit that somebody else has set meanwhile as the one that was found; return a line about it."""
        if "power_limit" not in ours or "power_limit" not in self._found:
            return ()
        with self._translated(f"cannot read {self.spec.label}"):
            now_mw = known(lambda: int(pynvml.nvmlDeviceGetPowerManagementLimit(self._handle)))
        if now_mw is None or judge(ours["power_limit"], self._found["power_limit"], now_mw) != FOREIGN:
            return ()
        self._found = {**self._found, "power_limit": now_mw}
        return (f"somebody else has set its power limit to {now_mw / 1000:g} W, which holds again at the end",)

    def undo(
        self, ours: Mapping[str, Sequence[int]], found: Mapping[str, int], *, since_s: float | None = None
    ) -> tuple[str, ...]:
        """Give back each knob that still has a value of ours; return a line about each that has not."""
        handle = ctypes.cast(self._handle, ctypes.c_void_p)
        with self._translated(f"cannot restore {self.spec.label}"):
            try:
                left = undo(native(), handle, ours, found, since_s=time.time() if since_s is None else since_s)
            except Refused as error:
                raise pynvml.NVMLError(error.code) from None
        self._applied = DRIVER_DEFAULT
        return left

    def disarm(self) -> None:
        """In a forked child: refuse every use, since NVML was initialised by the parent."""
        self._refuse_counts()
        if self._integrated is not None:
            self._integrated.fail(DeviceError(f"{self.spec.label} was opened by the parent of this process"))

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        if os.getpid() != self._owner:
            refuse_in_child(self.spec.label, self._owner)
        with translated(what, mig=self._mig):
            yield

    def close(self) -> None:
        """End the background thread of this GPU."""
        if self._integrated is not None and os.getpid() == self._owner:
            self._integrated.stop()

    def _state(self) -> dict[str, int]:
        library, handle = native(), ctypes.cast(self._handle, ctypes.c_void_p)
        try:
            values = {knob: read_knob(library, handle, knob) for knob in READABLE}
        except Refused as error:
            raise pynvml.NVMLError(error.code) from None
        return {knob: value for knob, value in values.items() if value}

    def _changes(self) -> tuple[Change, ...]:
        """Return how to get from one setting to another, knob by knob."""
        if self.spec.architecture in WITHOUT_CORE_LOCK:
            return (self._change_application_clocks, self._change_limit)
        return (self._change_mem_lock, self._change_sm_lock, self._change_limit)

    def _change_limit(self, before: Setting, setting: Setting) -> None:
        if setting.power_limit_w is not None:
            pynvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(setting.power_limit_w * 1000))
        elif before.power_limit_w is not None and "power_limit" in self._found:
            pynvml.nvmlDeviceSetPowerManagementLimit(self._handle, self._found["power_limit"])

    def _change_mem_lock(self, before: Setting, setting: Setting) -> None:
        if not self.spec.can_lock_mem:
            return
        if setting.mem_mhz is not None:
            pynvml.nvmlDeviceSetMemoryLockedClocks(self._handle, setting.mem_mhz, setting.mem_mhz)
        elif before.mem_mhz is not None:
            pynvml.nvmlDeviceResetMemoryLockedClocks(self._handle)

    def _change_sm_lock(self, before: Setting, setting: Setting) -> None:
        if setting.sm_mhz is not None:
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, setting.sm_mhz, setting.sm_mhz)
        elif before.sm_mhz is not None:
            pynvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def _change_application_clocks(self, before: Setting, setting: Setting) -> None:
        if setting.sm_mhz is not None or setting.mem_mhz is not None:
            pynvml.nvmlDeviceSetApplicationsClocks(self._handle, *self._application_clocks(setting))
        elif before.sm_mhz is not None or before.mem_mhz is not None:
            mem_mhz, sm_mhz = self._found.get("app_mem_clock"), self._found.get("app_sm_clock")
            if sm_mhz is None or mem_mhz is None:
                pynvml.nvmlDeviceResetApplicationsClocks(self._handle)
            else:
                pynvml.nvmlDeviceSetApplicationsClocks(self._handle, mem_mhz, sm_mhz)

    def _application_clocks(self, setting: Setting) -> tuple[int, int]:
        """Return the memory and core clock: there are only both together."""
        return setting.mem_mhz or self.spec.mem_clocks_mhz[0], setting.sm_mhz or self.spec.sm_clocks_mhz[-1]

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

        def refuse() -> None:
            nonlocal call
            call = self._call_in_child

        self._refuse_counts = refuse
        try:
            count()
        except NotSupported:
            period_s = self.spec.sensors.power_period_s or 0.05
            self._integrated = IntegratedPower(self._watts, self._library.clock, period_s=period_s)
            return self._integrated.count
        return count

    def _call_in_child(self, *_: object) -> int:
        refuse_in_child(self.spec.label, self._owner)

    def _watts(self) -> float:
        with self._translated(f"cannot read the power of {self.spec.label}"):
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
