"""The charts of a tuned run: its power with the settings, the last periods, and the settings by time and energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from wattune.core.frontier import Frontier, Trial
from wattune.core.window import Purpose, Window
from wattune.levels.run.report import RunReport
from wattune.levels.run.summaries import PhaseSummary, SettingSummary, phase_summaries
from wattune.levels.run.view.settings import judged_words
from wattune.levels.run.view.words import change_words
from wattune.render.chart import (
    Axis,
    Band,
    Chart,
    Mark,
    Note,
    Point,
    ReferenceLine,
    Series,
    Shape,
    Spread,
    Tone,
    Way,
    default_series,
)
from wattune.render.quantity import (
    Unit,
    changes,
    long_unit,
    unit_for,
)

Floats = NDArray[np.float64]
_CLEAR = 0.005
"""Least amplitude, as a share of the mean power, for troughs to be meaningful."""


def period_marks(report: RunReport, *, start_s: float, end_s: float) -> tuple[float, ...]:
    """Find where periods begin between two instants of the GPU's time: at the troughs of the power."""
    period_s = None if report.seen.period is None else report.seen.period.period_s
    if not period_s or period_s <= 0 or end_s <= start_s:
        return ()
    shown = [one for one in report.seen.trace.recent if start_s <= one.time_s <= end_s and one.power_w is not None]
    times_s, powers_w = np.array([one.time_s for one in shown]), np.array([one.power_w for one in shown], np.float64)
    trough = trough_s(times_s, powers_w, period_s)
    anchor_s = end_s if trough is None else trough
    first, last = ceil((start_s - anchor_s) / period_s), floor((end_s - anchor_s) / period_s)
    return tuple(anchor_s + place * period_s for place in range(first, last + 1))


def trough_s(time_s: Floats, power_w: Floats, period_s: float) -> float | None:
    """Return an instant of lowest power within the period; None where the swing or the samples are too few."""
    known = np.isfinite(power_w)
    time_s, power_w = time_s[known], power_w[known]
    if len(time_s) < 4 or period_s <= 0:
        return None
    first = np.sum((power_w - power_w.mean()) * np.exp(-2j * np.pi * (time_s - time_s[0]) / period_s)) / len(time_s)
    if abs(first) <= _CLEAR * abs(float(power_w.mean())):
        return None
    # The minimum of the first harmonic is half a period after its maximum.
    turns = (-float(np.angle(first)) / (2 * np.pi) + 0.5) % 1.0
    return float(time_s[0]) + turns * period_s


TONES = {
    Purpose.BASELINE: Tone.GREY,
    Purpose.REFERENCE: Tone.PURPLE,
    Purpose.TRIAL: Tone.GOLD,
    Purpose.HOLD: Tone.GREEN,
}
CLOSE_PERIODS = 12
"""Number of periods in the close-up."""
_LEAST = 0.02


def power_chart(report: RunReport) -> Chart:
    """Draw the power over the whole run, mean and range, with the settings as bands."""
    trace = report.seen.trace
    unit = long_unit((trace.duration_s, *(window.start_s + window.cost.time_s for window in report.windows)))
    steps, half_s = trace.steps, trace.step_s / 2
    points = tuple(Point((step.start_s + half_s) * unit.factor, step.mean_w) for step in steps)
    spread = tuple(Spread((step.start_s + half_s) * unit.factor, step.low_w, step.high_w) for step in steps)
    return Chart(
        title="Power, and what was set",
        subtitle=_subtitle(report, "grey: the baseline; gold: trials; green: held"),
        x=Axis(title="time", unit=unit.symbol, low=0.0),
        y=Axis(title="power", unit="W", low=0.0),
        series=(Series(name="power, and its range", points=points, spread=spread),),
        bands=tuple(_bands(report.windows, unit)),
    )


def close_chart(report: RunReport) -> Chart | None:
    """Draw the last periods of the run with their starts marked; None without periods."""
    trace, period = report.seen.trace, report.seen.period
    if not trace.recent or trace.first_s is None or period is None or not period.period_s:
        return None
    end_s = trace.recent[-1].time_s
    start_s = max(end_s - CLOSE_PERIODS * period.period_s, trace.recent[0].time_s)
    shown = [reading for reading in trace.recent if reading.time_s >= start_s]
    marks_s = period_marks(report, start_s=start_s, end_s=end_s)
    if len(shown) < 4 or len(marks_s) < 2:
        return None
    unit = unit_for((end_s - start_s,), "s")
    points = tuple(Point((reading.time_s - start_s) * unit.factor, reading.power_w) for reading in shown)
    return Chart(
        title=f"The last {len(marks_s) - 1} periods",
        subtitle=_subtitle(report, "each dashed line is one period after the last"),
        x=Axis(title="time", unit=unit.symbol, low=0.0),
        y=Axis(title="power", unit="W", low=0.0),
        series=(Series(name="power", points=points),),
        rules=tuple(ReferenceLine((mark_s - start_s) * unit.factor, "", Way.UPRIGHT) for mark_s in marks_s),
    )


