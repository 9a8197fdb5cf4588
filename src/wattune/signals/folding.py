"""All cycles of a period laid over each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.signals.samples import Floats, PowerSamples

_MOST_BINS = 48
# Shares of the cycles between which the spread is drawn.
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True, eq=False)
class FoldedCycle:
    """Power over one cycle: its median at each phase, and between what most cycles lie; power at its lowest first."""

    start_s: float
    """A time at which a cycle begins."""
    time_s: Floats
    power_w: Floats
    low_w: Floats
    high_w: Floats


def folded_cycle(samples: PowerSamples, period_s: float) -> FoldedCycle | None:
    """The cycles of the second half of the samples folded onto one; None where there are too few samples."""
    samples = samples.in_order()
    late = samples.since(float(samples.time_s[0]) + samples.duration_s / 2) if len(samples) else samples
    bins = min(_MOST_BINS, max(int(period_s / max(late.duration_s / max(len(late), 1), 1e-9)), 4))
    if len(late) < 4 * bins:
        return None
    phase = late.time_s / period_s % 1.0
    place = np.minimum((phase * bins).astype(np.int64), bins - 1)
    parts = [late.power_w[place == number] for number in range(bins)]
    if not all(len(part) for part in parts):
        return None
    middle = np.array([np.median(part) for part in parts])
    first = int(np.argmin(middle))
    order = np.roll(np.arange(bins), -first)
    start_s = (np.floor(late.time_s[0] / period_s) + (first / bins)) * period_s
    return FoldedCycle(
        float(start_s),
        (np.arange(bins) + 0.5) / bins * period_s,
        middle[order],
        np.array([np.quantile(parts[number], _LOW) for number in order]),
        np.array([np.quantile(parts[number], _HIGH) for number in order]),
    )
