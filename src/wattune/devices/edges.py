"""Watching a counter until it moves, to learn when it does."""

from __future__ import annotations

import time
from collections.abc import Callable

from wattune.core.reading import Count
from wattune.core.refresh import UNKNOWN_PERIOD_S, Edge, Refresh
from wattune.devices.gpu import Gpu

POLL_S = 0.0002
"""Between two looks at the counter. A look costs microseconds; a finer grid gains nothing over the scheduler's own."""

PATIENCE = 3.0
"""Refreshes to wait for an edge before taking the counter for one that does not move."""

Wait = Callable[[float], None]


def watch(gpu: Gpu, *, wait: Wait = time.sleep) -> Edge | None:
    """The next move of a GPU's counter, from which the GPU's refresh is learned too; None where it does not move.

    Three moves are watched where nothing is known yet, one where the period is.
    """
    edge = None
    for _ in range(3 if gpu.refresh is None else 1):
        edge = find_edge(gpu.count, period_s=_period_s(gpu), wait=wait)
        if edge is None:
            return None
        known = gpu.refresh
        gpu.refresh = known.observed(edge.time_s, edge.error_s) if known else _first(gpu, edge)
    return edge


def find_edge(count: Callable[[], Count], *, period_s: float, wait: Wait) -> Edge | None:
    """The next move of a counter; None where it stands still, or time does."""
    before = count()
    deadline_s, looks = before.time_s + PATIENCE * period_s, 0
    while True:
        wait(POLL_S)
        after = count()
        if after.energy_j != before.energy_j:
            middle_s, error_s = (before.time_s + after.time_s) / 2, (after.time_s - before.time_s) / 2
            return Edge(middle_s, error_s, before.energy_j, after.energy_j)
        looks += 1
        if after.time_s > deadline_s or (looks > 100 and after.time_s == before.time_s):
            return None
        before = after


def _period_s(gpu: Gpu) -> float:
    return gpu.refresh.period_s if gpu.refresh else gpu.spec.sensors.counter_period_s or UNKNOWN_PERIOD_S


def _first(gpu: Gpu, edge: Edge) -> Refresh:
    """What one edge tells: the phase; the period is the part's nominal one, to a fifth."""
    period_s = _period_s(gpu)
    return Refresh(period_s, edge.time_s, 0.2 * period_s, edge.error_s)
