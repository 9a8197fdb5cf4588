"""The report page of a sweep: results, charts against the knob, every trial, and how it was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from wattune.core.frontier import History
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Tone, Way
from wattune.render.frontier_view import FrontierRow, FrontierView, allowed_band, frontier_chart, tip, view_settings
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, SmallCharts, Table
from wattune.render.quantity import percent, quantity, unit_for, with_error


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """A sweep and how it was measured."""

    workload: str
    gpu: str
    """The GPU model; the page adds "simulated" where that applies."""
    simulated: bool
    history: History[Setting]
    per: str
    """The unit of a trial's time and energy: an iteration, or a run."""
    slowdown: float
    """The slowdown limit that the page highlights, 0.05 for 5 %."""
    how: tuple[str, ...]
    """Paragraphs on how it was measured."""
    made: str
    """When and by which version."""


def sweep_page(report: SweepReport) -> Page:
    """Build the page of a sweep."""
    view = view_settings(report.history, slowdown=report.slowdown)
    chart = frontier_chart(view, title="Time-energy frontier", subtitle=_subtitle(report), per=report.per)
    if view.reference_name == "driver default":
        chart = replace(chart, bands=(allowed_band(view, slowdown=report.slowdown),))
    sections: list[Section] = [Figures(_figures(view, report)), LargeChart(chart)]
    knob = _knob(report.history)
    if knob is not None:
        sections.append(SmallCharts(knob_charts(view, knob=knob, per=report.per)))
    sections += [trial_table(view, per=report.per), Prose("How it was measured", report.how)]
    return Page(
        title=f"{report.workload} on {report.gpu}",
        lead=_lead(view, report),
        simulated=report.simulated,
        sections=tuple(sections),
        foot=report.made,
    )


@dataclass(frozen=True, slots=True)
class KnobAxis:
    """The setting that a sweep varied."""

    title: str
    unit: str
    value: Callable[[Setting], float | None]


KNOB_AXES = (
    KnobAxis("core clock", "MHz", lambda setting: setting.sm_mhz),
    KnobAxis("power limit", "W", lambda setting: setting.power_limit_w),
    KnobAxis("memory clock", "MHz", lambda setting: setting.mem_mhz),
)


def knob_charts(view: FrontierView[Setting], *, knob: KnobAxis, per: str) -> tuple[Chart, ...]:
    """Draw energy, time and power against the knob, with the reference as a dashed line."""
    return (
        _against(view, knob, ("Energy", f"energy per {per}", "J"), lambda cost: cost.energy_j, Tone.GREEN),
        _against(view, knob, ("Time", f"time per {per}", "s"), lambda cost: cost.time_s, Tone.BLUE),
        _against(view, knob, ("Power", "mean power", "W"), lambda cost: cost.power_w, Tone.ORANGE),
    )


def trial_table(view: FrontierView[Setting], *, per: str) -> Table:
    """List every trial in the order of measuring, Δ against the reference, the named ones in bold."""
    head = ("setting", "", "time", "energy", "mean power", "Δ time", "Δ energy", "frontier")
    rows = tuple(_cells(row) for row in view.rows)
    strong = frozenset(index for index, row in enumerate(view.rows) if row.names)
    return Table(f"Every trial, per {per}", head, rows, words=2, strong=strong)


def _cells(row: FrontierRow[Setting]) -> tuple[str, ...]:
    cost = row.trial.cost
    saving = row.saving_percent
    return (
        str(row.trial.choice),
        "" if row.title == str(row.trial.choice) else row.title,
        with_error(cost.time_s, cost.time_error_s, "s"),
        with_error(cost.energy_j, cost.energy_error_j, "J"),
        quantity(cost.power_w, "W"),
        percent(row.slowdown_percent),
        percent(None if saving is None else -saving),
        "yes" if row.on_frontier else "no",
    )


def _figures(view: FrontierView[Setting], report: SweepReport) -> tuple[Figure, ...]:
    reference = view.reference.cost
    within = _named(view, "within")
    cheapest = _named(view, "cheapest")
    base = Figure(
        quantity(reference.energy_j, "J"),
        f"per {report.per} at the {view.reference_name}",
        f"{quantity(reference.time_s, 's')} at {quantity(reference.power_w, 'W')}",
    )
    picks = [_saving(row, label) for row, label in ((within, _within(report)), (cheapest, "at the cheapest")) if row]
    return (base, *picks, Figure(f"{sum(row.on_frontier for row in view.rows)} of {len(view.rows)}", *_COUNTED))


_COUNTED = ("trials on the frontier", "no other is both faster and cheaper")


def _saving(row: FrontierRow[Setting], label: str) -> Figure:
    saving = None if row.saving_percent is None else -row.saving_percent
    return Figure(percent(saving), f"energy {label}", f"{percent(row.slowdown_percent)} time, {row.trial.choice}")


def _within(report: SweepReport) -> str:
    return f"within {100 * report.slowdown:g} % more time"


def _named(view: FrontierView[Setting], name: str) -> FrontierRow[Setting] | None:
    return next((row for row in view.picks if any(own.startswith(name) for own in row.names)), None)


def _lead(view: FrontierView[Setting], report: SweepReport) -> str:
    within = _named(view, "within")
    if within is None or not within.saving_percent or within.saving_percent < 0.05:
        return f"No setting saved energy {_within(report)} than the {view.reference_name}."
    article = "an" if report.per[0] in "aeiou" else "a"
    return (
        f"Set to {within.trial.choice}, {article} {report.per} takes {within.saving_percent:.1f} % less energy and "
        f"{_more_time(within.slowdown_percent)} than at the {view.reference_name}."
    )


def _more_time(slowdown: float | None) -> str:
    if slowdown is None or abs(slowdown) < 0.05:
        return "the same time"
    return f"{abs(slowdown):.1f} % {'more' if slowdown > 0 else 'less'} time"


def _subtitle(report: SweepReport) -> str:
    return f"{'simulated; ' if report.simulated else ''}left is faster, down is cheaper"


def _knob(history: History[Setting]) -> KnobAxis | None:
    """Return the knob that the sweep varied; None where it varied several or none."""
    turned = [axis for axis in KNOB_AXES if len({axis.value(trial.choice) for trial in history} - {None}) > 1]
    return turned[0] if len(turned) == 1 else None


def _against(
    view: FrontierView[Setting],
    knob: KnobAxis,
    names: tuple[str, str, str],
    value: Callable[[Measurement], float],
    tone: Tone,
) -> Chart:
    """Draw one quantity against the knob; `names` are the chart's title, the quantity and its unit."""
    title, what, base = names
    unit = unit_for((value(row.trial.cost) for row in view.rows), base)
    rows = sorted(_at_knob(view, knob), key=lambda pair: pair[0])
    points = tuple(Point(at, value(row.trial.cost) * unit.factor, tip(row)) for at, row in rows)
    reference = value(view.reference.cost) * unit.factor
    return Chart(
        title=f"{title} against {knob.title}",
        x=Axis(title=knob.title, unit=knob.unit),
        y=Axis(title=what, unit=unit.symbol, low=0.0),
        series=(Series(name=what, points=points, mark=Mark.LINE_AND_POINTS, tone=tone),),
        rules=(ReferenceLine(reference, view.reference_name, Way.ACROSS),),
    )


def _at_knob(view: FrontierView[Setting], knob: KnobAxis) -> list[tuple[float, FrontierRow[Setting]]]:
    placed = ((knob.value(row.trial.choice), row) for row in view.rows)
    return [(at, row) for at, row in placed if at is not None]
