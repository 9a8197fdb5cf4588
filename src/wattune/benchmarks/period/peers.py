"""Simple detectors that others use, for comparison: each answers always, with a period or that it found none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.fft import irfft, rfft, rfftfreq
from scipy.signal import find_peaks

from wattune.benchmarks.period.gpoeo import gpoeo_period_s
from wattune.signals.samples import Floats, PowerSamples

_WINDOW_S = 25.0
_STEP_S = 0.02
# A peak of the autocorrelation below this is none.
_LEAST = 0.1


def autocorrelation_period_s(samples: PowerSamples) -> float | None:
    """The lag of the first high peak of the autocorrelation of 25 s of power on a 20 ms grid."""
    signal = _grid(samples)
    if len(signal) < 16 or not signal.std():
        return None
    size = 2 * len(signal)
    spectrum = rfft(signal, size)
    correlation = irfft(spectrum * np.conj(spectrum), size)[: len(signal) // 2]
    correlation = correlation / correlation[0]
    tops, _ = find_peaks(correlation)
    if not len(tops) or correlation[tops].max() < _LEAST:
        return None
    first = tops[correlation[tops] > 0.8 * correlation[tops].max()][0]
    return float(first * _STEP_S)


def spectrum_period_s(samples: PowerSamples) -> float | None:
    """The period of the highest peak of the spectrum of 25 s of power on a 20 ms grid."""
    signal = _grid(samples)
    if len(signal) < 16:
        return None
    amplitude, frequency_hz = np.abs(rfft(signal)), rfftfreq(len(signal), _STEP_S)
    tops, _ = find_peaks(amplitude)
    return float(1 / frequency_hz[tops[np.argmax(amplitude[tops])]]) if len(tops) else None


def _grid(samples: PowerSamples) -> Floats:
    """The middle 25 s of power, mean taken off."""
    known = samples.in_order()
    if len(known) < 2:
        return np.zeros(0)
    first_s, last_s = float(known.time_s[0]), float(known.time_s[-1])
    start_s = max((first_s + last_s - _WINDOW_S) / 2, first_s)
    time_s = np.arange(start_s, min(start_s + _WINDOW_S, last_s), _STEP_S)
    value = np.interp(time_s, known.time_s, known.power_w)
    return np.asarray(value - value.mean())


PEERS: Mapping[str, Callable[[PowerSamples], float | None]] = {
    "gpoeo": gpoeo_period_s,
    "plain autocorrelation": autocorrelation_period_s,
    "top of the spectrum": spectrum_period_s,
}
