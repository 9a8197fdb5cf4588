"""The period of a stream of samples, kept up to date as they come.

A tracker is a value: `add` gives the tracker that has seen some more. It keeps a bounded window, looks through all of
it only when that may change the answer (when the window has grown by a quarter, later every so many periods), and in
between only notes what came.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wattune.core.gpu_spec import Sensors
from wattune.signals.period import LEAST_SAMPLES, PeriodAnswer, Verdict, find_period
from wattune.signals.samples import PowerSamples

MOST_SAMPLES = 4096
"""Memory and work are bounded by so many; more of a stream than this says little more of its step."""
_WINDOW_S = 120.0
# Looked through again when the window has grown by this factor, until it is full.
_GROWTH = 1.25
# And once it is full, when this share of it is new.
_RENEWED = 0.125
_TOO_FEW = PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, reason="too few samples")


def _nothing() -> PowerSamples:
    return PowerSamples(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodTracker:
    """The newest samples of a stream and what they say."""

    sensor: Sensors | None = None
    window_s: float = _WINDOW_S
    samples: PowerSamples = field(default_factory=_nothing)
    answer: PeriodAnswer = _TOO_FEW
    next_s: float = 0.0
    """When the samples will be looked through again."""

    def add(self, samples: PowerSamples) -> PeriodTracker:
        """The tracker that has seen these samples too."""
        kept = self.samples.joined(samples) if len(self.samples) else samples
        if not len(kept):
            return self
        newest_s = float(kept.time_s[-1])
        kept = kept.since(newest_s - self.window_s).newest(MOST_SAMPLES)
        if len(kept) < LEAST_SAMPLES or newest_s < self.next_s:
            return replace(self, samples=kept)
        full = len(kept) >= MOST_SAMPLES or kept.duration_s > 0.9 * self.window_s
        wait_s = kept.duration_s * (_RENEWED if full else _GROWTH - 1)
        answer = find_period(kept, sensor=self.sensor)
        return replace(self, samples=kept, answer=answer, next_s=newest_s + wait_s)
