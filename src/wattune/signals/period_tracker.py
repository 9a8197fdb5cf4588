"""The period of a stream of samples, kept up to date as they come.

A tracker is a value: `add` gives the tracker that has seen some more. It keeps a bounded window and looks through all
of it only when that may change the answer: when the window has grown by a quarter, and once it is full when an eighth
of it is new. A look is done bit by bit, one with each update (more where many samples come at once), so that no update
takes long; until it is done the answer is that of the last look. `settled` does what is left of it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wattune.core.gpu_spec import Sensors
from wattune.signals.period import LEAST_SAMPLES, PeriodAnswer, Verdict, finding
from wattune.signals.samples import IncrementalTask, PowerSamples

MOST_SAMPLES = 4096
"""Memory and work are bounded by so many; more of a stream than this says little more of its step."""
_WINDOW_S = 120.0
# Looked through again when the window has grown by this factor, until it is full.
_GROWTH = 1.25
# And once it is full, when this share of it is new.
_RENEWED = 0.125
# Samples that come at once, for each of which one more bit of a look is done.
_PER_BIT = 8
# No look has as many bits.
_ALL_BITS = 1 << 30
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
    """Of the last look that is done."""
    next_s: float = 0.0
    """When the samples will be looked through again."""
    look: IncrementalTask[PeriodAnswer] | None = None
    """A look that is under way."""
    bits: int = 0
    """How much of it is done."""

    def add(self, samples: PowerSamples) -> PeriodTracker:
        """The tracker that has seen these samples too."""
        kept = self.samples.joined(samples) if len(self.samples) else samples
        if not len(kept):
            return self
        newest_s = float(kept.time_s[-1])
        kept = kept.since(newest_s - self.window_s).newest(MOST_SAMPLES)
        tracker = replace(self, samples=kept)
        if self.look is None:
            if len(kept) < LEAST_SAMPLES or newest_s < self.next_s:
                return tracker
            tracker = tracker._begun(newest_s)
        return tracker._advanced(self.bits + 1 + len(samples) // _PER_BIT)

    def settled(self) -> PeriodTracker:
        """The tracker with the look that is under way done."""
        return self if self.look is None else self._advanced(_ALL_BITS)

    def _begun(self, newest_s: float) -> PeriodTracker:
        kept = self.samples
        full = len(kept) >= MOST_SAMPLES or kept.duration_s > 0.9 * self.window_s
        wait_s = kept.duration_s * (_RENEWED if full else _GROWTH - 1)
        return replace(self, look=IncrementalTask(finding(kept, sensor=self.sensor)), next_s=newest_s + wait_s)

    def _advanced(self, bits: int) -> PeriodTracker:
        answer = self.look.after(bits) if self.look is not None else None
        if answer is None:
            return replace(self, bits=bits)
        return replace(self, answer=answer, look=None, bits=0)
