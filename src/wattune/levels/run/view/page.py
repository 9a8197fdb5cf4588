"""The closing report of a tuned run as a page: what it saved, whether the slowdown limit was met, and its charts.

The charts show the power with the settings, the last periods, and the settings by time and energy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from wattune.control.python_command import command_title
from wattune.core.frontier import Frontier, Trial
from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Purpose, Window
from wattune.levels.run.figures import EstimateWithError, PhaseSummary, SettingSummary, phase_summaries
from wattune.levels.run.report import RunReport
from wattune.levels.run.view.result import RunResult
from wattune.levels.run.view.words import (
    LIKELY,
    base_name,
    change_words,
    compared_words,
    cpu_words,
    estimate_words,
    even_words,
    headline,
    judged_words,
    last_period_words,
    measured_cells,
    measured_hold_words,
    search_words,
    slowdown_words,
    sure_words,
)
from wattune.physics.catalog import trust_of
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
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, Table, render_page
from wattune.render.quantity import (
    Unit,
    changes,
    counted,
    duration,
    footprint_words,
    long_unit,
    percent,
    quantity,
    unit_for,
)
from wattune.render.svg import standalone

SETTING_HEAD = "setting,set for,verdict,time set,step time,power,energy per {unit},Δ time %,Δ energy %"
MOST_EVENTS = 100


def run_file(result: RunResult, *, made: str, suffix: str) -> str:
    """Render the whole page for `.html`, its first picture for `.svg`."""
    if suffix == ".svg":
        return standalone(power_chart(result.report))
    return render_page(run_page(result, made=made))


def run_page(result: RunResult, *, made: str) -> Page:
    """Lay out the page of a run; `made` is when, where and by which version."""
    report = result.report
    sections: tuple[Section, ...] = (
        Figures((*_figures(result), *_in_the_long_run(result))),
        *_pictures(report),
        *_setting_tables(report),
        Prose("The slowdown limit", _slowdown_limit(report)),
        _events(report),
        Prose("How to read it", _how(report)),
    )
    return Page(
        title=f"{command_title(report.program)} on {report.progress.spec.name}",
        lead=_sentence(headline(report)),
        simulated=report.simulated,
        trust=trust_of(report.simulated, report.progress.spec.name),
        sections=sections,
        foot=made,
    )


def _figures(result: RunResult) -> tuple[Figure, ...]:
    report = result.report
    figures, spent = report.figures, report.spent
    held = slower = "nothing was held"
    if report.held is not None:
        while_held = f"while {measured_hold_words(report)} {'took turns' if report.alternates else 'was held'}"
        held = f"{while_held}: {_known(_change(figures.held_saving))}"
        slower = f"{while_held}: {_known(figures.held_slowdown)}"
    even = figures.break_even_s
    met = _met(report)
    return (
        Figure(_known(_change(figures.saving)), "energy of the whole run, search included", held),
        Figure(
            _known(figures.slowdown),
            f"time of the whole run, against the {base_name(report)}",
            slower if met is None else f"{slower}; {met}",
        ),
        Figure(
            "unknown" if even is None else duration(even) if even > 0 else "at once",
            "break-even",
            search_words(report) or None,
        ),
        Figure(
            "unknown" if result.footprint is None else quantity(spent.energy_j, "J"),
            "spent in all",
            None if result.footprint is None else f"in {duration(spent.time_s)}: {footprint_words(result.footprint)}",
        ),
    )


def _in_the_long_run(result: RunResult) -> Iterator[Figure]:
    report, slower = result.report, result.report.figures.held_slowdown
    if result.long_run is None or slower is None:
        return
    yield Figure(
        footprint_words(result.long_run),
        "saved per 1,000 GPU-hours",
        f"computed from what was measured at {measured_hold_words(report)}; time {percent(100 * slower.value)}",
    )


def _change(saving: EstimateWithError | None) -> EstimateWithError | None:
    """Return a saving as a difference of energy: 12 % saved is −12 %."""
    return None if saving is None else saving.negative


def _known(estimate: EstimateWithError | None) -> str:
    return "unknown" if estimate is None else estimate_words(estimate)


def _met(report: RunReport) -> str | None:
    if report.slowdown_limit is None:
        return None
    limit, sure = f"{100 * report.slowdown_limit:g} % allowed", report.figures.confidence
    if sure is None:
        return limit
    return f"{limit}; {'met' if sure >= LIKELY else 'not met'}, {sure_words(max(sure, 1 - sure))} sure"


def _pictures(report: RunReport) -> Iterator[Section]:
    if report.seen.trace.steps:
        yield LargeChart(power_chart(report))
    for chart in (close_chart(report), plane_chart(report)):
        if chart is not None:
            yield LargeChart(chart)


def _setting_tables(report: RunReport) -> Iterator[Table]:
    """Make a table of settings for each phase of the program."""
    found = phase_summaries(report.windows)
    for place, phase in enumerate(found):
        title = "Settings that were measured"
        if len(found) > 1:
            title = f"{title}, phase {place + 1} of {len(found)}"
        head = tuple(SETTING_HEAD.format(unit=report.seen.unit).split(","))
        rows = tuple(_cells(report, phase, point) for point in phase.points)
        strong = frozenset(row for row, point in enumerate(phase.points) if Purpose.HOLD in point.purposes)
        yield Table(title, head, rows, words=3, strong=strong)


def _cells(report: RunReport, phase: PhaseSummary, point: SettingSummary) -> tuple[str, ...]:
    purposes = ["counters" if one is Purpose.REFERENCE else one.value for one in Purpose if one in point.purposes]
    return (
        point.label,
        ", ".join(purposes),
        judged_words(report, phase, point),
        duration(point.seconds),
        *measured_cells(phase, point),
    )


def _slowdown_limit(report: RunReport) -> tuple[str, ...]:
    lines = [
        compared_words(report),
        slowdown_words(report) or f"the slowdown was not limited; the objective was {report.objective}",
    ]
    slower = report.figures.slowdown
    if slower is not None:
        lines.append(f"on the whole the run took {_time(slower)} than its work takes at the {base_name(report)}")
    lines += [search_words(report), even_words(report)]
    return tuple(_sentence(words) for words in lines if words)


def _time(slower: EstimateWithError) -> str:
    size = EstimateWithError(abs(slower.value), slower.error)
    return f"{estimate_words(size).lstrip('+')} {'longer' if slower.value >= 0 else 'shorter'}"


def _events(report: RunReport) -> Prose:
    """List the events; of very many the latest."""
    shown = tuple(f"After {duration(event.time_s)}: {event.text}" for event in report.progress.events[-MOST_EVENTS:])
    left_out = len(report.progress.events) - len(shown)
    before = (f"{counted(left_out, 'earlier event')} are left out.",) if left_out else ()
    return Prose("What happened", (*before, *shown) or ("Nothing out of the ordinary.",))


def _how(report: RunReport) -> tuple[str, ...]:
    lines = []
    if report.windows:
        lines.append(_course(report))
        lines.append(
            "All that the search took is counted, and so is the time in which clocks settled. Errors (±) are half the "
            "width of a 95 % interval."
        )
    if report.gpus > 1:
        lines.append(
            f"{counted(report.gpus, 'GPU')} were tuned as one: power and energy of a setting are the mean of them."
        )
    period = last_period_words(report)
    if period:
        lines.append(_sentence(period))
    if report.cpu is not None:
        lines.append(_sentence(cpu_words(report)))
    return tuple(lines)


def _course(report: RunReport) -> str:
    """Return what was done in this run, in general."""
    start = (
        f"The program was not changed; {report.policy} chose the settings, by the objective {report.objective}. The "
        f"{base_name(report)} was measured first"
    )
    if all(window.purpose is Purpose.BASELINE for window in report.windows):
        return f"{start}, and no other setting after it."
    held = ", and the best was held" if report.held not in (None, DRIVER_DEFAULT) else ""
    return f"{start}, and everything is compared with it; then other settings were tried{held}."


def _sentence(words: str) -> str:
    """Add a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


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
