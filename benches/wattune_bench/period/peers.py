"""Detectors of others, for comparison: each returns a period, or None where it finds none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import ceil

import numpy as np
from scipy.fft import irfft, rfft, rfftfreq
from scipy.signal import find_peaks

from wattune.signals.samples import Flags, Floats, PowerSamples

_STEP_S = 0.1
_T_UP_S, _T_LOW_S = 15.0, 0.4
_FIRST_S, _LONGEST_S = 25.0, 82.5
_LEAST_PERIODS = 5.3
_STRICT = 0.10
_AMPLITUDE, _CANDIDATES = 0.6, 6


def gpoeo_period_s(samples: PowerSamples) -> float | None:
    """Return the period that GPOEO's detector calls stable; None where it gives up."""
    signal = _mixture(samples.in_order())
    window_s = _FIRST_S
    while True:
        part = signal[: round(window_s / _STEP_S)]
        found = _stable(part)
        if isinstance(found, float):
            return found
        if len(part) >= len(signal) or window_s >= _LONGEST_S:
            return None
        window_s = min(max(1.5 * window_s, _LEAST_PERIODS * (max(found) if found else 0.0)), _LONGEST_S)


def _mixture(samples: PowerSamples) -> Floats:
    """Add or subtract power and utilisation in percent, whichever varies more, from the first busy second on."""
    if len(samples) < 2:
        return np.zeros(0)
    time_s = np.arange(samples.time_s[0], samples.time_s[-1], _STEP_S)
    signal = 100 * np.interp(time_s, samples.time_s, samples.power_w) / float(samples.power_w.max())
    begun = np.flatnonzero(signal > 0.5 * np.quantile(signal, 0.8))
    for utilisation in (samples.sm_util, samples.mem_util):
        if utilisation is not None:
            other = 100 * np.interp(time_s, samples.time_s, np.nan_to_num(utilisation))
            signal = max(signal + other, signal - other, key=lambda mixed: float(np.std(mixed)))
    return np.asarray(signal[begun[0] if len(begun) else 0 :] / 3)


def _stable(signal: Floats) -> float | list[float]:
    """Return a period that suffixes of the window agree on, or the estimates that do not."""
    estimates: list[tuple[float, float]] = []
    rest = signal
    while len(rest) >= 32:
        found = _estimate(rest)
        if found is None:
            break
        estimates.append(found)
        longest_s = max(period_s for period_s, _ in estimates)
        drop = round(max(0.5 * found[0], len(signal) * _STEP_S / 10) / _STEP_S)
        rest = rest[drop:]
        if len(rest) * _STEP_S / longest_s < 2.8:
            break
    periods_s = [period_s for period_s, _ in estimates]
    if len(estimates) < 3 or len(signal) * _STEP_S < _LEAST_PERIODS * max(periods_s):
        return periods_s
    kept = sorted(periods_s)
    if len(kept) > 8:
        kept = kept[int(0.2 * len(kept)) : ceil(0.8 * len(kept))]
    elif len(kept) >= 4:
        middle = float(np.median(kept))
        kept = [period_s for period_s in kept if 0.60 * middle <= period_s <= 1.35 * middle]
    if not kept or (max(kept) - min(kept)) / float(np.mean(kept)) >= _STRICT:
        return periods_s
    best_s = min(estimates, key=lambda estimate: estimate[1])[0]
    return float(np.mean([period_s for period_s in periods_s if 0.65 * best_s <= period_s <= 1.35 * best_s]))


def _estimate(signal: Floats) -> tuple[float, float] | None:
    """Return the best candidate of one window, refined, and its error."""
    candidates_s = _candidates_s(signal)
    if not candidates_s:
        return None
    longest_s = max(candidates_s)
    errors = {period_s: _error(signal, period_s, longest_s) for period_s in candidates_s}
    if any(error is None for error in errors.values()):
        return None
    period_s = min(errors, key=lambda own: errors[own] or 0.0)
    return _refined(signal, period_s, longest_s)


