"""What a sensor really told: a value is held until the next refresh, however often it is polled.

Notation: τ time between two refreshes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.signals.samples import Floats

# A sensor whose polled value stays the same in less than this share of polls brings something new with every poll.
_REPEATS = 0.12
# Refreshes that are looked at to find their period, and how many values are tried each time.
_IN_STEP = (24, 192, 1536)
_TRIED = 65
# Mean length of the vector sum of phases, above which refreshes are in step: that of a spread of a third of a period.
_TOGETHER = 0.6
# The share of stays that are short ones.
_SHORT = 0.1
# Samples this many refreshes apart have a gap between them.
_GAP = 3.5


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """New values of a sensor, when each was first seen, and the time between two refreshes."""

    time_s: Floats
    value: Floats
    refresh_s: float
    """The true one where polls are more frequent; else the time between polls, below which nothing can be told."""
    held: bool
    """Whether polls were more frequent than refreshes."""

    @property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """Stretches without samples."""
        late = np.flatnonzero(np.diff(self.time_s) > _GAP * self.refresh_s)
        return tuple((float(self.time_s[place]), float(self.time_s[place + 1])) for place in late)


def fresh(time_s: Floats, value: Floats, *, refresh_s: float | None = None) -> Fresh:
    """The refreshes among polled values; `refresh_s` is the time between two where it is known."""
    poll_s = usual_step_s(time_s)
    changed = np.append(True, np.diff(value) != 0)
    seen_s = _refresh_s(time_s, changed, poll_s)
    held = seen_s is not None
    period_s = refresh_s or seen_s or poll_s
    if not held and not (refresh_s and refresh_s > 1.5 * poll_s):
        return Fresh(time_s, value, max(period_s, poll_s), False)
    kept = _kept(time_s, changed, period_s)
    # The refresh lies somewhere between the poll that saw it and the one before.
    return Fresh(time_s[kept] - poll_s / 2, value[kept], max(period_s, poll_s), True)


def usual_step_s(time_s: Floats) -> float:
    """The usual time between two samples."""
    return float(np.median(np.diff(time_s)))


def _refresh_s(time_s: Floats, changed: np.ndarray[tuple[int], np.dtype[np.bool_]], poll_s: float) -> float | None:
    """The time between two refreshes by how long values stay; None where nearly every poll brings a new one."""
    edges_s = time_s[changed]
    if len(edges_s) < 8 or len(edges_s) > (1 - _REPEATS) * len(time_s):
        return None
    stays_s = np.diff(edges_s)
    # A value that comes twice in a row stays for two refreshes, and idle stretches for many: the usual stay counts.
    usual_s = _mean_near_s(stays_s, float(np.median(stays_s)))
    period_s = _in_step_s(edges_s, usual_s)
    if period_s is None:
        # Where most values come several times, as those of utilisation do, the short stays are of one refresh.
        short_s = _mean_near_s(stays_s, float(np.quantile(stays_s, _SHORT)))
        period_s = _in_step_s(edges_s, short_s) or usual_s
    return period_s if period_s > 1.2 * poll_s else None


def _mean_near_s(stays_s: Floats, about_s: float) -> float:
    near = stays_s[(stays_s > 0.5 * about_s) & (stays_s < 1.6 * about_s)]
    return float(np.mean(near)) if len(near) else about_s


def _in_step_s(edges_s: Floats, guess_s: float) -> float | None:
    """The period that most refreshes are in step with, near a guess; None where they keep no step.

    Few refreshes give it roughly, more of them better and better.
    """
    period_s, slack, found = guess_s, 0.2, False
    for count in _IN_STEP:
        some_s = edges_s[:count] - edges_s[0]
        tried_hz = np.linspace(1 - slack, 1 + slack, _TRIED) / period_s
        together = _together(some_s, tried_hz)
        best = int(np.argmax(together))
        if together[best] < _TOGETHER:
            break
        period_s, slack, found = float(1 / tried_hz[best]), slack * 4 / _TRIED, True
        if count >= len(edges_s):
            break
    return period_s if found else None


def _together(time_s: Floats, tried_hz: Floats) -> Floats:
    """How well times keep step with each of some evenly spaced rates, from 0 to 1."""
    phase = np.exp(2j * np.pi * tried_hz[0] * time_s)
    # From each rate to the next every phase turns by the same again, which is quicker than to work it out anew.
    turn = np.exp(2j * np.pi * (tried_hz[1] - tried_hz[0]) * time_s)
    found = np.empty(len(tried_hz))
    for place in range(len(tried_hz)):
        found[place] = abs(phase.mean())
        phase = phase * turn
    return found


def _kept(
    time_s: Floats, changed: np.ndarray[tuple[int], np.dtype[np.bool_]], period_s: float
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Polls that saw a refresh: where the value changed, and each refresh later where it came out the same."""
    run_start_s = time_s[np.flatnonzero(changed)][np.cumsum(changed) - 1]
    # A quarter of a refresh of slack, since a change is seen late by up to one poll.
    number = np.maximum(np.floor((time_s - run_start_s) / period_s - 0.25), 0.0)
    return np.asarray(changed | np.append(False, (np.diff(number) > 0) & ~changed[1:]))
