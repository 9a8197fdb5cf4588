"""Steps without the stalls between them: checkpoints, evaluations, a loader that waits.

A stall is the same at every clock and comes by chance into one window and not into another, so that it hides what a
clock does to the steps. A slowdown of the steps alone is never smaller than that of the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

STALL = 3.0
"""Times the usual duration of a step: jitter stays well below, evaluations and checkpoints lie well above."""
_MOST = 0.2
"""Share of stretches: where more of them are long, they are how the program works and no stalls."""


def without_stalls(times_s: Sequence[float], counts: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """The times as they would be had each stretch with a stall taken its usual time, and how long the stalls took.

    `counts` is how many steps were over by each time.
    """
    spans = [(late - early, after - before) for (early, late), (before, after) in _pairs(times_s, counts)]
    usual_s = _usual_s(spans)
    if usual_s is None:
        return tuple(times_s), 0.0
    extra = [span_s - usual_s * steps if span_s > STALL * usual_s * max(steps, 1) else 0.0 for span_s, steps in spans]
    if sum(one > 0 for one in extra) > _MOST * len(spans):
        return tuple(times_s), 0.0
    moved, lost_s = [times_s[0]], 0.0
    for time_s, one in zip(times_s[1:], extra, strict=True):
        lost_s += one
        moved.append(time_s - lost_s)
    return tuple(moved), lost_s


def _pairs(times_s: Sequence[float], counts: Sequence[float]) -> zip[tuple[tuple[float, float], tuple[float, float]]]:
    return zip(pairwise(times_s), pairwise(counts), strict=True)


def _usual_s(spans: Sequence[tuple[float, float]]) -> float | None:
    """The usual time of one step; None where there are too few to say."""
    each_s = [span_s / steps for span_s, steps in spans if steps > 0]
    usual_s = median(each_s) if len(each_s) >= 4 else 0.0
    return usual_s if usual_s > 0 else None