def _candidates_s(signal: Floats) -> list[float]:
    amplitude = np.abs(rfft(signal))
    frequency_hz = rfftfreq(len(signal), _STEP_S)
    candidates_s = _peaks_s(amplitude, frequency_hz)
    if candidates_s and max(candidates_s) > len(signal) * _STEP_S / 2:
        size = 3 * len(signal)
        candidates_s = _peaks_s(np.abs(rfft(signal, size)), rfftfreq(size, _STEP_S))
    short_s = [period_s for period_s in candidates_s if period_s < _T_LOW_S]
    if short_s:
        candidates_s = [own for own in candidates_s if own >= _T_LOW_S] + [max(short_s), *_common_multiples_s(short_s)]
    return candidates_s


def _peaks_s(amplitude: Floats, frequency_hz: Floats) -> list[float]:
    tops, _ = find_peaks(amplitude)
    tops = tops[1 / frequency_hz[tops] <= _T_UP_S]
    if not len(tops):
        return []
    tops = tops[amplitude[tops] > _AMPLITUDE * amplitude[tops].max()]
    order = np.argsort(-amplitude[tops])[:_CANDIDATES]
    return [float(1 / frequency_hz[top]) for top in tops[order]]


def _common_multiples_s(factors_s: list[float]) -> list[float]:
    """Return lengths that are nearly whole multiples of all factors, from the least period on."""
    found_s: list[float] = []
    largest_s, tried_s = max(factors_s), _T_LOW_S
    while len(found_s) < len(factors_s) and tried_s < 3 * _T_LOW_S:
        if found_s and (tried_s > 1.3 * found_s[0] or tried_s - found_s[0] > 0.6 * largest_s):
            break
        counts = [round(tried_s / factor_s) for factor_s in factors_s]
        pairs = zip(factors_s, counts, strict=True)
        if all(count and abs(tried_s / factor_s - count) / count < 0.1 for factor_s, count in pairs):
            found_s.append(tried_s)
        tried_s += 0.2 * largest_s
    return found_s


def _error(signal: Floats, period_s: float, longest_s: float) -> float | None:
    """Return the mean difference of neighbouring blocks of one period in percent; None with fewer than two."""
    samples = int(period_s / _STEP_S)
    blocks = int(len(signal) * _STEP_S / period_s)
    if blocks < 2 or samples < 1:
        return None
    cut = signal[: blocks * samples].reshape(-1, samples) if blocks * samples <= len(signal) else None
    if cut is None or len(cut) < 2:
        return None
    errors = [_difference(one, other) for one, other in pairwise(cut)]
    if longest_s / period_s >= 1.7:
        size = ceil(longest_s / period_s)
        errors = [max(errors[first : first + size]) for first in range(0, len(errors), size)]
    return float(np.mean(errors))


def _difference(one: Floats, other: Floats) -> float:
    """Return the difference of two blocks in percent, over the groups of the livelier one, by their size."""
    first, second = _totals(one), _totals(other)
    size = len(one)
    livelier = first if _variance(first, 0, size) >= _variance(second, 0, size) else second
    means = first[0][-1] / size, second[0][-1] / size
    total = 0.0
    for start, stop in _groups(one if livelier is first else other, livelier):
        count = stop - start
        parts = ((totals[0][stop] - totals[0][start]) / count for totals in (first, second))
        ahead, behind = (part - mean for part, mean in zip(parts, means, strict=True))
        total += count / size * abs(ahead - behind)
    return 100 * total / max((abs(means[0]) + abs(means[1])) / 2, 1e-9)


_Totals = tuple[list[float], list[float]]


def _totals(block: Floats) -> _Totals:
    """Return running sums of values and squares: plain lists, since blocks are short and read often."""
    return [0.0, *np.cumsum(block).tolist()], [0.0, *np.cumsum(block**2).tolist()]


def _variance(totals: _Totals, start: int, stop: int) -> float:
    count = stop - start
    mean = (totals[0][stop] - totals[0][start]) / count
    return max((totals[1][stop] - totals[1][start]) / count - mean**2, 0.0)


