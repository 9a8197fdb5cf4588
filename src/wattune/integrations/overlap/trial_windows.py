"""How long a trial of a partition cools down and how long it is measured: as long as the drift requires, and no longer.

Power rises with temperature, by 0.2 % per degree on an A100 (3.7 % from 31 to 49 degrees; ml-energy blog, 2026-03-09),
so trials are comparable only where they start equally cool. A trial therefore waits until the GPU is as cool as before
the first trial, unless it cools down too slowly for that: then waiting is in vain, and the temperatures are part of the
result. Windows follow one another until the counter's error is small and power has stopped to drift.

Notation: P power of a window, δ = |P₂/P₁ − 1| the drift from one window to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from wattune.control.window_state import Until
from wattune.core.measurement import Measurement

DRIFT_PER_C = 0.002
"""Relative change of power per degree."""

GROWTH = 8.0
"""Largest ratio of the runs of a window to those of the window before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRule:
    """When a trial is cool enough, and when it is exact enough."""

    precision: float = 0.01
    """Largest relative error of the energy, by the counter and by drift, each."""
    least_window_s: float = 0.5
    """A window spans several refreshes of the counter, of 0.1 s on most GPUs."""
    most_windows_s: float = 10.0
    """Of all windows of a trial; what Kareus found to be enough at any drift."""
    cooling_step_s: float = 0.5
    most_cooling_s: float = 15.0

    @property
    def tolerance_c(self) -> float:
        """By how much a start may be warmer than the first."""
        return self.precision / 2 / DRIFT_PER_C


@dataclass(frozen=True, slots=True)
class TrialWindow:
    """Repetitions in a row and what they took on each GPU; of several ranks, the longest time and the mean energy."""

    repeats: int
    cost: Measurement

    def __add__(self, other: TrialWindow) -> TrialWindow:
        return TrialWindow(self.repeats + other.repeats, self.cost + other.cost)

    @property
    def error(self) -> float:
        """Of the energy, relative."""
        return (self.cost.energy_error_j or 0.0) / self.cost.energy_j if self.cost.energy_j else inf


def is_cool(temperatures_c: tuple[float, ...], rule: TrialRule, *, start_c: float | None) -> bool:
    """Return whether a trial can start; the temperatures were read one cooling step after another.

    `start_c` is the temperature at which the first trial started; None where this is the first.
    """
    waited_s = (len(temperatures_c) - 1) * rule.cooling_step_s
    if waited_s >= rule.most_cooling_s:
        return True
    above_c = inf if start_c is None else temperatures_c[-1] - start_c - rule.tolerance_c
    if above_c <= 0 or len(temperatures_c) < 3:
        return above_c <= 0
    fallen_c = temperatures_c[-3] - temperatures_c[-1]
    if start_c is None:
        return fallen_c < rule.tolerance_c / 4
    # Cooling slows down, so it takes at least as long as at the present rate.
    return fallen_c <= 0 or above_c / fallen_c * 2 * rule.cooling_step_s > rule.most_cooling_s - waited_s


def next_repeats(windows: tuple[TrialWindow, ...], rule: TrialRule) -> int:
    """Return how many repetitions the next window needs to be long and exact enough."""
    if not windows:
        return 1
    last = windows[-1]
    short = rule.least_window_s / last.cost.time_s if last.cost.time_s > 0 else GROWTH
    return max(ceil(last.repeats * min(max(short, last.error / rule.precision), GROWTH)), last.repeats)


def drift_of(windows: tuple[TrialWindow, ...], rule: TrialRule) -> float:
    """Return δ of the last two windows; infinite before there are two of a sufficient length."""
    long_enough = [window for window in windows if window.cost.time_s >= rule.least_window_s / 2]
    if len(long_enough) < 2 or long_enough[-2].cost.power_w <= 0:
        return inf
    return abs(long_enough[-1].cost.power_w / long_enough[-2].cost.power_w - 1.0)


def result_of(windows: tuple[TrialWindow, ...], rule: TrialRule) -> TrialWindow | None:
    """Return what counts, once that is exact and steady enough: the windows whose power is that of the last."""
    if not windows:
        return None
    last = windows[-1]
    counted = last
    for window in reversed(windows[:-1]):
        alike = last.cost.power_w > 0 and abs(window.cost.power_w / last.cost.power_w - 1.0) <= rule.precision
        if not alike or window.cost.time_s < last.cost.time_s / 2:
            break
        counted = window + counted
    until = Until(most_s=rule.most_windows_s, precision=rule.precision)
    error = max(counted.error, drift_of(windows, rule))
    return counted if until.is_over(time_s=sum(window.cost.time_s for window in windows), error=error) else None
