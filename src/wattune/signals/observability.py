"""Decide whether a period in power is real or the alias of something faster than the sensor.

A sensor that refreshes every τ shows a load of any frequency f at its alias |f − k/τ| below 1/(2τ): a square wave of
104 ms looks like one of 3 s on a sensor of 101 ms. Evenly spaced values alone cannot distinguish an alias from a real
period. Four things can:

* utilisation, which refreshes at another rate and has its aliases elsewhere;
* other GPUs of the same job, whose sensors refresh in other phases (`in_phase`);
* pauses: steps begin again with the work after a pause, an alias goes on in the phase of the sensor;
* the shape: averaging over part of a short cycle leaves few harmonics, so a long cycle with many is real.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.signals.comb import Comb, comb
from wattune.signals.grid import Grid
from wattune.signals.in_phase import phase_evidence
from wattune.signals.pauses import Pauses, restarts_after
from wattune.signals.samples import Floats, PowerSamples, SensorUpdates
from wattune.signals.utilisation import UtilisationEvidence, utilisation_evidence

# Variation of power below this share of its mean is sensor noise and heat.
_STEADY = 0.01
# Correlation of neighbouring refreshes above which power moves slowly enough for the sensor.
_FOLLOWED = 0.35
# Standard deviation of utilisation over its mean above which it counts as moving.
_MOVES = 0.05
# Correlation of power and utilisation above which they vary together.
_TOGETHER = 0.2
# The least share of utilisation's variance that is evidence, and the factor by which one share must exceed another.
_SAYS, _LARGER = 0.1, 1.25
# Standard deviations by which the best of several faster loads exceeds chance.
_SURE = 3.0
POINT = 0.01
"""Utilisation is reported in percent: a smaller swing is no evidence."""
MORE_POINTS = 0.02
"""A smaller swing is weak evidence."""
# The most that is left of a load whose aliases agree in both sensors: a square wave of 30 Hz, averaged over a sixth of
# a second.
_DEEP_POINTS = 0.05
# Power that swings by less than this share of its mean may be noise of the sensor, and by less than the other, what a
# sensor that averages over 100 ms leaves of a load of 30 Hz.
_WEAK, _CLEAR = 0.02, 0.03
# Where only power is known, sensors this fast are trusted with cycles of so many refreshes, sharp or not: a load that
# they cannot follow has steps of less than 50 ms, and they average most of it away.
_QUICK_S, _LEAST_QUICK = 0.025, 6.0
# At low clocks training swings by some tenths of a percent; a quick sensor shows that where its edges are sharp.
_FAINT = 0.002
# The least swing of utilisation over that of power, both as shares: utilisation is averaged over all of its refresh,
# power may be over a quarter, so of a load that is too fast more is left in power.
_PROPORTION = 0.15
# Refreshes of utilisation per period from which it shows the period at all, and in full.
_VISIBLE, _WHOLE = 3.0, 6.0
# A share of the variance of utilisation that counts as none.
_NOTHING = 0.03
# Cycles from one pause to the next, from which a period is one of steps between pauses.
_BETWEEN_PAUSES = 6.0
_CHANCE = 1e-3
# Harmonics of a cycle that is averaged over most of itself die out from the third on; these indicate a real one.
_HIGH_LINE = 3
_SHARP = 0.02
# A cycle shorter than this many refreshes has too few harmonics to show its shape.
_SHAPED = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class SensorEvidence:
    """The samples, and the updates of each sensor in them."""

    samples: PowerSamples
    power: SensorUpdates
    grid: Grid
    """Power while the program ran."""
    utilisations: tuple[SensorUpdates, ...]
    others: tuple[PowerSamples, ...] = ()
    """The other GPUs of the job."""
    pauses: Pauses | None = None
    """Pauses in a cycle of steps."""


def is_real_period(evidence: SensorEvidence, grid: Grid, *, period_s: float, least_points: float = POINT) -> bool:
    """Decide whether a period found in power is real.

    `least_points` is the least swing of utilisation with the period, where it is evidence. Where a shorter period was
    not real it is `MORE_POINTS`, since a load with one alias has others too.
    """
    power, lines = evidence.power, comb(grid, period_s)
    if lines is None:
        return False
    sharp = _is_sharp(lines)
    swing = (2 * float(lines.on.max()) * grid.variance) ** 0.5 / max(float(power.value.mean()), 1e-9)
    found = utilisation_evidence(evidence.utilisations, grid, lines)
    clear = sharp or swing >= _CLEAR
    real = [one for one in found if _is_real(one) and one.amplitude > max(least_points, _least(one, period_s, swing))]
    if any(clear or _is_deep(one, period_s) for one in real):
        return True
    long_enough = sharp and period_s >= _SHAPED * power.refresh_s
    shaped = long_enough and lines.strong()[0] == 1
    clear_shape = power.refresh_s <= _QUICK_S and long_enough and swing >= _FAINT
    if least_points > POINT or any(_is_alias(one) for one in found):
        return False
    phases = phase_evidence(grid, evidence.others, period_s)
    if phases.is_real or phases.delayed:
        return phases.is_real
    # A late loader moves utilisation too; where a quick sensor shows the shape of a step, that is no objection.
    if not clear_shape and any(_is_missed(one, period_s) for one in found):
        return False
    if clear_shape:
        return True
    if swing < _WEAK or _goes_on_after_pauses(evidence, period_s):
        return False
    return shaped or is_quick_alone(evidence, period_s)


def is_quick_alone(evidence: SensorEvidence, period_s: float) -> bool:
    """Return whether only power is known, from a sensor that is quick enough to be trusted with a period."""
    utilisations = (evidence.samples.sm_util, evidence.samples.mem_util)
    alone = all(values is None or not np.isfinite(values).any() for values in utilisations)
    refresh_s = evidence.power.refresh_s
    return alone and refresh_s <= _QUICK_S and period_s >= _LEAST_QUICK * refresh_s


def _is_real(one: UtilisationEvidence) -> bool:
    return one.real > _SAYS and one.real * _LARGER > one.alias


def _least(one: UtilisationEvidence, period_s: float, swing: float) -> float:
    """Return the least swing of utilisation with a period that power swings with; a beat swings in power alone."""
    return _PROPORTION * swing * abs(float(np.sinc(one.refresh_s / period_s)))


def _is_deep(one: UtilisationEvidence, period_s: float) -> bool:
    """Return whether utilisation swings too far for an averaged load, or the period is too slow for one."""
    return one.amplitude > _DEEP_POINTS or period_s > _WHOLE * one.refresh_s


def _is_alias(one: UtilisationEvidence) -> bool:
    return one.alias > _SAYS + _SURE * one.noise and one.alias > _LARGER * one.real


def _is_missed(one: UtilisationEvidence, period_s: float) -> bool:
    """Return whether utilisation moves and could show the period, but does not."""
    return period_s > _VISIBLE * one.refresh_s and one.spread > POINT and one.real < _NOTHING


def is_followed(evidence: SensorEvidence) -> bool:
    """Return whether power varies slowly enough for the sensor, and so does utilisation where it is known."""
    samples, power = evidence.samples, evidence.power
    if float(np.std(power.value)) <= _STEADY * float(power.value.mean()) or not _goes_on(power.value):
        return False
    moving = [updates for updates in evidence.utilisations if _spread(updates) > _MOVES]
    if not moving:
        # Core utilisation alone may be constant for any load; constant cores and memory mean a constant load.
        return samples.sm_util is None or samples.mem_util is None
    return any(_together(power, updates) > _TOGETHER for updates in moving)


def _goes_on(value: Floats) -> bool:
    """Return whether values correlate with both values before; alternating ones do with the second only."""
    off = value - value.mean()
    least = _FOLLOWED * float((off**2).sum())
    return len(off) >= 8 and all(float((off[later:] * off[:-later]).sum()) > least for later in (1, 2))


def _spread(updates: SensorUpdates) -> float:
    return float(np.std(updates.value)) / max(float(np.mean(np.abs(updates.value))), 1e-9)


def _together(power: SensorUpdates, updates: SensorUpdates) -> float:
    """Return the correlation of utilisation with the mean power over its windows, 0 to 1."""
    total = np.concatenate(([0.0], np.cumsum(power.value)))
    stop = np.searchsorted(power.time_s, updates.time_s, side="right")
    start = np.searchsorted(power.time_s, updates.time_s - updates.refresh_s, side="right")
    whole = stop > start
    if whole.sum() < 8:
        return 0.0
    mean_w = (total[stop] - total[start])[whole] / (stop - start)[whole]
    pair = mean_w - mean_w.mean(), updates.value[whole] - updates.value[whole].mean()
    size = float(np.sqrt((pair[0] ** 2).sum() * (pair[1] ** 2).sum()))
    return abs(float((pair[0] * pair[1]).sum())) / size if size > 0 else 0.0


def _goes_on_after_pauses(evidence: SensorEvidence, period_s: float) -> bool:
    """Return whether a period that occurs many times between pauses does not begin again after them."""
    pauses = evidence.pauses
    if pauses is None or period_s * _BETWEEN_PAUSES > pauses.cycle_s:
        return False
    return restarts_after(pauses, evidence.power, period_s) is False


def _is_sharp(lines: Comb) -> bool:
    """Return whether a cycle has harmonics that one averaged over most of itself lacks."""
    high = np.arange(1, len(lines.on) + 1) >= _HIGH_LINE
    return lines.share_of(high) > _SHARP * lines.explained and lines.chance_of(high) < _CHANCE
