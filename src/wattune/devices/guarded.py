"""A GPU that is always left as it was found."""

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
from wattune.core.reading import Count, Reading
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.devices.journal import Claim, Entry, Journal, boot_id

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """A stretch that Ctrl-C and friends do not interrupt; what came in is delivered at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs handlers in the main thread only
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)

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
        for arrived in came:
            signal.raise_signal(arrived)


@contextmanager
def leaving_by_exception() -> Iterator[None]:
    """A stretch in which SIGTERM and SIGHUP raise SystemExit, so that `with` blocks end in order.

    Only where they would have killed the process; a program that handles them itself keeps its handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in mine:
            if signal.getsignal(number) is _leave:
                signal.signal(number, signal.SIG_DFL)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


class Undoable(Protocol):
    """A GPU whose settings outlive the process, and which can say and restore what it had."""

    count: Callable[[], Count]

    @property
    def spec(self) -> GpuSpec: ...
    @property
    def found(self) -> Mapping[str, float | None]: ...
    def read(self) -> Reading: ...
    def apply(self, setting: Setting) -> None: ...
    def remember(self) -> None: ...
    def undo(self, touched: tuple[str, ...], found: Mapping[str, float | None]) -> None: ...


class GuardedGpu:
    """A `Gpu` that claims the part before it first sets it, and journals what must be undone before each new knob."""

    def __init__(self, gpu: Undoable, journal: Journal, device: str) -> None:
        self._gpu = gpu
        self._journal = journal
        self._device = device
        self._claim: Claim | None = None
        self._touched: tuple[str, ...] = ()
        self._changed = False
        self.count = gpu.count
        self.refresh: Refresh | None = None

    @property
    def spec(self) -> GpuSpec:
        """What the part is."""
        return self._gpu.spec

    def read(self) -> Reading:
        """Everything the part tells now."""
        return self._gpu.read()

    def apply(self, setting: Setting) -> None:
        """Nothing; the part has this setting and the journal knows how to undo it."""
        self.spec.check(setting)
        with held_signals():
            self._note(setting)
            try:
                self._gpu.apply(setting)
            except NoPermission:
                raise
            except DeviceError:
                self._changed = True  # a part of it may hold
                raise
            self._changed = True

    def restore(self) -> None:
        """Nothing; the part is as it was found and free for others."""
        with held_signals():
            if self._claim is None:
                return
            claim, touched = self._claim, self._touched
            self._claim, self._touched = None, ()
            atexit.unregister(self.restore)
            try:
                self._undo(touched)
                claim.erase()  # where undoing failed the entry stays, for `wattune restore`
            finally:
                claim.release()

    def _undo(self, touched: tuple[str, ...]) -> None:
        try:
            self._gpu.undo(touched, self._gpu.found)
        except NoPermission:
            if self._changed:
                raise  # else the driver refused the very first change too, so there is nothing to undo

    def _note(self, setting: Setting) -> None:
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
        """The claim on the part. What it has from here on is what was found; before, others may have been tuning it."""
        claim = self._journal.claim(self.spec.uuid, label=self.spec.label)
        try:
            left = claim.read()
            if left is not None:  # its owner died since this process started
                self._gpu.undo(left.touched, left.found)
                claim.erase()
            self._gpu.remember()
        except BaseException:
            claim.release()
            raise
        self._changed = False
        return claim
