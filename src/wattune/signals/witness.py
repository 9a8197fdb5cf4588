"""What utilisation says of a period that was seen in power: that it is real, or the image of something faster.

Utilisation is refreshed at another rate than power, so the image that a fast load throws lies elsewhere in it.
Notation: τ and σ time between two refreshes of power and of utilisation, L a line of the period in power. A load of any
frequency F = k/τ ± L, k = 0, 1, …, looks the same to power. What utilisation would be for each k is made from power
itself: the part of power around L, turned by k/τ. That follows a load that loses step, too. How much of the variance
of utilisation it explains is then a matter of least squares. Only k = 0 is a period that power could follow.

Where k/τ is a multiple of 1/σ both sensors are blind in the same way (30 Hz for 100 ms and 1/6 s). What is left then is
strength: both average such a load away but for a percent or two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, fftfreq, ifft, next_fast_len

from wattune.signals.comb import Comb
from wattune.signals.grid import Grid
from wattune.signals.held import Fresh, fresh
from wattune.signals.samples import Floats, PowerSamples, Work

Waves = NDArray[np.complex128]

LEAST_REFRESHES = 24
"""Of utilisation: fewer say nothing."""
# Loads up to so many times the refresh rate are thought of; faster ones are averaged away by every sensor.
_MOST_TURNS = 4
# How far around a line power still belongs to it, as a share of the period's frequency: a step that varies by 4 % in
# length broadens its lines by less.
_AROUND = 0.1
# Refreshes of utilisation per number that is fitted.
_PER_NUMBER = 8
# Refreshes keep step with an even clock where they lie nearer to it than this share of their period.
_EVEN = 0.25


@dataclass(frozen=True, slots=True)
class Witness:
    """What one kind of utilisation says."""

    real: float
    """The share of its variance that it would have from a real period."""
    image: float
    """The largest such share from something faster."""
    amplitude: float
    """Of what it has from a real period, where 1 is all of the time."""
    spread: float
    """Its standard deviation."""
    refresh_s: float


def utilisations(samples: PowerSamples) -> Work[tuple[Fresh, ...]]:
    """The refreshes of each utilisation that is known and moves."""
    found: list[Fresh] = []
    for values in (samples.sm_util, samples.mem_util):
        if values is None:
            continue
        yield
        known = np.isfinite(values)
        if known.sum() >= LEAST_REFRESHES and float(np.ptp(values[known])) > 0:
            seen = fresh(samples.time_s[known], values[known])
            if len(seen.time_s) >= LEAST_REFRESHES:
                found.append(seen)
    return tuple(found)


def witnesses(seen: tuple[Fresh, ...], grid: Grid, lines: Comb) -> Work[tuple[Witness, ...]]:
    """What each utilisation says of the period whose lines these are."""
    found: list[Witness] = []
    for own in seen:
        yield
        # Utilisation is the mean from one refresh to the next, so it has little of the higher lines.
        numbers = lines.strong(seen_by=np.sinc(lines.frequency_hz * own.refresh_s) ** 2)
        base_hz = 1 / lines.period_s
        waves = _around(grid, [number * base_hz for number in numbers], width_hz=_AROUND * base_hz)
        one = _witness(own, grid, waves, numbers)
        if one is not None:
            found.append(one)
    return tuple(found)


def _around(grid: Grid, lines_hz: list[float], *, width_hz: float) -> list[Waves]:
    """The part of the signal around each line, as a wave that turns in one direction only."""
    points = len(grid.value)
    # Past the end there is room for what the narrow band smears.
    size = next_fast_len(points + min(round(1 / (width_hz * grid.step_s)), points))
    frequency_hz, spectrum = fftfreq(size, grid.step_s), fft(grid.value * grid.seen, size)
    bands = (np.maximum(1 - np.abs(frequency_hz - line_hz) / width_hz, 0.0) for line_hz in lines_hz)
    return [np.asarray(ifft(2 * near * spectrum)[:points]) for near in bands]


def _witness(seen: Fresh, grid: Grid, waves: list[Waves], lines: tuple[int, ...]) -> Witness | None:
    # A value of utilisation is of the time since the last one: its middle counts.
    time_s = _even_s(seen) - grid.start_s - seen.refresh_s / 2
    place = np.round(time_s / grid.step_s).astype(np.int64)
    # At both ends it remembers, or begins to see, what is not the program.
    margin = round(seen.refresh_s / grid.step_s)
    inside = (place >= margin) & (place < len(grid.seen) - margin)
    inside[inside] = grid.seen[place[inside]] > 0
    most = int(inside.sum()) // (2 * _PER_NUMBER)
    value = seen.value[inside]
    if most < 1 or float(np.ptp(value)) <= 0:
        return None
    time_s, place = time_s[inside], place[inside]
    parts = [(line, wave[place]) for line, wave in zip(lines[:most], waves[:most], strict=True)]
    real = _explained(value, [wave for _, wave in parts])
    image = max(_explained(value, turned) for turned in _turned(parts, time_s, grid.refresh_s))
    amplitude = float(np.sqrt(2 * max(real, 0.0) * value.var()))
    return Witness(real, image, amplitude, float(value.std()), seen.refresh_s)


def _turned(parts: list[tuple[int, Waves]], time_s: Floats, refresh_s: float) -> list[list[Waves]]:
    """What utilisation would be made of for each of the faster loads."""
    turned: list[list[Waves]] = []
    for turns in range(1, _MOST_TURNS + 1):
        turn = [np.exp(2j * np.pi * line * turns / refresh_s * time_s) for line, _ in parts]
        turned.append([wave * by for (_, wave), by in zip(parts, turn, strict=True)])
        turned.append([np.conj(wave) * by for (_, wave), by in zip(parts, turn, strict=True)])
    return turned


def _explained(value: Floats, waves: list[Waves]) -> float:
    """The share of the variance that a sum of waves of any size and phase explains, allowing for what it fits."""
    columns = [part for wave in waves for part in (wave.real, wave.imag)]
    table = np.column_stack([np.ones(len(value)), *columns])
    fitted, *_ = np.linalg.lstsq(table, value, rcond=None)
    left = value - table @ fitted
    spare = len(value) - table.shape[1]
    total = float(((value - value.mean()) ** 2).sum())
    return 1 - float(left @ left) / spare / (total / (len(value) - 1)) if spare > 0 and total > 0 else 0.0


def _even_s(seen: Fresh) -> Floats:
    """When the refreshes came, by an even clock where they keep step with one: polls see each a little late."""
    if not seen.held:
        return seen.time_s
    number = np.round((seen.time_s - seen.time_s[0]) / seen.refresh_s)
    start_s = float(np.median(seen.time_s - number * seen.refresh_s))
    number = np.round((seen.time_s - start_s) / seen.refresh_s)
    even_s = start_s + number * seen.refresh_s
    return np.asarray(even_s if np.std(seen.time_s - even_s) < _EVEN * seen.refresh_s else seen.time_s)
