"""Many cases of a benchmark in several processes."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from multiprocessing import get_context
from typing import TypeVar

from wattune.cli.threads import one_thread_each

C = TypeVar("C")
R = TypeVar("R")


def in_processes(
    function: Callable[[C], R], cases: Sequence[C], *, processes: int, on_case: Callable[[int], None]
) -> list[R]:
    """Call a function with each case and return the results in order; `on_case` gets the number that are done."""
    found: dict[int, R] = {}
    for place, result in _results(function, cases, processes):
        found[place] = result
        on_case(len(found))
    return [found[place] for place in range(len(cases))]


def _results(function: Callable[[C], R], cases: Sequence[C], processes: int) -> Iterator[tuple[int, R]]:
    if processes < 2 or len(cases) < 2:
        yield from ((place, function(case)) for place, case in enumerate(cases))
        return
    with ExitStack() as stack:
        stack.enter_context(one_thread_each())
        pool = stack.enter_context(
            ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_with_parent)
        )
        stack.callback(pool.shutdown, cancel_futures=True)
        waiting = {pool.submit(function, case): place for place, case in enumerate(cases)}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def _end_with_parent() -> None:
    """Let the system kill this process when its parent ends: a bench that is killed leaves no workers behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
