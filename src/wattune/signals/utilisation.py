"""Evidence of utilisation on a period found in power: that it is real, or the alias of something faster.

Utilisation refreshes at another rate than power, so the alias of a fast load lies elsewhere in it.
Notation: τ and σ time between two refreshes of power and of utilisation, L a harmonic of the period in power. Loads of
all frequencies F = k/τ ± L, k = 0, 1, …, look the same in power. The utilisation that each k would cause is built from
power itself: its band around L, shifted by k/τ, which also follows a load that changes its phase. Least squares give
the share of the variance of utilisation that it explains. Only k = 0 is a period that power can follow.

Where k/τ is a multiple of 1/σ the aliases agree in both sensors (30 Hz for 100 ms and 1/6 s). Then only the amplitude
helps: both average such a load away but for a percent or two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.fft import fft, fftfreq, ifft
from numpy.typing import NDArray

from wattune.signals.comb import Comb
from wattune.signals.grid import Grid, fast_length
from wattune.signals.samples import Floats, PowerSamples, SensorUpdates, find_updates, quantiles

Waves = NDArray[np.complex128]

LEAST_REFRESHES = 24
"""Fewer refreshes of utilisation are no evidence."""
# Loads up to so many times the refresh rate are tried; every sensor averages faster ones away.
_MOST_TURNS = 4
# Half-width of the band of a harmonic, as a share of the period's frequency: a step that varies by 4 % in length
# broadens its harmonics by less.
_AROUND = 0.1
# Refreshes of utilisation per number that is fitted.
_PER_NUMBER = 8
# Excursions beyond these quantiles are rare.
_RARE = 0.1


@dataclass(frozen=True, slots=True)
class UtilisationEvidence:
    """Evidence of one kind of utilisation."""

    real: float
    """The share of its variance that a real period explains."""
    alias: float
    """The largest share that a faster load explains."""
    amplitude: float
    """Amplitude of the part that a real period explains, where 1 is full utilisation."""
    spread: float
    """Its standard deviation, without rare excursions."""
    refresh_s: float
    noise: float = 0.0
    """Standard deviation of a share where nothing is explained."""


def utilisation_updates(samples: PowerSamples) -> tuple[SensorUpdates, ...]:
    """Find the updates of each utilisation that is known and moves."""
    found: list[SensorUpdates] = []
    for values in (samples.sm_util, samples.mem_util):
        if values is None:
            continue
        known = np.isfinite(values)
        if known.sum() >= LEAST_REFRESHES and float(np.ptp(values[known])) > 0:
            updates = find_updates(samples.time_s[known], values[known])
            if len(updates.time_s) >= LEAST_REFRESHES:
                found.append(updates)
    return tuple(found)


def utilisation_evidence(
    updates: tuple[SensorUpdates, ...], grid: Grid, lines: Comb
) -> tuple[UtilisationEvidence, ...]:
    """Return the evidence of each utilisation on the period with these harmonics."""
    found: list[UtilisationEvidence] = []
    for own in updates:
        # Utilisation is the mean from one refresh to the next, so it has little of the higher harmonics.
        numbers = lines.strong(visible=np.sinc(lines.frequency_hz * own.refresh_s) ** 2)
        base_hz = 1 / lines.period_s
        waves = _around(grid, [number * base_hz for number in numbers], width_hz=_AROUND * base_hz)
        evidence = _evidence(own, grid, waves, numbers)
        if evidence is not None:
            found.append(evidence)
    return tuple(found)


def _around(grid: Grid, lines_hz: list[float], *, width_hz: float) -> list[Waves]:
    """Return the band of the signal around each harmonic, as an analytic signal."""
    points = len(grid.value)
    # Padding for the tail of the narrow band filter.
    size = fast_length(points + min(round(1 / (width_hz * grid.step_s)), points))
    frequency_hz, spectrum = fftfreq(size, grid.step_s), fft(grid.value * grid.mask, size)
    bands = (np.maximum(1 - np.abs(frequency_hz - line_hz) / width_hz, 0.0) for line_hz in lines_hz)
    return [np.asarray(ifft(2 * near * spectrum)[:points]) for near in bands]


def _evidence(
    updates: SensorUpdates, grid: Grid, waves: list[Waves], lines: tuple[int, ...]
) -> UtilisationEvidence | None:
    # A value of utilisation covers the time since the last one: take its middle.
    time_s = updates.time_s - grid.start_s - updates.refresh_s / 2
    place = np.round(time_s / grid.step_s).astype(np.int64)
    # At both ends it averages over what is not the program.
    margin = round(updates.refresh_s / grid.step_s)
    inside = (place >= margin) & (place < len(grid.mask) - margin)
    inside[inside] = grid.mask[place[inside]] > 0
    most = int(inside.sum()) // (2 * _PER_NUMBER)
    value = updates.value[inside]
    if most < 1 or float(np.ptp(value)) <= 0:
        return None
    time_s, place = time_s[inside], place[inside]
    parts = [(line, wave[place]) for line, wave in zip(lines[:most], waves[:most], strict=True)]
    real = _explained(value, [wave for _, wave in parts])
    alias = max(_explained(value, turned) for turned in _turned(parts, time_s, grid.refresh_s))
    amplitude = float(np.sqrt(2 * max(real, 0.0) * value.var()))
    # A late loader now and then is no movement that a fast load would cause.
    low, high = quantiles(value, _RARE, 1 - _RARE)
    usual = np.clip(value, low, high)
    noise = float(np.sqrt(4 * len(parts))) / len(value)
    return UtilisationEvidence(real, alias, amplitude, float(usual.std()), updates.refresh_s, noise)


def _turned(parts: list[tuple[int, Waves]], time_s: Floats, refresh_s: float) -> list[list[Waves]]:
    """Return the waves that each of the faster loads would cause in utilisation."""
    turned: list[list[Waves]] = []
    for turns in range(1, _MOST_TURNS + 1):
        turn = [np.exp(2j * np.pi * line * turns / refresh_s * time_s) for line, _ in parts]
        turned.append([wave * by for (_, wave), by in zip(parts, turn, strict=True)])
        turned.append([np.conj(wave) * by for (_, wave), by in zip(parts, turn, strict=True)])
    return turned


def _explained(value: Floats, waves: list[Waves]) -> float:
    """Return the share of the variance that waves of any size and phase explain, adjusted for degrees of freedom."""
    table = np.array([part for wave in waves for part in (wave.real, wave.imag)])
    table -= table.mean(axis=1, keepdims=True)
    off = value - value.mean()
    total, spare = float(off @ off), len(value) - len(table) - 1
    if spare <= 0 or total <= 0:
        return 0.0
    # The normal equations of a few columns are solved many times as fast as the columns themselves.
    products = table @ off
    left = total - float(products @ np.linalg.pinv(table @ table.T, hermitian=True) @ products)
    return 1 - left / spare / (total / (len(value) - 1))
