"""A GPU that is always restored."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from wattune.core.errors import DeviceError, NoPermission
from wattune.core.gpu_spec import GpuSpec
from wattune.core.reading import Count, Reading, Restart
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.devices.claim import Claim
from wattune.devices.entry import MOST_VALUES, Entry
from wattune.devices.fork import disarm_in_children, refuse_in_child
from wattune.devices.gpu import time_of
from wattune.devices.journal import Journal, boot_id
from wattune.devices.watchdog import Watchdog, undo_left

_LOG = logging.getLogger("wattune")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Replaced:
    """Signal handlers that a block replaced, and puts back at its end or in a forked child."""

    def __init__(self, before: Mapping[int, Any], handler: Any) -> None:
        self._before = before
        self._handler = handler
        for number in before:
            signal.signal(number, handler)
        disarm_in_children(self)

    def disarm(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) is self._handler:
                signal.signal(number, handler)


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
    replaced = Replaced({number: handler for number, handler in before.items() if handler is not None}, note)
    try:
        yield
    finally:
        replaced.disarm()
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
    replaced = Replaced(dict.fromkeys(unhandled, signal.SIG_DFL), _leave)
    try:
        yield
    finally:
        replaced.disarm()


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Undoable(Protocol):
    """A GPU whose settings outlive the process, and which can read and restore what it had.

    Knobs are those of `wattune.devices.entry`, in milliwatts and megahertz.
    """

    count: Callable[[], Count]
    interrupted: bool
    """True where a setting that is being applied must end after its present call: the GPU is to be restored."""

    @property
    def spec(self) -> GpuSpec: ...
    @property
    def restarts(self) -> tuple[Restart, ...]: ...
    @property
    def found(self) -> Mapping[str, int]: ...
    def read(self) -> Reading: ...
    def apply(self, setting: Setting) -> None: ...
    def remember(self) -> None: ...
    def wanted(self, setting: Setting) -> Mapping[str, int]: ...
    def adopt(self, ours: Mapping[str, Sequence[int]]) -> tuple[str, ...]: ...
    def undo(
        self, ours: Mapping[str, Sequence[int]], found: Mapping[str, int], *, since_s: float
    ) -> tuple[str, ...]: ...


class GuardedGpu:
    """A `Gpu` that claims the device before it is first set, and journals each value before it is set."""

    def __init__(self, gpu: Undoable, journal: Journal, device: str, *, watchdog: Watchdog | None = None) -> None:
        self._gpu = gpu
        self._journal = journal
        self._device = device
        self._watchdog = watchdog
        self._owner = os.getpid()
        self._claim: Claim | None = None
        self._boot_id = boot_id()
        self._ours: dict[str, tuple[int, ...]] = {}
        self._written: Mapping[str, tuple[int, ...]] = {}
        self._set_s = 0.0
        self._changed = self._has_failed = False
        self.count = gpu.count
        self.gpu_time_s = time_of(gpu)
        self.refresh: Refresh | None = None
        self._lock = threading.RLock()
        disarm_in_children(self)

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
        if os.getpid() != self._owner:
            refuse_in_child(self.spec.label, self._owner)
        self.spec.check(setting)
        with held_signals(), self._lock:
            wanted = self._gpu.wanted(setting)
            if self._claim is None and not wanted:
                return
            self._journal_values(wanted)
            self._set(setting)
            # Until here an earlier value may have held as well. The driver has the other knobs back.
            self._ours = {knob: (value,) for knob, value in wanted.items()}

    def restore(self) -> None:
        """Restore the GPU and release its claim. If that fails, the claim stays, so that it can be tried again.

        A setting that another thread is applying ends after its present call.
        """
        self._gpu.interrupted = True
        with held_signals(), self._lock:
            self._gpu.interrupted = False
            if self._claim is None:
                return
            try:
                left = self._undo(self._ours)
            except DeviceError:
                self._has_failed = True
                raise
            self._claim.erase()
            self._drop()
            if self._changed:  # otherwise the driver refused the first change, and whatever is there is not ours
                self._report(left)

    def close(self) -> None:
        """Restore the GPU and release its claim in any case; an entry that stays is undone after the process.

        An error of `restore` that was raised before is not raised again.
        """
        known = self._has_failed
        try:
            self.restore()
        except DeviceError:
            if not known:
                raise
        finally:
            with held_signals(), self._lock:
                self._drop()

    def disarm(self) -> None:
        """In a forked child: leave the GPU, its lock and its entry to the parent."""
        self._lock = threading.RLock()  # a thread of the parent may have held the other one
        claim, self._claim, self._ours, self._written = self._claim, None, {}, {}
        atexit.unregister(self.close)
        if claim is not None:
            claim.close()

    def _drop(self) -> None:
        claim, self._claim, self._ours, self._written = self._claim, None, {}, {}
        atexit.unregister(self.close)
        if claim is not None:
            claim.release()

    def _set(self, setting: Setting) -> None:
        self._set_s = time.time()
        try:
            self._gpu.apply(setting)
        except NoPermission:
            raise
        except DeviceError:
            self._changed = True  # some of it may hold
            raise
        self._changed = True

    def _undo(self, ours: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
        try:
            return self._gpu.undo(ours, self._gpu.found, since_s=self._set_s)
        except NoPermission:
            if self._changed:
                raise  # otherwise the driver refused the first change too, so there is nothing to undo
            return ()

    def _journal_values(self, wanted: Mapping[str, int]) -> None:
        """Claim the GPU and write what may hold from now on: the values that were set last, and the new ones."""
        if self._claim is None:
            self._claim = self._take()
            atexit.register(self.close)
        adopted = self._gpu.adopt({**dict.fromkeys(wanted, ()), **self._ours})
        for line in adopted:
            _LOG.warning("%s: %s", self.spec.label, line)
        ours = {**self._ours}
        for knob, value in wanted.items():
            ours[knob] = tuple(dict.fromkeys((*ours.get(knob, ()), value)))[-MOST_VALUES:]
        if ours != self._written or adopted:
            self._write(ours)
        self._ours = ours

    def _write(self, ours: Mapping[str, tuple[int, ...]]) -> None:
        assert self._claim is not None
        found = self._gpu.found
        entry = Entry(self.spec.uuid, self._device, pid=self._owner, boot_id=self._boot_id, found=found, ours=ours)
        try:
            self._claim.write(entry)
        except BaseException:
            if not self._written:  # nothing was set
                self._drop()
            raise
        self._written = ours

    def _take(self) -> Claim:
        """Claim the GPU and remember its state; before the claim, another process may have been tuning it."""
        claim = self._journal.claim(self.spec.uuid, label=self.spec.label)
        try:
            self._undo_left(claim)
            self._gpu.remember()
            failure = None if self._watchdog is None else self._watchdog.start()
        except BaseException:
            claim.release()
            raise
        if failure is not None:
            _LOG.warning("no watchdog beside this process: %s; after a crash run `wattune restore`", failure)
        self._changed = self._has_failed = False
        return claim

    def _undo_left(self, claim: Claim) -> None:
        """Undo the entry of an owner that died since this process started."""
        for outcome in undo_left(claim, lambda entry, s: self._gpu.undo(entry.ours, entry.found, since_s=s)):
            if outcome.entry is None:
                _LOG.warning("%s", outcome.error)
            elif outcome.error is not None:
                raise outcome.error
            self._report(outcome.left)

    def _report(self, left: tuple[str, ...]) -> None:
        for line in left:
            _LOG.warning("%s: %s; it is left as it is", self.spec.label, line)


@contextmanager
def watched(journal: Journal, library: Callable[[], str]) -> Iterator[Watchdog]:
    """Yield the one watchdog of this process for a journal; it starts with the first claim and ends with the block.

    Blocks may be nested or overlap: the last one ends it.
    """
    key = (journal.folder, journal.lock_folder)
    shared = _WATCHDOGS.setdefault(key, SharedWatchdog(Watchdog(journal, library)))
    shared.users += 1
    try:
        yield shared.watchdog
    finally:
        shared.users -= 1
        if not shared.users:
            shared.watchdog.stop()
            if _WATCHDOGS.get(key) is shared:
                del _WATCHDOGS[key]


class SharedWatchdog:
    """A watchdog and how many blocks use it."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.users = 0
        disarm_in_children(self)

    def disarm(self) -> None:
        """In a forked child: the watchdog is the parent's. A GPU that the child opens gets one of its own."""
        self.watchdog.forget()
        _WATCHDOGS.clear()


_WATCHDOGS: dict[tuple[str, str], SharedWatchdog] = {}
