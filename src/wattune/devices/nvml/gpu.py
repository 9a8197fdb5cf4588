"""One NVIDIA GPU, read and set through NVML."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pynvml

from wattune.core.errors import DeviceError, NotSupported
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Restart
from wattune.core.refresh import Refresh
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.devices.entry import FOREIGN, judge
from wattune.devices.fork import disarm_in_children, refuse_in_child
from wattune.devices.in_turn import in_turn, takes_long
from wattune.devices.nvml.counter import EnergyCounter, IntegratedPower
from wattune.devices.nvml.describe import WITHOUT_CORE_LOCK, answers, known
from wattune.devices.nvml.library import Library, fail, native, translated
from wattune.devices.nvml.readings import Readings, power_query
from wattune.devices.nvml.undo import APART, Refused, read_knob, undo

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
        self.interrupted = False
        begun_s = time.monotonic()
        self._found = self._state()
        call_s = time.monotonic() - begun_s
        self.gpu_time_s = library.clock
        self._power_mw = power_query(handle)
        self._readings = Readings(handle, call_s=call_s)
        self._integrated: IntegratedPower | None = None
        self._refuse_counts: Callable[[], None] = lambda: None
        self.count: Callable[[], Count] = self._counter()
        disarm_in_children(self)

    def read(self) -> Reading:
        with self._translated(f"cannot read {self.spec.label}"):
            return self._readings.take(self.count(), power_mw=self._power_mw())

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """The restarts of the energy counter since the GPU was opened."""
        return self._own_counter.restarts

    def on_restart(self, note: Callable[[Restart], None]) -> None:
        """Call this at each restart of the energy counter."""
        self._own_counter.on_restart = note

    def apply(self, setting: Setting) -> None:
        """Set the GPU; knobs that were set before and are None now get the value that was found.

        If a knob is refused, those that were set before it go back to what they had.
        """
        self.spec.check(setting)
        done: list[Change] = []
        with self._translated(f"cannot set {self.spec.label} to {setting}"):
            try:
                for change in self._changes():
                    if self.interrupted:
                        raise DeviceError(f"{self.spec.label} is restored, so {setting} was not set")
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
        """Give back each knob that still has a value of ours; return a line about each that has not.

        Where the driver is slow, knobs are given back at the same time and by the fewest calls.
        """
        handle = ctypes.cast(self._handle, ctypes.c_void_p)
        left: list[str] = []
        with self._translated(f"cannot restore {self.spec.label}"):
            set_s: float | None = time.time() if since_s is None else since_s
            if ours and takes_long(partial(read_knob, native(), handle, "power_limit")):
                set_s = None
            parts = [{knob: ours[knob] for knob in knobs if knob in ours} for knobs in APART]
            undos = [partial(undo, native(), handle, part, found, since_s=set_s) for part in parts if part]
            for outcome in in_turn(undos):
                if isinstance(outcome, Refused):
                    raise pynvml.NVMLError(outcome.code) from None
                if isinstance(outcome, Exception):
                    raise outcome
                left += outcome
        self._applied = DRIVER_DEFAULT
        return tuple(left)

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
        values = answers(*(partial(self._known_knob, knob) for knob in READABLE))
        return {knob: value for knob, value in zip(READABLE, values, strict=True) if value}

    def _known_knob(self, knob: str) -> int | None:
        return known(lambda: self._knob(knob))

    def _knob(self, knob: str) -> int | None:
        try:
            return read_knob(native(), ctypes.cast(self._handle, ctypes.c_void_p), knob)
        except Refused as error:
            raise pynvml.NVMLError(error.code) from None

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
            # A range lets the GPU lower its clock while it is idle; under load it runs at the upper end.
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, self.spec.sm_clocks_mhz[0], setting.sm_mhz)
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

        def refuse() -> None:
            nonlocal call
            call = self._call_in_child

        self._refuse_counts = refuse
        self._own_counter = EnergyCounter(millijoules, self._library.clock)
        try:
            self._own_counter.count()
        except NotSupported:
            period_s = self.spec.sensors.power_period_s or 0.05
            self._integrated = IntegratedPower(self._watts, self._library.clock, period_s=period_s)
            return self._integrated.count
        return self._own_counter.count

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
