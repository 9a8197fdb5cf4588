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
    counts = [Count(one.time_s, one.energy_j) for one in readings if one.energy_j is not None]
    known = refresh or Refresh(UNKNOWN_PERIOD_S, 0.0, 0.0, UNKNOWN_PERIOD_S)
    before, after = _energy_at(counts, known, start_s), _energy_at(counts, known, end_s)
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


def _energy_at(counts: Sequence[Count], refresh: Refresh, time_s: float) -> tuple[float, float] | None:
    """Return the joules until an instant, and their error."""
    if len(counts) < 2:
        return None
    place = bisect_right(counts, time_s, key=lambda count: count.time_s)
    # A reading shortly after the instant may show an edge before it.
    if place < len(counts) and _edge_s(counts[place], refresh) <= time_s:
        place += 1
    low, high = (counts[at] for at in _neighbours(place, len(counts)))
    start_s, end_s = _edge_s(low, refresh), _edge_s(high, refresh)
    gap_s = end_s - start_s
    if gap_s <= 0:
        return None
    power_w = (high.energy_j - low.energy_j) / gap_s
    after_s, left_s = time_s - start_s, end_s - time_s
    if after_s >= 0 and left_s >= 0:
        varies_s = min(after_s, left_s)
    else:
        varies_s = max(-after_s, -left_s)
        if varies_s > _OUTSIDE * max(refresh.period_s, gap_s):
            return None
    uncertain_s = hypot(_VARIES * varies_s, refresh.age_error_s(low.time_s))
    mean_w = (counts[-1].energy_j - counts[0].energy_j) / (counts[-1].time_s - counts[0].time_s)
    return low.energy_j + power_w * after_s, max(power_w, mean_w) * uncertain_s


def _neighbours(place: int, count: int) -> tuple[int, int]:
    """Return the places of the readings on both sides, or of the two nearest."""
    high = min(max(place, 1), count - 1)
    return high - 1, high


def _edge_s(count: Count, refresh: Refresh) -> float:
    """Return when the counter moved to this value: with a lost phase when it was read, since that follows a move."""
    if _is_lost(refresh, count.time_s):
        return count.time_s
    return count.time_s - refresh.age_s(count.time_s)
