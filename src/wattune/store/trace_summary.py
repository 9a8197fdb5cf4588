"""A power trace in a few figures, which is what the store keeps of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wattune.core.reading import Reading
from wattune.core.trace import Trace
from wattune.store.records import TraceSummary


def summarise(trace: Trace, *, uuid: str, simulated: bool) -> TraceSummary:
    """The summary of a trace that the GPU with this UUID gave.

    Means are over time (trapezoids between samples), since samples are not evenly spaced: a sampler drops those in
    which nothing has moved.
    """
    powers_w = [reading.power_w for reading in trace.readings if reading.power_w is not None]
    return TraceSummary(
        gpu=uuid,
        simulated=simulated,
        samples=len(trace.readings),
        duration_s=trace.duration_s,
        mean_power_w=_mean(trace, lambda reading: reading.power_w),
        min_power_w=min(powers_w, default=None),
        max_power_w=max(powers_w, default=None),
        p95_power_w=float(np.percentile(powers_w, 95)) if powers_w else None,
        mean_sm_mhz=_mean(trace, lambda reading: reading.sm_mhz),
        mean_mem_mhz=_mean(trace, lambda reading: reading.mem_mhz),
        refresh_s=_refresh_s(trace),
    )


def _mean(trace: Trace, quantity: Callable[[Reading], float | None]) -> float | None:
    known = [(reading.time_s, value) for reading in trace.readings if (value := quantity(reading)) is not None]
    if not known:
        return None
    times_s, values = np.array(known, dtype=float).T
    span_s = times_s[-1] - times_s[0]
    if span_s <= 0:
        return float(values.mean())
    return float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(times_s)) / span_s)


def _refresh_s(trace: Trace) -> float | None:
    """The median time between two readings, each of which brought something new; None with fewer than two."""
    gaps_s = np.diff([reading.time_s for reading in trace.readings])
    return float(np.median(gaps_s)) if len(gaps_s) else None
