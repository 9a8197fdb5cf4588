"""What keeping up with a stream of samples costs, update by update."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

import numpy as np

from wattune.benchmarks.period.cases import Case
from wattune.signals.period_tracker import PeriodTracker

_SAMPLES_PER_UPDATE = 5


@dataclass(frozen=True, slots=True)
class StreamCost:
    """Milliseconds of the thread's processor time per update."""

    mean_ms: float
    longest_ms: float


def stream_cost(case: Case) -> StreamCost:
    """The cost of feeding a trace to a tracker, a few samples at a time."""
    samples, tracker = case.samples.in_order(), PeriodTracker()
    index = np.arange(len(samples))
    spent_ms = []
    # All that the bench has in memory would be gone through by Python's collector now and then, in somebody's update.
    gc.freeze()
    for first in range(0, len(samples), _SAMPLES_PER_UPDATE):
        part = samples.where((index >= first) & (index < first + _SAMPLES_PER_UPDATE))
        begun_s = time.thread_time()
        tracker = tracker.add(part)
        spent_ms.append(1000 * (time.thread_time() - begun_s))
    gc.unfreeze()
    return StreamCost(float(np.mean(spent_ms)), max(spent_ms))
