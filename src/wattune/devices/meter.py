"""Measuring a block of code: `with measured(gpu) as span: ...`, then `span.measurement`.

Entering and leaving a span reads each GPU's energy counter once; everything else is done when the result is read. The
first span on a GPU whose counter is slow watches the counter for up to three refreshes before it starts, because a
count is far more exact when its age is known.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import hypot, inf
from typing import Generic, ParamSpec, Self, TypeVar

from wattune.core.errors import WattuneError
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Restart, Trace
from wattune.core.refresh import UNKNOWN_PERIOD_S, Edge, Refresh, spent_j, spent_until_j
from wattune.devices.counter_trace import spent_between
from wattune.devices.gpu import Gpu, restarts_within, time_of
from wattune.devices.in_turn import in_turn

POLL_S = 0.0002
"""Time between two polls of the counter. A poll costs microseconds; the scheduler allows no finer grid."""

PATIENCE = 3.0
"""Refreshes to wait for an edge before the counter is considered to stand still."""

SLOW_S = 0.25
"""Where a count takes this long, the end of a program must not wait for more of them than there are GPUs."""

Wait = Callable[[float], None]


def watch(gpu: Gpu, *, wait: Wait = time.sleep) -> Edge | None:
    """Wait for the next move of a GPU's counter and update the GPU's refresh; None if the counter does not move.

    Three moves are watched if the refresh is unknown, otherwise one.
    """
    edge = None
    for _ in range(3 if gpu.refresh is None else 1):
        edge = find_edge(gpu.count, period_s=_period_s(gpu), wait=wait)
        if edge is None:
            return None
        period_s = _period_s(gpu)
        # After the first edge the phase is known, and the period is the nominal one with an error of a fifth.
        first = Refresh(period_s, edge.time_s, 0.2 * period_s, edge.error_s)
        gpu.refresh = gpu.refresh.observed(edge.time_s, edge.error_s) if gpu.refresh else first
    return edge


def find_edge(count: Callable[[], Count], *, period_s: float, wait: Wait) -> Edge | None:
    """Wait for the next move of a counter; None if the counter, or time, stands still, or a count takes too long."""
    begun_s = time.monotonic()
    before = count()
    if time.monotonic() - begun_s > period_s / 2:
        return None
    deadline_s, polls = before.time_s + PATIENCE * period_s, 0
    while True:
        wait(POLL_S)
        after = count()
        if after.energy_j != before.energy_j:
            middle_s, error_s = (before.time_s + after.time_s) / 2, (after.time_s - before.time_s) / 2
            return Edge(middle_s, error_s, before.energy_j, after.energy_j)
        polls += 1
        if after.time_s > deadline_s or (polls > 100 and after.time_s == before.time_s):
            return None
        before = after


def _period_s(gpu: Gpu) -> float:
    return gpu.refresh.period_s if gpu.refresh else gpu.spec.sensors.counter_period_s or UNKNOWN_PERIOD_S


P = ParamSpec("P")
R = TypeVar("R")

QUICK_REFRESH_S = 0.005
"""A counter that moves this often needs no watching."""

ALWAYS_FRESH = Refresh(QUICK_REFRESH_S, 0.0, 0.0, QUICK_REFRESH_S)
"""The refresh of such a counter."""

LONG_SPAN_S = 1.0
"""After a span of this length the counter is polled once more."""

GOOD_PHASE, LOST_PHASE = 0.01, 0.125
"""Errors of the phase, as shares of a refresh, above which that is done: after a long span, after any."""


class Span:
    """A named interval of time on one or several GPUs, and the spans inside it."""

    # Defaults that most spans never change are class attributes: making a span is on the hot path of user code.
    children: tuple[Span, ...] = ()
    _before: list[Count] | None = None
    _after: list[Count] | None = None
    _spent: list[tuple[float, float, float]] | None = None
    _wait: Wait = staticmethod(time.sleep)
    _is_slow = False

    def __init__(self, gpus: tuple[Gpu, ...], name: str | None) -> None:
        self.gpus = gpus
        self.name = name

    def __enter__(self) -> Self:
        self._before = [gpu.count() for gpu in self.gpus]
        return self

    def __exit__(self, *exception: object) -> None:
        begun_s = time.monotonic()
        first, *others = self.gpus
        after = [first.count()]
        self._is_slow = time.monotonic() - begun_s > SLOW_S
        self._after = after + (_together(others) if self._is_slow else [gpu.count() for gpu in others])

    def span(self, name: str) -> Span:
        """Return a span inside this one, on the same GPUs."""
        child = Span(self.gpus, name)
        child._wait = self._wait
        self.children = (*self.children, child)
        return child

    @property
    def parts(self) -> tuple[Measurement, ...]:
        """Time and energy of each GPU, in the order of `gpus`. May wait one refresh after a long span."""
        return tuple(Measurement(time_s, energy_j, None, error_j) for time_s, energy_j, error_j in self._results())

    @property
    def measurement(self) -> Measurement:
        """All GPUs together: the longest time, the sum of the energies."""
        results = self._spent or self._results()
        if len(results) == 1:
            time_s, energy_j, error_j = results[0]
            return Measurement(time_s, energy_j, None, error_j)
        times_s, energies_j, errors_j = zip(*results, strict=True)
        return Measurement(max(times_s), sum(energies_j), None, hypot(*errors_j))

    @property
    def restarts(self) -> tuple[tuple[Restart, ...], ...]:
        """The restarts of the energy counter of each GPU inside this span, which its error accounts for."""
        begun = [-inf] * len(self.gpus) if self._before is None else [count[0] for count in self._before]
        ended = [inf] * len(self.gpus) if self._after is None else [count[0] for count in self._after]
        return tuple(restarts_within(*ends) for ends in zip(self.gpus, begun, ended, strict=True))

    def _results(self) -> list[tuple[float, float, float]]:
        """Seconds, joules and the error of the joules, for each GPU; worked out once."""
        if self._spent is not None:
            return self._spent
        if self._before is None or self._after is None:
            raise WattuneError("this span has not ended yet", hint="ask for its result after the `with` block")
        results = []
        for gpu, before, after in zip(self.gpus, self._before, self._after, strict=True):
            refresh = gpu.refresh
            if self._is_slow or refresh is ALWAYS_FRESH or refresh is None or not _is_doubtful(refresh, before, after):
                spent = spent_j(before, after, refresh)
            else:
                spent = _spent_until_edge_j(gpu, before, after, self._wait)
            time_s = after[0] - before[0]
            energy_j, error_j = spent or _from_power(gpu, time_s)
            results.append((time_s, energy_j, error_j + _missing_j(gpu, before, after)))
        self._spent = results
        return results


class Measured(Span):
    """A span over these GPUs: a context manager, or a decorator that measures a function.

    `wait` lets time pass; tests on a virtual clock pass their own.
    """

    def __init__(self, *gpus: Gpu, name: str | None = None, wait: Wait | None = None) -> None:
        if not gpus:
            raise WattuneError("there is no GPU to measure", hint="pass one: `with measured(gpu) as span:`")
        self.gpus = gpus
        self.name = name
        if wait is not None:
            self._wait = wait

    def __enter__(self) -> Self:
        before = []
        for gpu in self.gpus:
            count = gpu.count()
            refresh = gpu.refresh
            if refresh is not ALWAYS_FRESH:
                if refresh is None:
                    self._prepare()
                    return self.__enter__()
                if refresh.is_blind(count[0]):
                    count = _clear_of_edge(gpu, refresh, self._wait)
            before.append(count)
        self._before = before
        return self

    def _prepare(self) -> None:
        """Learn the refresh of every counter before any is read, because that takes time."""
        for gpu in self.gpus:
            if gpu.refresh is None:
                _learn(gpu, self._wait)

    def __call__(self, function: Callable[P, R]) -> MeasuredFunction[P, R]:
        """Wrap a function so that every call is measured."""
        return MeasuredFunction(function, self.gpus, self.name or function.__qualname__)


measured = Measured


class MeasuredFunction(Generic[P, R]):
    """A function and the total cost of its calls."""

    def __init__(self, function: Callable[P, R], gpus: tuple[Gpu, ...], name: str) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._gpus = gpus
        self.name = name
        self.calls = 0
        self.total: Measurement | None = None
        self.last: Measurement | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, and measure the call."""
        with Measured(*self._gpus, name=self.name) as span:
            result = self._function(*args, **kwargs)
        self.last = span.measurement
        self.total = self.last if self.total is None else self.total + self.last
        self.calls += 1
        return result


