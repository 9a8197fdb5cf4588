"""Pauses of a program and the cycle they come in: checkpoints, evaluations on the host.

A program that waits for its host draws little for a second or longer. Writing a checkpoint takes now more, now less
time, so the spectrum of a few such cycles has no lines; but each pause shows, and their times are even or not.

Notation: D₁ … Dₙ times between pauses, c their standard deviation over their mean. Where pauses come by chance, at a
constant rate, the D over their sum are uniform on a simplex of volume √n/(n−1)!, and those with a spread of at most c
lie in a ball of radius c/√n around its middle. So the ratio of the volumes bounds the probability of c.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, log, pi, sqrt

import numpy as np

from wattune.signals.active import running_mean
from wattune.signals.samples import Flags, Floats, PowerSamples, SensorUpdates, quantiles

EDGE_S = 0.75
"""Around a pause its edges are left out: a sensor may average over a second."""
# A shorter cycle is a step that waits.
_LEAST_CYCLE_S = 5.0
# A wait for the host that is shorter is part of a step.
_LEAST_S = 1.0
# Quantiles of power: the level of pauses, which may take a hundredth of the time, and that of the steps.
_QUIET, _USUAL = 0.01, 0.6
# Power is averaged over this time first, so that a short lull inside a step is none.
_SMOOTH_S = 0.5
# Shares of the way from the quiet to the usual level: below the first the program pauses, above the second it goes on.
_PAUSED, _GOES_ON = 0.35, 0.65
# The least distance of both levels, as a share of the usual one.
_LEAST_CONTRAST = 0.25
# The most that the mean power of half a second varies between pauses, as a share of the distance of both levels: many
# steps have the same mean, the parts of a single long one differ.
_STEADY = 0.2
# Probability that pauses by chance come as evenly.
_FALSE_ALARM = 1e-2
_LEAST_TIMES = 3
_T95 = 1.96


@dataclass(frozen=True, slots=True, eq=False)
class Pauses:
    """The pauses of a program, one by one."""

    begin_s: Floats
    end_s: Floats

    @property
    def cycle_s(self) -> float:
        """The mean time from one to the next."""
        return float(np.diff(self.end_s).mean())

    @property
    def spread(self) -> float:
        """Standard deviation of that time over its mean."""
        return float(np.diff(self.end_s).std()) / self.cycle_s

    @property
    def error_s(self) -> float:
        """Half-width of the 95 % interval of the mean."""
        return _T95 * self.spread * self.cycle_s / sqrt(len(self.end_s) - 1)

    @property
    def are_even(self) -> bool:
        """Return whether they come in a cycle of steps, more evenly than by chance."""
        times = len(self.end_s) - 1
        if times < _LEAST_TIMES or self.cycle_s < _LEAST_CYCLE_S:
            return False
        return even_chance(times, self.spread) < _FALSE_ALARM

    def cover(self, time_s: Floats, *, edge_s: float = EDGE_S) -> Flags:
        """Mark the times inside a pause and near its edges."""
        place = np.searchsorted(self.begin_s - edge_s, time_s, side="right") - 1
        return np.asarray((place >= 0) & (time_s < self.end_s[place] + edge_s))


def even_chance(times: int, spread: float) -> float:
    """Bound the probability that so many times between events by chance have at most this spread."""
    dimensions = times - 1
    ball = dimensions / 2 * log(pi * max(spread, 1e-9) ** 2 / times) - lgamma(dimensions / 2 + 1)
    return exp(min(ball + lgamma(times) - log(times) / 2, 0.0))


def find_pauses(power: SensorUpdates) -> Pauses | None:
    """Find where power stays near its lowest level for a second or longer, evenly and between intervals of steady work.

    None where there is no such cycle of pauses.
    """
    level_w = running_mean(power.value, max(round(_SMOOTH_S / power.refresh_s), 1))
    quiet_w, usual_w = quantiles(level_w, _QUIET, _USUAL)
    if usual_w - quiet_w < _LEAST_CONTRAST * usual_w:
        return None
    height = (level_w - quiet_w) / (usual_w - quiet_w)
    found = _between(power.time_s, height < _PAUSED, height > _GOES_ON)
    return found if found.are_even and _is_steady(power.time_s, height, found) else None


def _between(time_s: Floats, low: Flags, high: Flags) -> Pauses:
    """Return the long intervals from where a signal is low to where it is high again."""
    clear = np.flatnonzero(low | high)
    falls = clear[1:][low[clear[1:]] & high[clear[:-1]]]
    rises = clear[1:][high[clear[1:]] & low[clear[:-1]]]
    rises = rises[np.searchsorted(rises, falls[0]) :] if len(falls) else rises[:0]
    begin_s, end_s = time_s[falls[: len(rises)]], time_s[rises]
    long = end_s - begin_s >= _LEAST_S
    return Pauses(begin_s[long], end_s[long])


def _is_steady(time_s: Floats, height: Floats, pauses: Pauses) -> bool:
    """Return whether power hardly varies from pause to pause."""
    inside = (time_s > pauses.end_s[0]) & (time_s < pauses.begin_s[-1])
    work = height[inside & ~pauses.cover(time_s)]
    return len(work) > 0 and float(work.std()) < _STEADY


# Utilisation in pauses, as a share of that in between: it shows waiting.
_WAITS = 0.5
# Refreshes per cycle where utilisation is unknown: an alias as slow as that comes from a step within a hundredth of
# the refresh time.
_SLOW = 100.0


def is_real_pause(pauses: Pauses, power: SensorUpdates, samples: PowerSamples) -> bool:
    """Return whether pauses are no beat of a fast load with the sensor: utilisation falls too, or they are too slow."""
    if samples.sm_util is None or not np.isfinite(samples.sm_util).any():
        return pauses.cycle_s >= _SLOW * power.refresh_s
    paused = pauses.cover(samples.time_s, edge_s=0.0)
    waiting, working = np.nanmean(samples.sm_util[paused]), np.nanmean(samples.sm_util[~paused])
    return bool(waiting < _WAITS * working)


def explained_share(pauses: Pauses, power: SensorUpdates) -> float:
    """Return the share of the variance of power that is the difference of pauses and work."""
    paused = pauses.cover(power.time_s, edge_s=0.0)
    means_w = np.where(paused, power.value[paused].mean(), power.value[~paused].mean())
    return float(means_w.var() / max(power.value.var(), 1e-300))


# Cycles after a pause whose phase is compared, the least pauses, and the least mean resultant length of the phases.
_CYCLES, _LEAST_PAUSES, _LOCKED = 6.0, 4, 0.9


def restarts_after(pauses: Pauses, power: SensorUpdates, period_s: float) -> bool | None:
    """Return whether a period begins again with the work after each pause; None with too few pauses.

    Steps do. A beat of faster steps with the sensor goes on in the phase of the sensor, unlike from pause to pause.
    """
    phases = [_phase(power, begin_s + EDGE_S, period_s) for begin_s in pauses.end_s]
    known = [phase for phase in phases if phase is not None]
    return None if len(known) < _LEAST_PAUSES else bool(abs(np.mean(known)) > _LOCKED)


def _phase(power: SensorUpdates, begin_s: float, period_s: float) -> complex | None:
    """Return the phase of the first cycles from a time on, as a number of size 1."""
    since_s = power.time_s - begin_s
    inside = (since_s >= 0) & (since_s < _CYCLES * period_s)
    if since_s[-1] < _CYCLES * period_s or not inside.any():
        return None
    off_w = power.value[inside] - power.value[inside].mean()
    turned = complex((off_w * np.exp(-2j * np.pi * since_s[inside] / period_s)).sum())
    return turned / max(abs(turned), 1e-300)
