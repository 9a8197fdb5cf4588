"""Samples of power over time, as they come: unevenly spaced, with gaps, repeats and held values.

A sensor holds a value until its next refresh; τ is the time between two refreshes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattune.core.reading import Reading

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PowerSamples:
    """Power, and utilisation where it is known, at these times; NaN where a sample lacks a value."""

    time_s: Floats
    power_w: Floats
    sm_util: Floats | None = None
    """Share of time in which kernels ran, 0 to 1."""
    mem_util: Floats | None = None
    """Share of time in which the memory was busy, 0 to 1."""

    def __post_init__(self) -> None:
        for values in (self.power_w, self.sm_util, self.mem_util):
            if values is not None and values.shape != self.time_s.shape:
                raise ValueError("each time of the samples has one value of every kind")

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> PowerSamples:
        """Take power and utilisation from readings."""
        known = tuple(readings)
        return cls(
            np.array([reading.time_s for reading in known], dtype=np.float64),
            _values([reading.power_w for reading in known]),
            _values([reading.sm_util for reading in known]),
            _values([reading.mem_util for reading in known]),
        )

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def duration_s(self) -> float:
        return float(self.time_s[-1] - self.time_s[0]) if len(self) else 0.0

    def since(self, time_s: float) -> PowerSamples:
        return self.where(self.time_s >= time_s)

    def joined(self, later: PowerSamples) -> PowerSamples:
        return PowerSamples(
            np.concatenate((self.time_s, later.time_s)),
            np.concatenate((self.power_w, later.power_w)),
            _joined(self, later, "sm_util"),
            _joined(self, later, "mem_util"),
        )

    def in_order(self) -> PowerSamples:
        """Drop samples without power and make times increase.

        Where the clock was set back, everything after that is shifted forward. Of samples with the same time the last
        is kept.
        """
        known = self.where(np.isfinite(self.time_s) & np.isfinite(self.power_w))
        if len(known) < 2:
            return known
        steps_s = np.diff(known.time_s)
        if np.any(steps_s < 0):
            usual_s = median(steps_s[steps_s > 0]) if np.any(steps_s > 0) else 0.0
            moved_s = np.cumsum(np.where(steps_s < 0, usual_s, steps_s))
            known = replace(known, time_s=known.time_s[0] + np.concatenate(([0.0], moved_s)))
        return known.where(np.append(np.diff(known.time_s) > 0, True))

    def where(self, which: Flags) -> PowerSamples:
        return PowerSamples(
            self.time_s[which],
            self.power_w[which],
            None if self.sm_util is None else self.sm_util[which],
            None if self.mem_util is None else self.mem_util[which],
        )


def _values(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _joined(first: PowerSamples, later: PowerSamples, name: str) -> Floats | None:
    parts = [getattr(part, name) for part in (first, later)]
    if all(part is None for part in parts):
        return None
    filled = (
        np.full(len(part), np.nan) if own is None else own for part, own in zip((first, later), parts, strict=True)
    )
    return np.concatenate(tuple(filled))


# A sensor whose value repeats in less than this share of polls refreshes with every poll.
_REPEATS = 0.12
# Refreshes that their period is fitted to, round by round, and the periods tried in each.
_ROUNDS = (24, 192, 1536)
_TRIED = 65
# The mean resultant length of phases from which refreshes are periodic: that of a spread of a third of a period.
_PERIODIC = 0.6
# The quantile of short hold times, and the polls in one from which it is known.
_SHORT, _FINE = 0.1, 2.0
# Refreshes count as even where they deviate from an even clock by less than this share of their period.
_EVEN = 0.25
# Samples this many refreshes apart have a gap between them.
_GAP = 3.5


@dataclass(frozen=True, slots=True, eq=False)
class SensorUpdates:
    """New values of a sensor, the time of each, and the time between two refreshes."""

    time_s: Floats
    value: Floats
    refresh_s: float
    """The true one where polls are more frequent; else the time between polls."""
    held: bool
    """True where polls were more frequent than refreshes."""

    def where(self, which: Flags) -> SensorUpdates:
        return replace(self, time_s=self.time_s[which], value=self.value[which])

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """Intervals without samples."""
        late = np.flatnonzero(np.diff(self.time_s) > _GAP * self.refresh_s)
        return tuple((float(self.time_s[place]), float(self.time_s[place + 1])) for place in late)


def find_updates(time_s: Floats, value: Floats, *, refresh_s: float | None = None) -> SensorUpdates:
    """Find the refreshes among polled values; `refresh_s` is the time between two where it is known."""
    poll_s = usual_step_s(time_s)
    changed = np.append(True, np.diff(value) != 0)
    estimated_s = _refresh_s(time_s, changed, poll_s)
    held = estimated_s is not None
    period_s = refresh_s or estimated_s or poll_s
    if not held and not (refresh_s and refresh_s > 1.5 * poll_s):
        return SensorUpdates(time_s, value, max(period_s, poll_s), False)
    kept = _kept(time_s, changed, period_s)
    # The refresh lies somewhere between the poll that saw it and the one before.
    seen_s = time_s[kept] - poll_s / 2
    return SensorUpdates(_even_s(seen_s, period_s), value[kept], max(period_s, poll_s), True)


def _even_s(seen_s: Floats, period_s: float) -> Floats:
    """Return the times of refreshes, on an even clock where they fit one, since polls see each a little late."""
    number = np.round((seen_s - seen_s[0]) / period_s)
    start_s = median(seen_s - number * period_s)
    number = np.round((seen_s - start_s) / period_s)
    even_s = start_s + number * period_s
    fits = np.all(np.diff(number) > 0) and np.std(seen_s - even_s) < _EVEN * period_s
    return np.asarray(even_s if fits else seen_s)


def median(value: Floats | Ints) -> float:
    """Return the median."""
    return quantiles(value, 0.5)[0]


def quantiles(value: Floats | Ints, *shares: float) -> tuple[float, ...]:
    """Return quantiles as `np.quantile` does, which would import NumPy's masked arrays: that takes half a search."""
    ordered = np.sort(value)
    place = np.asarray(shares) * (len(ordered) - 1)
    found = np.asarray(np.interp(place, np.arange(len(ordered)), ordered), dtype=np.float64)
    return tuple(map(float, found))