def _together(gpus: Sequence[Gpu]) -> list[Count]:
    """Count on GPUs of a slow driver at the same time."""
    counts = in_turn([gpu.count for gpu in gpus])
    for count in counts:
        if isinstance(count, Exception):
            raise count
    return [count for count in counts if isinstance(count, Count)]


def _learn(gpu: Gpu, wait: Wait) -> None:
    """Learn the refresh of a counter; assume the nominal period if it is fast, stands still or is slow to read."""
    if _moves_at_every_read(gpu):
        gpu.refresh = ALWAYS_FRESH
        return
    period_s = gpu.spec.sensors.counter_period_s or UNKNOWN_PERIOD_S
    if period_s > QUICK_REFRESH_S:
        watch(gpu, wait=wait)
    if gpu.refresh is None:
        gpu.refresh = Refresh(period_s, time_of(gpu)(), 0.0, period_s)
    if gpu.refresh.period_s <= QUICK_REFRESH_S:
        gpu.refresh = ALWAYS_FRESH


def _moves_at_every_read(gpu: Gpu) -> bool:
    """Return whether reads in a row always differ; polls on a busy machine would take such a counter for a slow one."""
    one = gpu.count()
    for _ in range(4):
        two = gpu.count()
        if two.energy_j == one.energy_j or two.time_s - one.time_s >= QUICK_REFRESH_S:
            return False
        one = two
    return True


