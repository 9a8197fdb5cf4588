"""Track the period of a stream of samples.

A tracker is a value: `add` returns the tracker with more samples. It keeps a bounded window and analyses it again when
it has grown by a quarter, or once it is full when an eighth of it is new. An analysis is spread over many updates (more
of it where many samples come at once), so that no update takes long; until it is complete, the answer is that of the
last one. `settled` completes it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wattune.core.gpu_spec import Sensors
from wattune.signals.period import LEAST_SAMPLES, PeriodAnswer, Verdict, finding
from wattune.signals.samples import IncrementalTask, PowerSamples

MOST_SAMPLES = 4096
"""Bound on memory and work; more samples hardly improve the period."""
_WINDOW_S = 120.0
# Analysed again when the window has grown by this factor, until it is full.
_GROWTH = 1.25
# And once it is full, when this share of it is new.
_RENEWED = 0.125
# Samples that come at once, for each of which one more step of an analysis is done.
_PER_STEP = 8
# More than any analysis has.
_ALL_STEPS = 1 << 30
_TOO_FEW = PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, reason="too few samples")


def _nothing() -> PowerSamples:
    return PowerSamples(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodTracker:
    """The newest samples of a stream and their period."""

    sensor: Sensors | None = None
    window_s: float = _WINDOW_S
    samples: PowerSamples = field(default_factory=_nothing)
    answer: PeriodAnswer = _TOO_FEW
    """Of the last complete analysis."""
    next_s: float = 0.0
    """When the next analysis starts."""
    task: IncrementalTask[PeriodAnswer] | None = None
    """The analysis under way."""
    steps: int = 0
    """How many of its steps are done."""

    def add(self, samples: PowerSamples) -> PeriodTracker:
        """Take in some more samples."""
        kept = self.samples.joined(samples) if len(self.samples) else samples
        if not len(kept):
            return self
        newest_s = float(kept.time_s[-1])
        kept = kept.since(newest_s - self.window_s).newest(MOST_SAMPLES)
        tracker = replace(self, samples=kept)
        if self.task is None:
            if len(kept) < LEAST_SAMPLES or newest_s < self.next_s:
                return tracker
            tracker = tracker._begun(newest_s)
        return tracker._advanced(self.steps + 1 + len(samples) // _PER_STEP)

    def settled(self) -> PeriodTracker:
        """Complete the analysis under way."""
        return self if self.task is None else self._advanced(_ALL_STEPS)

    def _begun(self, newest_s: float) -> PeriodTracker:
        kept = self.samples
        full = len(kept) >= MOST_SAMPLES or kept.duration_s > 0.9 * self.window_s
        wait_s = kept.duration_s * (_RENEWED if full else _GROWTH - 1)
        return replace(self, task=IncrementalTask(finding(kept, sensor=self.sensor)), next_s=newest_s + wait_s)

    def _advanced(self, steps: int) -> PeriodTracker:
        answer = self.task.after(steps) if self.task is not None else None
        if answer is None:
            return replace(self, steps=steps)
        return replace(self, answer=answer, task=None, steps=0)
