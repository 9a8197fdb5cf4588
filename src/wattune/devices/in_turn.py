"""Calls of a driver in turn, and beside each other where one takes long: a slow driver must not hold up the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

PATIENCE_S = 0.25
"""A call that takes longer is not waited for before the next; an ordinary one takes milliseconds."""

T = TypeVar("T")


def in_turn(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """Make each call once the one before has ended or has taken long; return their results or errors, in order."""
    results: dict[int, T | Exception] = {}

    def make(place: int) -> None:
        try:
            results[place] = calls[place]()
        except Exception as error:  # it is for the caller to raise
            results[place] = error

    threads = [threading.Thread(target=make, args=(place,), daemon=True) for place in range(len(calls) - 1)]
    for place, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:  # the interpreter shuts down
            make(place)
        else:
            thread.join(PATIENCE_S)
    if calls:
        make(len(calls) - 1)
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    return [results[place] for place in range(len(calls))]


def takes_long(call: Callable[[], object]) -> bool:
    """Return whether a call has not ended in time; its result does not matter."""
    thread = threading.Thread(target=in_turn, args=([call],), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter shuts down
        return False
    thread.join(PATIENCE_S)
    return thread.is_alive()