def usual_step_s(time_s: Floats) -> float:
    """Return the median time between two samples."""
    return median(np.diff(time_s))


def _refresh_s(time_s: Floats, changed: Flags, poll_s: float) -> float | None:
    """Estimate the refresh time by how long values are held; None where nearly every poll brings a new one."""
    edges_s = time_s[changed]
    if len(edges_s) < 8 or len(edges_s) > (1 - _REPEATS) * len(time_s):
        return None
    holds_s = np.diff(edges_s)
    # A value that comes twice in a row is held for two refreshes, and an idle one for many: use the median.
    usual_s = _mean_near_s(holds_s, median(holds_s))
    period_s = _fitted_period_s(edges_s, usual_s)
    if period_s is None:
        # Where most values come several times, as those of utilisation do, the short holds are of one refresh.
        short_s = _mean_near_s(holds_s, *quantiles(holds_s, _SHORT))
        # Holds of a poll or two are as periodic as the polls are.
        period_s = (_fitted_period_s(edges_s, short_s) if short_s > _FINE * poll_s else None) or usual_s
    return period_s if period_s > 1.2 * poll_s else None


def _mean_near_s(holds_s: Floats, about_s: float) -> float:
    near = holds_s[(holds_s > 0.5 * about_s) & (holds_s < 1.6 * about_s)]
    return float(np.mean(near)) if len(near) else about_s


def _fitted_period_s(edges_s: Floats, about_s: float) -> float | None:
    """Fit a period to the refreshes, near a first estimate; None where they are not periodic.

    Each round uses more refreshes and is more precise.
    """
    period_s, slack, found = about_s, 0.2, False
    for count in _ROUNDS:
        some_s = edges_s[:count] - edges_s[0]
        tried_hz = np.linspace(1 - slack, 1 + slack, _TRIED) / period_s
        coherence = _coherence(some_s, tried_hz)
        best = int(np.argmax(coherence))
        if coherence[best] < _PERIODIC:
            break
        period_s, slack, found = float(1 / tried_hz[best]), slack * 4 / _TRIED, True
        if count >= len(edges_s):
            break
    return period_s if found else None


def _coherence(time_s: Floats, tried_hz: Floats) -> Floats:
    """Return how well times fit each of some evenly spaced rates, from 0 to 1."""
    phase = np.exp(2j * np.pi * tried_hz[0] * time_s)
    # From each rate to the next every phase turns by the same angle; multiplying is faster than computing it again.
    turn = np.exp(2j * np.pi * (tried_hz[1] - tried_hz[0]) * time_s)
    found = np.empty(len(tried_hz))
    for place in range(len(tried_hz)):
        found[place] = abs(phase.mean())
        phase = phase * turn
    return found


def _kept(time_s: Floats, changed: Flags, period_s: float) -> Flags:
    """Mark the polls that saw a refresh: where the value changed, and each refresh time later where it stayed equal."""
    run_start_s = time_s[np.flatnonzero(changed)][np.cumsum(changed) - 1]
    # A quarter of a refresh of slack, since a change is seen late by up to one poll.
    number = np.maximum(np.floor((time_s - run_start_s) / period_s - 0.25), 0.0)
    return np.asarray(changed | np.append(False, (np.diff(number) > 0) & ~changed[1:]))