def _groups(block: Floats, totals: _Totals) -> list[tuple[int, int]]:
    """Return runs of samples near the densest level, and the gaps between them, merged where they hardly differ."""
    size = len(block)
    inside = _near_densest(block)
    edges = [0, *(np.flatnonzero(inside[1:] != inside[:-1]) + 1).tolist(), size]
    level, spread = max(abs(totals[0][-1] / size), 1e-9), 0.999**2 * _variance(totals, 0, size)
    merged = [(edges[0], edges[1])]
    for start, stop in pairwise(edges[1:]):
        last, _ = merged[-1]
        slack = 2 if stop - start < 0.04 * size else 1
        own = (totals[0][stop] - totals[0][start]) / (stop - start)
        before = (totals[0][start] - totals[0][last]) / (start - last)
        near = abs(own - before) < 0.04 * slack * level
        if near and _variance(totals, last, stop) < spread and stop - last <= 0.85 * size:
            merged[-1] = (last, stop)
        else:
            merged.append((start, stop))
    return merged


def _near_densest(block: Floats) -> Flags:
    """Mark the samples within the narrowest band around a quantile that holds a third of them."""
    ordered = np.sort(block)
    last = len(block) - 1
    centres = ordered[[round(share * last) for share in (0.2, 0.4, 0.6, 0.8)]]
    widths = np.sort(np.abs(ordered[None, :] - centres[:, None]), axis=1)[:, round(0.33 * last)]
    best = int(np.argmin(widths))
    return np.asarray(np.abs(block - centres[best]) <= max(widths[best], 0.03 * (ordered[-1] - ordered[0])))


def _refined(signal: Floats, period_s: float, longest_s: float) -> tuple[float, float]:
    """Return the best of a grid around a period, searched up to three times, and its error."""
    best_s, best = period_s, _error(signal, period_s, longest_s) or 0.0
    for _ in range(3):
        half_hz = 0.7 * 0.5 / (_STEP_S * len(signal))
        reach_s = max(0.15 * best_s, best_s - 1 / (1 / best_s + half_hz))
        step_s = min(max(2 * reach_s / 10, _STEP_S), 1.0)
        grid_s = np.arange(best_s - reach_s, best_s + reach_s + 1e-9, step_s)
        errors = {float(own_s): _error(signal, float(own_s), longest_s) for own_s in grid_s if own_s > _STEP_S}
        known = {own_s: error for own_s, error in errors.items() if error is not None}
        if not known:
            break
        top_s = min(known, key=known.__getitem__)
        place = (top_s - (best_s - reach_s)) / (2 * reach_s)
        if known[top_s] >= best:
            break
        best_s, best = top_s, known[top_s]
        if 0.2 <= place <= 0.8:
            break
    if best_s < _T_LOW_S:
        best_s *= max(round(_T_LOW_S / best_s), 1)
    return best_s, best


_WINDOW_S = 25.0
_PEERS_STEP_S = 0.02
# A peak of the autocorrelation below this is none.
_LEAST = 0.1


def autocorrelation_period_s(samples: PowerSamples) -> float | None:
    """Return the lag of the first high peak of the autocorrelation of 25 s of power on a 20 ms grid."""
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
    return float(first * _PEERS_STEP_S)


def spectrum_period_s(samples: PowerSamples) -> float | None:
    """Return the period of the highest peak of the spectrum of 25 s of power on a 20 ms grid."""
    signal = _grid(samples)
    if len(signal) < 16:
        return None
    amplitude, frequency_hz = np.abs(rfft(signal)), rfftfreq(len(signal), _PEERS_STEP_S)
    tops, _ = find_peaks(amplitude)
    return float(1 / frequency_hz[tops[np.argmax(amplitude[tops])]]) if len(tops) else None


def _grid(samples: PowerSamples) -> Floats:
    """Return the middle 25 s of power, with the mean removed."""
    known = samples.in_order()
    if len(known) < 2:
        return np.zeros(0)
    first_s, last_s = float(known.time_s[0]), float(known.time_s[-1])
    start_s = max((first_s + last_s - _WINDOW_S) / 2, first_s)
    time_s = np.arange(start_s, min(start_s + _WINDOW_S, last_s), _PEERS_STEP_S)
    value = np.interp(time_s, known.time_s, known.power_w)
    return np.asarray(value - value.mean())


PEERS: Mapping[str, Callable[[PowerSamples], float | None]] = {
    "gpoeo": gpoeo_period_s,
    "plain autocorrelation": autocorrelation_period_s,
    "top of the spectrum": spectrum_period_s,
}
