"""A GPU that is always restored."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from wattune.core.errors import DeviceError, NoPermission
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Restart
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.devices.gpu import time_of
from wattune.devices.journal import Claim, Entry, Journal, boot_id

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """Hold back Ctrl-C and termination signals during a block, and deliver them at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs handlers in the main thread only
        return
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    # Handlers that were not set from Python cannot be put back, so they are left alone.
    before = {number: signal.getsignal(number) for number in STOPPING}
    held = {number: handler for number, handler in before.items() if handler is not None}
    for number in held:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for arrived in received:
            signal.raise_signal(arrived)


@contextmanager
def leaving_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit during a block, so that `with` blocks end in order.

    Signals that the program handles itself keep their handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    unhandled = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in unhandled:
            if signal.getsignal(number) is _leave:
                signal.signal(number, signal.SIG_DFL)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Undoable(Protocol):
    """A GPU whose settings outlive the process, and which can read and restore what it had."""

    count: Callable[[], Count]

    @property
    def spec(self) -> GpuSpec: ...
    @property
    def restarts(self) -> tuple[Restart, ...]: ...
    @property
    def found(self) -> Mapping[str, float | None]: ...
    def read(self) -> Reading: ...
    def apply(self, setting: Setting) -> None: ...
    def remember(self) -> None: ...
    def undo(self, touched: tuple[str, ...], found: Mapping[str, float | None]) -> None: ...


class GuardedGpu:
    """A `Gpu` that claims the device before it is first set, and journals what to undo before each new knob is set."""

    def __init__(self, gpu: Undoable, journal: Journal, device: str) -> None:
        self._gpu = gpu
        self._journal = journal
        self._device = device
        self._claim: Claim | None = None
        self._touched: tuple[str, ...] = ()
        self._changed = False
        self.count = gpu.count
        self.gpu_time_s = time_of(gpu)
        self.refresh: Refresh | None = None

    @property
    def spec(self) -> GpuSpec:
        return self._gpu.spec

    @property
    def restarts(self) -> tuple[Restart, ...]:
        return self._gpu.restarts

    def read(self) -> Reading:
        return self._gpu.read()

    def apply(self, setting: Setting) -> None:
        """Apply the setting and journal how to undo it."""
        self.spec.check(setting)
        with held_signals():
            self._journal_knobs(setting)
            try:
                self._gpu.apply(setting)
            except NoPermission:
                raise
            except DeviceError:
                self._changed = True  # some of it may hold
                raise
            self._changed = True

    def restore(self) -> None:
        """Restore the GPU and release its claim."""
        with held_signals():
            if self._claim is None:
                return
            claim, touched = self._claim, self._touched
            self._claim, self._touched = None, ()
            atexit.unregister(self.restore)
            try:
                self._undo(touched)
                claim.erase()  # if undoing fails, the entry stays for `wattune restore`
            finally:
                claim.release()

    def _undo(self, touched: tuple[str, ...]) -> None:
        try:
            self._gpu.undo(touched, self._gpu.found)
        except NoPermission:
            if self._changed:
                raise  # otherwise the driver refused the first change too, so there is nothing to undo

    def _journal_knobs(self, setting: Setting) -> None:
        touched = tuple(sorted({*self._touched, *setting.knobs}))
        if touched == self._touched:
            return
        if self._claim is None:
            self._claim = self._take()
            atexit.register(self.restore)
        entry = Entry(self.spec.uuid, self._device, touched, dict(self._gpu.found), os.getpid(), boot_id())
        self._claim.write(entry)
        self._touched = touched

    def _take(self) -> Claim:
        """Claim the GPU and remember its state; before the claim, another process may have been tuning it."""
        claim = self._journal.claim(self.spec.uuid, label=self.spec.label)
        try:
            entry = claim.read()
            if entry is not None:  # its owner died since this process started
                self._gpu.undo(entry.touched, entry.found)
                claim.erase()
            self._gpu.remember()
        except BaseException:
            claim.release()
            raise
        self._changed = False
        return claim
