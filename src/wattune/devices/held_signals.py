"""Signals that must not cut through the setting or restoring of a GPU."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
