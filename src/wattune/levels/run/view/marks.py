"""Where periods begin in the power of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattune.core.reading import Reading
from wattune.levels.run.view.view_model import RunView

Floats = NDArray[np.float64]
_CLEAR = 0.005
"""Share of the mean power by which it has to swing for its troughs to mean anything."""


def period_marks(view: RunView, *, start_s: float, end_s: float) -> tuple[float, ...]:
    """The beginnings of periods between two instants of the GPU's time, at the troughs of what is seen there."""
    period = view.period
    if period is None or not period.period_s:
        return ()
    if period.phase_s is None:
        shown = [reading for reading in view.trace.recent if start_s <= reading.time_s <= end_s]
        period = replace(period, phase_s=trough_s(_times_s(shown), _powers_w(shown), period.period_s))
    return period.marks_s(start_s, end_s)


def _times_s(readings: list[Reading]) -> Floats:
    return np.array([reading.time_s for reading in readings], dtype=np.float64)


def _powers_w(readings: list[Reading]) -> Floats:
    known = [np.nan if reading.power_w is None else reading.power_w for reading in readings]
    return np.array(known, dtype=np.float64)


def trough_s(time_s: Floats, power_w: Floats, period_s: float) -> float | None:
    """An instant at which power, folded at the period, is lowest; None where it hardly swings or is hardly seen."""
    known = np.isfinite(power_w)
    time_s, power_w = time_s[known], power_w[known]
    if len(time_s) < 4 or period_s <= 0:
        return None
    first = np.sum((power_w - power_w.mean()) * np.exp(-2j * np.pi * (time_s - time_s[0]) / period_s)) / len(time_s)
    if abs(first) <= _CLEAR * abs(float(power_w.mean())):
        return None
    # The first harmonic is lowest half a turn away from where it is highest.
    turns = (-float(np.angle(first)) / (2 * np.pi) + 0.5) % 1.0
    return float(time_s[0]) + turns * period_s
