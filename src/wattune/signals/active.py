"""The active part of a trace: from where the program begins to where it ends, without idle time before and after.

A GPU idles at several levels: some ten watts before a program opens it, and half the power of training once its clocks
are up. So power is searched again inside what was found, until nothing is left out. Utilisation shows idle time even
where the clocks are so low that training draws hardly more.
"""

from __future__ import annotations

import numpy as np

from wattune.signals.samples import Floats, PowerSamples, SensorUpdates, quantiles, usual_step_s

# The threshold of busy, as a share of the way from the quiet to the busy level.
_BUSY = 0.35
# The least distance of the quiet from the busy level, as a share of the latter, that distinguishes the two.
_LEAST_CONTRAST = 0.25
_COARSE_S = 1.0
# Fewer busy values than this are spikes, and the whole signal is used.
_LEAST_BUSY = 16
# Levels of idle power: without clocks, with clocks, and one more after the program.
_ROUNDS = 3


def active_part(samples: PowerSamples) -> PowerSamples:
    """Return the samples from the program's beginning to its end; all of them where no idle time can be told."""
    if samples.sm_util is not None and np.isfinite(samples.sm_util).all():
        samples = _between(samples, _busy_interval_s(samples.time_s, samples.sm_util))
    for _ in range(_ROUNDS):
        inside = _between(samples, _busy_interval_s(samples.time_s, samples.power_w))
        if len(inside) == len(samples):
            break
        samples = inside
    return samples


def busy_interval_s(signal: SensorUpdates) -> tuple[float, float]:
    """Return where the program begins and ends, without quiet at both ends, such as loading before the first step."""
    return _busy_interval_s(signal.time_s, signal.value)


def _between(samples: PowerSamples, interval_s: tuple[float, float]) -> PowerSamples:
    first_s, last_s = interval_s
    return samples.where((samples.time_s >= first_s) & (samples.time_s <= last_s))


def _busy_interval_s(time_s: Floats, value: Floats) -> tuple[float, float]:
    whole_s = float(time_s[0]), float(time_s[-1])
    # A running mean over about a second.
    coarse = running_mean(value, max(round(_COARSE_S / max(usual_step_s(time_s), 1e-9)), 1))
    quiet, busy = quantiles(coarse, 0.02, 0.8)
    if busy - quiet < _LEAST_CONTRAST * abs(busy):
        return whole_s
    level = quiet + _BUSY * (busy - quiet)
    above = np.flatnonzero(value > level)
    # A lone spike before the start is not the start: the second around it has to be busy too.
    inside = above[coarse[above] > level]
    above = inside if len(inside) else above
    if len(above) < _LEAST_BUSY:
        return whole_s
    first, last = int(above[0]), int(above[-1])
    return float(time_s[first]), float(time_s[last])


def running_mean(value: Floats, width: int) -> Floats:
    """Return the means over `width` neighbours, fewer at both ends."""
    total = np.concatenate(([0.0], np.cumsum(value)))
    place = np.arange(len(value))
    low, high = np.maximum(place - width // 2, 0), np.minimum(place + (width + 1) // 2, len(value))
    return np.asarray((total[high] - total[low]) / (high - low))
