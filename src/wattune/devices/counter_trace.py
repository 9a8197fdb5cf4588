"""What a GPU had spent at any instant, from readings of its energy counter.

Notation as in `core.refresh`: a reading at t has the energy of the edge before it, at e = t − a(t). Between two edges
energy grows by their mean power P̄; an instant b after the first of them and c before the second is then off by up to
P̄·min(b, c)/2 in ordinary training, and one outside all edges by half of P̄·b.
All errors are half-widths of 95 % intervals.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import hypot

from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading
from wattune.core.refresh import RESOLUTION_J, UNKNOWN_PERIOD_S, Refresh

_VARIES = 0.5
"""How far the power within a refresh may lie from its mean; covers ordinary training."""
_LOST = 0.25
"""Error of the phase, as a share of a refresh, from which it says nothing."""
_OUTSIDE = 3.0
"""Refreshes, or distances of readings, beyond the last edge of which nothing is known."""


def spent_between(
    readings: Sequence[Reading], refresh: Refresh | None, start_s: float, end_s: float
) -> Measurement | None:
    """Return what was spent between two instants of the GPU's time; None where the readings do not reach them."""
    known = refresh or Refresh(UNKNOWN_PERIOD_S, 0.0, 0.0, UNKNOWN_PERIOD_S)
    edges = _edges(readings, known)
    before, after = _energy_at(edges, known, start_s), _energy_at(edges, known, end_s)
    if before is None or after is None or after[0] < before[0] or end_s <= start_s:
        return None
    return Measurement(end_s - start_s, after[0] - before[0], None, hypot(before[1], after[1]) + RESOLUTION_J)


def edge_distance_s(refresh: Refresh | None, time_s: float) -> float:
    """Return how far an instant is from the nearest edge, 0 where that is unknown.

    The nearer it is, the more exact is what was spent until then.
    """
    if refresh is None or _is_lost(refresh, time_s):
        return 0.0
    age_s = refresh.age_s(time_s)
    return min(age_s, refresh.period_s - age_s)


def _is_lost(refresh: Refresh, time_s: float) -> bool:
    return refresh.age_error_s(time_s) > _LOST * refresh.period_s


def _edges(readings: Sequence[Reading], refresh: Refresh) -> list[Count]:
    """Return the values of the counter, each with the time at which it moved there.

    A reading close to an edge may lie on either side of it. It is taken to follow it, since readings follow moves,
    unless the next one shows that the counter moved there later.
    """
    found: list[Count] = []
    for one in reversed(readings):
        if one.energy_j is None:
            continue
        if found and found[-1].energy_j == one.energy_j:
            found.pop()
        edge_s, is_sure = _edge_s(one.time_s, refresh)
        if found and not is_sure and edge_s > found[-1].time_s - refresh.period_s / 2:
            edge_s -= refresh.period_s
        found.append(Count(edge_s, one.energy_j))
    return found[::-1]


def _edge_s(time_s: float, refresh: Refresh) -> tuple[float, bool]:
    """Return when the counter moved to a value that was read at this time, and whether it cannot be the edge before.

    With a lost phase that is when it was read.
    """
    if _is_lost(refresh, time_s):
        return time_s, True
    age_s = refresh.age_s(time_s)
    if not refresh.is_blind(time_s):
        return time_s - age_s, True
    return (time_s if age_s > refresh.period_s / 2 else time_s - age_s), False


def _energy_at(edges: Sequence[Count], refresh: Refresh, time_s: float) -> tuple[float, float] | None:
    """Return the joules until an instant, and their error."""
    if len(edges) < 2:
        return None
    high_place = min(max(bisect_right(edges, time_s, key=lambda edge: edge.time_s), 1), len(edges) - 1)
    low, high = edges[high_place - 1], edges[high_place]
    gap_s = high.time_s - low.time_s
    if gap_s <= 0:
        return None
    power_w = (high.energy_j - low.energy_j) / gap_s
    after_s, left_s = time_s - low.time_s, high.time_s - time_s
    if after_s >= 0 and left_s >= 0:
        varies_s = min(after_s, left_s)
    else:
        varies_s = max(-after_s, -left_s)
        if varies_s > _OUTSIDE * max(refresh.period_s, gap_s):
            return None
    uncertain_s = hypot(_VARIES * varies_s, refresh.age_error_s(low.time_s))
    mean_w = (edges[-1].energy_j - edges[0].energy_j) / (edges[-1].time_s - edges[0].time_s)
    return low.energy_j + power_w * after_s, max(power_w, mean_w) * uncertain_s