def plane_chart(report: RunReport) -> Chart | None:
    """Draw the settings of the last phase by time and energy per unit, with frontier; None without step times."""
    found = [phase for phase in phase_summaries(report.windows) if any(point.unit for point in phase.points)]
    if not found:
        return None
    phase = found[-1]
    trials = [Trial(point, point.unit) for point in phase.points if point.unit is not None]
    seconds = unit_for((trial.cost.time_s for trial in trials), "s")
    joules = unit_for((trial.cost.energy_j for trial in trials), "J")
    frontier = Frontier.of(trials)
    kept = {id(trial) for trial in frontier}
    others = [one for one in trials if id(one) not in kept and one.choice is not phase.baseline]
    beaten = tuple(_point(report, phase, one, (seconds, joules)) for one in others)
    base = tuple(_point(report, phase, one, (seconds, joules)) for one in trials if one.choice is phase.baseline)
    line = tuple(_point(report, phase, one, (seconds, joules)) for one in frontier)
    series = [
        Series(name="95 % interval", points=tuple(_bars(trials, seconds, joules)), tone=Tone.SKY),
        Series(name="frontier", points=line, mark=Mark.LINE_AND_POINTS, tone=Tone.BLUE),
        Series(name="beaten in both", points=beaten, mark=Mark.POINTS, tone=Tone.GREY, shape=Shape.SQUARE),
        default_series("baseline", *base),
    ]
    return Chart(
        title=f"Time and energy per {report.seen.unit}",
        subtitle=_subtitle(report, "left is faster, down is cheaper"),
        x=Axis(title=f"time per {report.seen.unit}", unit=seconds.symbol, least=_LEAST),
        y=Axis(title=f"energy per {report.seen.unit}", unit=joules.symbol, least=_LEAST),
        series=tuple(one for one in series if one.points),
        notes=tuple(_notes(report, phase, seconds, joules)),
        bands=tuple(_allowed(report, phase, seconds)),
    )


def _subtitle(report: RunReport, words: str) -> str:
    return f"simulated; {words}" if report.simulated else words


def _bands(windows: Sequence[Window], unit: Unit) -> Iterator[Band]:
    """Yield a band for neighbouring windows of one setting and purpose."""
    for (setting, purpose), group in groupby(windows, key=lambda window: (window.setting, window.purpose)):
        own = list(group)
        start_s, end_s = own[0].start_s, own[-1].start_s + own[-1].cost.time_s
        text = "baseline" if purpose is Purpose.BASELINE else str(setting)
        yield Band(start_s * unit.factor, end_s * unit.factor, text, TONES[purpose])


def _point(report: RunReport, phase: PhaseSummary, trial: Trial[SettingSummary], units: tuple[Unit, Unit]) -> Point:
    seconds, joules = units
    point, cost = trial.choice, trial.cost
    lines = (
        point.label,
        change_words(phase.slowdown(point), phase.saving(point)),
        judged_words(report, phase, point),
    )
    return Point(cost.time_s * seconds.factor, cost.energy_j * joules.factor, "\n".join(filter(None, lines)))


def _bars(trials: Sequence[Trial[SettingSummary]], seconds: Unit, joules: Unit) -> Iterator[Point]:
    """Yield both error bars of each setting as strokes with gaps between them."""
    for trial in trials:
        x, y = trial.cost.time_s * seconds.factor, trial.cost.energy_j * joules.factor
        wide = (trial.cost.time_error_s or 0.0) * seconds.factor
        high = (trial.cost.energy_error_j or 0.0) * joules.factor
        if wide:
            yield from (Point(x - wide, y), Point(x + wide, y), Point(x + wide, None))
        if high:
            yield from (Point(x, y - high), Point(x, y + high), Point(x, None))


def _notes(report: RunReport, phase: PhaseSummary, seconds: Unit, joules: Unit) -> Iterator[Note]:
    """Annotate the baseline and the held setting."""
    for point in phase.points:
        unit, is_base, is_held = point.unit, point is phase.baseline, report.is_held(point)
        if unit is None or not (is_base or is_held):
            continue
        name = ", ".join((["baseline"] if is_base else []) + (["held"] if is_held else []))
        slower, saved = phase.slowdown(point), phase.saving(point)
        detail = None
        if not is_base and slower is not None and saved is not None:
            detail = changes(100 * slower.value, -100 * saved.value)
        yield Note(unit.time_s * seconds.factor, unit.energy_j * joules.factor, f"{name}: {point.label}", detail)


def _allowed(report: RunReport, phase: PhaseSummary, seconds: Unit) -> Iterator[Band]:
    base = phase.baseline
    if report.slowdown_limit and base is not None and base.step_time is not None:
        start_s = base.step_time.value
        end_s = start_s * (1 + report.slowdown_limit)
        yield Band(
            start_s * seconds.factor,
            end_s * seconds.factor,
            f"up to {100 * report.slowdown_limit:g} % slower",
            Tone.GREEN,
        )
