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
    usual_s = float(np.median(stays_s))
    near = stays_s[(stays_s > 0.5 * usual_s) & (stays_s < 1.6 * usual_s)]
    period_s = _in_step_s(edges_s, float(np.mean(near)) if len(near) else usual_s)
    return period_s if period_s > 1.2 * poll_s else None


def _in_step_s(edges_s: Floats, guess_s: float) -> float:
    """The period that most refreshes are in step with, near a guess; the guess where they keep no step.

    Few refreshes give it roughly, more of them better and better.
    """
    period_s, slack = guess_s, 0.2
    for count in _IN_STEP:
        some_s = edges_s[:count] - edges_s[0]
        tried_s = period_s * np.linspace(1 - slack, 1 + slack, _TRIED)
        together = np.abs(np.exp(2j * np.pi * np.outer(1 / tried_s, some_s)).mean(axis=1))
        best = int(np.argmax(together))
        if together[best] < _TOGETHER:
            break
        period_s, slack = float(tried_s[best]), slack * 4 / _TRIED
        if count >= len(edges_s):
            break
    return period_s


def _kept(
    time_s: Floats, changed: np.ndarray[tuple[int], np.dtype[np.bool_]], period_s: float
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Polls that saw a refresh: where the value changed, and each refresh later where it came out the same."""
    run_start_s = time_s[np.flatnonzero(changed)][np.cumsum(changed) - 1]
    # A quarter of a refresh of slack, since a change is seen late by up to one poll.
    number = np.maximum(np.floor((time_s - run_start_s) / period_s - 0.25), 0.0)
    return np.asarray(changed | np.append(False, (np.diff(number) > 0) & ~changed[1:]))