def _clear_of_edge(gpu: Gpu, refresh: Refresh, wait: Wait) -> Count:
    """Return a count after the edge that the last one was too close to."""
    blind_s = 2 * refresh.age_error_s(gpu.count().time_s)
    if blind_s < refresh.period_s / 10:
        wait(blind_s)
    return gpu.count()


def _spent_until_edge_j(gpu: Gpu, before: Count, after: Count, wait: Wait) -> tuple[float, float] | None:
    """Return the joules of a span and their error, after watching for one more edge."""
    edge = watch(gpu, wait=wait)
    if edge is not None and gpu.refresh is not None:
        found = spent_until_j(before, after.time_s, edge, gpu.refresh)
        if found is not None:
            return found
    return spent_j(before, after, gpu.refresh)


def _is_doubtful(refresh: Refresh, before: Count, after: Count) -> bool:
    """Return whether the age of the counter at the end matters and is not known well.

    A phase that is about to be lost is renewed in any case. That is rare: edges far apart make the period so exact that
    each renewal lasts many times longer than the one before.
    """
    error_s = refresh.age_error_s(after.time_s)
    if error_s > LOST_PHASE * refresh.period_s:
        return True
    if after.time_s - before.time_s < LONG_SPAN_S:
        return False
    return error_s > GOOD_PHASE * refresh.period_s or refresh.is_blind(after.time_s)


def _from_power(gpu: Gpu, time_s: float) -> tuple[float, float]:
    """Estimate a span in which the counter never moved from the present power, with an error up to the limit."""
    reading = gpu.read()
    if reading.power_w is None:
        raise WattuneError(
            f"{gpu.spec.label}: neither its counter nor its power sensor answered for this span",
            hint="measure a longer piece of work",
        )
    ceiling_w = reading.power_limit_w or _highest_w(gpu) or 2 * reading.power_w
    error_w = max(reading.power_w, ceiling_w - reading.power_w)
    return reading.power_w * time_s, error_w * time_s


def _highest_w(gpu: Gpu) -> float | None:
    limits = gpu.spec.power_limits
    return limits.max_w if limits else None


def spent_within(gpu: Gpu, trace: Trace, start_s: float, end_s: float) -> Measurement | None:
    """Return what a GPU spent between two instants of its time, by a trace of it; None where that is unknown.

    Exact where a span has learned when its counter moves.
    """
    cost = spent_between(trace.readings, gpu.refresh, start_s, end_s)
    if cost is None:
        return None
    missing_j = _missing_j(gpu, Count(start_s, 0.0), Count(end_s, 0.0))
    return replace(cost, energy_error_j=(cost.energy_error_j or 0.0) + missing_j)


UNKNOWN_LIMIT_W = 1000.0
"""Highest power of a GPU whose limits are not known: more than any GPU of today draws (B200: 1000 W)."""


def _missing_j(gpu: Gpu, before: Count, after: Count) -> float:
    """Return the most that a counter can have missed by restarting between two counts."""
    found = restarts_within(gpu, before.time_s, after.time_s)
    return sum(restart.after_s - restart.before_s for restart in found) * (_highest_w(gpu) or UNKNOWN_LIMIT_W)
