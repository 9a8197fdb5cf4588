"""A history of trials for people: how each differs from the reference, the few that get a name, a report page.

Notation: (T0, E0) time and energy of the reference, as a rule the driver's default; a trial's slowdown is T/T0 − 1 and
its saving 1 − E/E0, both in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic

from wattune.core.frontier import C, Frontier, History, Trial
from wattune.core.measurement import (
    Measurement,
    energy_error_percent,
    saving_percent,
    slowdown_percent,
    time_error_percent,
)
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.trust import Trust
from wattune.render.chart import Axis, Band, Chart, Mark, Note, Point, ReferenceLine, Series, Tone, default_series
from wattune.render.page import Figure, Figures, LargeChart, Page, Prose, Section, SmallCharts, Table
from wattune.render.quantity import Unit, percent, quantity, unit_for, with_error
from wattune.sweeps.repeats import certainty, is_within

_LEAST = 0.02
"""The least width of an axis as a share of its middle: smaller differences do not matter."""


@dataclass(frozen=True, slots=True)
class FrontierRow(Generic[C]):
    """A trial, how it differs from the reference, and its names."""

    trial: Trial[C]
    saving_percent: float | None
    slowdown_percent: float | None
    on_frontier: bool
    names: tuple[str, ...]
    saving_error_percent: float | None = None
    """The 95 % half-width of the saving, None where that is unknown; so of the slowdown."""
    slowdown_error_percent: float | None = None

    @property
    def title(self) -> str:
        return ", ".join(self.names)

    @property
    def change_percent(self) -> float | None:
        """The change of energy against the reference: negative where it is saved."""
        return None if self.saving_percent is None else -self.saving_percent

    @property
    def time_change(self) -> str:
        """The change of time in words, with its error where that is known; so of the energy."""
        return percent(self.slowdown_percent, error=self.slowdown_error_percent)

    @property
    def energy_change(self) -> str:
        return percent(self.change_percent, error=self.saving_error_percent)


@dataclass(frozen=True, slots=True)
class FrontierView(Generic[C]):
    """All trials in the order of measuring, and the named ones, fastest first."""

    reference: Trial[C]
    reference_name: str
    rows: tuple[FrontierRow[C], ...]
    picks: tuple[FrontierRow[C], ...]
    doubt: str | None = None
    """Why the times cannot be trusted, so that only the reference has a name."""
    is_sure: bool = True
    """Whether the errors of times show how far they scatter from run to run."""

    @property
    def frontier(self) -> tuple[FrontierRow[C], ...]:
        """The rows that no other dominates, fastest first."""
        return tuple(sorted((row for row in self.rows if row.on_frontier), key=_time_s))


def view_settings(history: History[Setting], *, slowdown: float, doubt: str | None = None) -> FrontierView[Setting]:
    """View a sweep over settings, relative to the driver's default where that was tried, else to the fastest.

    `doubt` is why its times cannot be trusted: then no setting is named as the best in any way.
    """
    default = next((trial for trial in history if trial.choice == DRIVER_DEFAULT), None)
    if doubt is not None and default is not None:
        view = view_frontier(history, reference=default, reference_name="driver default", slowdown=slowdown)
        rows = tuple(replace(row, names=row.names[: row.trial is default]) for row in view.rows)
        return replace(view, rows=rows, picks=tuple(row for row in rows if row.names), doubt=doubt)
    if default is not None:
        return view_frontier(history, reference=default, reference_name="driver default", slowdown=slowdown)
    return view_frontier(history, reference=Frontier.of(history).fastest, reference_name="fastest", slowdown=slowdown)


def view_frontier(
    history: Iterable[Trial[C]], *, reference: Trial[C], reference_name: str, slowdown: float
) -> FrontierView[C]:
    """View any history; `slowdown` 0.05 names the least energy at most 5 % slower "within 5 %"."""
    trials = tuple(history)
    frontier = Frontier.of(trials)
    named = [(reference_name, reference), *_named(trials, frontier, reference.cost, slowdown)]
    kept = {id(trial) for trial in frontier}
    rows = tuple(
        FrontierRow(
            trial=trial,
            saving_percent=saving_percent(trial.cost, reference.cost),
            slowdown_percent=slowdown_percent(trial.cost, reference.cost),
            on_frontier=id(trial) in kept,
            names=tuple(name for name, owner in named if owner is trial),
            saving_error_percent=energy_error_percent(trial.cost, reference.cost),
            slowdown_error_percent=time_error_percent(trial.cost, reference.cost),
        )
        for trial in trials
    )
    picks = tuple(sorted((row for row in rows if row.names), key=_time_s))
    return FrontierView(reference, reference_name, rows, picks)


def _named(
    trials: tuple[Trial[C], ...], frontier: Frontier[C], reference: Measurement, slowdown: float
) -> list[tuple[str, Trial[C]]]:
    named = [("knee", frontier.knee), ("cheapest", frontier.cheapest)]
    within = [trial for trial in trials if is_within(trial.cost, reference, slowdown=slowdown)]
    if not within:
        return named
    return [(f"within {100 * slowdown:g} %", min(within, key=lambda trial: trial.cost.energy_j)), *named]


def _time_s(row: FrontierRow[C]) -> float:
    return row.trial.cost.time_s


def chart_rows(view: FrontierView[C]) -> tuple[FrontierRow[C], ...]:
    """Return the rows for a chart, without those so slow that the frontier would shrink to a corner.

    The remaining rows reach past the frontier by its own width.
    """
    times_s = [_time_s(row) for row in (*view.frontier, *view.picks)]
    end_s = max(times_s) + max(max(times_s) - min(times_s), 0.1 * max(times_s))
    return tuple(row for row in view.rows if _time_s(row) <= end_s)


def frontier_chart(view: FrontierView[C], *, title: str, subtitle: str | None = None, per: str = "iteration") -> Chart:
    """Draw energy against time: the trials, the frontier, and a note at each named trial."""
    rows = chart_rows(view)
    seconds, joules = units(rows)
    reference = next(row for row in view.rows if row.trial is view.reference)
    others = tuple(_point(row, seconds, joules) for row in rows if not row.on_frontier and row is not reference)
    kept = tuple(_point(row, seconds, joules) for row in view.frontier)
    series = [Series(name="frontier", points=kept, mark=Mark.LINE_AND_POINTS, tone=Tone.BLUE)]
    left_out = len(view.rows) - len(rows)
    if others or left_out:
        name = "beaten in both" + (f"; {left_out} far slower not shown" if left_out else "")
        series.append(Series(name=name, points=others, mark=Mark.POINTS, tone=Tone.GREY))
    series.append(default_series(view.reference_name, _point(reference, seconds, joules)))
    return Chart(
        title=title,
        subtitle=subtitle,
        x=Axis(title=f"time per {per}", unit=seconds.symbol, least=_LEAST),
        y=Axis(title=f"energy per {per}", unit=joules.symbol, low=_low_j(rows) * joules.factor, least=_LEAST),
        series=tuple(series),
        notes=tuple(_note(row, seconds, joules) for row in view.picks),
    )


def units(rows: Iterable[FrontierRow[C]]) -> tuple[Unit, Unit]:
    """Return the units for the times and energies of these rows."""
    costs = [row.trial.cost for row in rows]
    return unit_for((cost.time_s for cost in costs), "s"), unit_for((cost.energy_j for cost in costs), "J")


def _low_j(rows: Iterable[FrontierRow[C]]) -> float:
    """Return the start of the energy axis, low enough for text under the cheapest point."""
    energies_j = [row.trial.cost.energy_j for row in rows]
    low_j, high_j = min(energies_j), max(energies_j)
    return max(low_j - 0.25 * max(high_j - low_j, _LEAST * low_j), 0.0)


def allowed_band(view: FrontierView[C], *, slowdown: float) -> Band:
    """Return the interval of the time axis within the slowdown limit."""
    seconds, _ = units(chart_rows(view))
    start_s = view.reference.cost.time_s
    text = f"up to {100 * slowdown:g} % slower"
    return Band(start_s * seconds.factor, start_s * (1 + slowdown) * seconds.factor, text, Tone.GREEN)


def tip(row: FrontierRow[C]) -> str:
    """Return the tooltip of a trial."""
    cost = row.trial.cost
    lines = [str(row.trial.choice), f"{quantity(cost.time_s, 's')}, {quantity(cost.energy_j, 'J')}"]
    lines.append(f"{quantity(cost.power_w, 'W')} mean power")
    lines.append(_changes(row))
    return "\n".join(([row.title] if row.names else []) + lines)


def _point(row: FrontierRow[C], seconds: Unit, joules: Unit) -> Point:
    cost = row.trial.cost
    return Point(cost.time_s * seconds.factor, cost.energy_j * joules.factor, tip(row))


def _note(row: FrontierRow[C], seconds: Unit, joules: Unit) -> Note:
    cost, choice = row.trial.cost, str(row.trial.choice)
    text = row.title if choice in row.names else f"{row.title}: {choice}"
    detail = None
    if row.saving_percent:
        detail = _changes(row)
    return Note(cost.time_s * seconds.factor, cost.energy_j * joules.factor, text, detail)


def sweep_page(
    view: FrontierView[Setting],
    *,
    title: str,
    simulated: bool,
    per: str,
    slowdown: float,
    how: tuple[str, ...],
    made: str,
    saved: str | None = None,
    trust: Trust | None = None,
) -> Page:
    """Build the page of a sweep: results, charts against the knob, every trial, and how it was measured.

    `per` is what a trial's cost belongs to, an iteration or a run; `slowdown` the limit that the page highlights, 0.05
    for 5 %; `how` are paragraphs, and `made` is when and by which version; `saved` is what
    the recommended setting saves per 1,000 GPU-hours.
    """
    within = _within(slowdown)
    chart = sweep_chart(view, title="Time-energy frontier", simulated=simulated, per=per, slowdown=slowdown)
    sections: list[Section] = [Figures(_figures(view, per, within, saved)), LargeChart(chart)]
    turned = [knob for knob in _KNOBS if len({getattr(row.trial.choice, knob[2]) for row in view.rows} - {None}) > 1]
    if len(turned) == 1:
        sections.append(SmallCharts(_knob_charts(view, *turned[0], per=per)))
    sections += [_trial_table(view, per=per), Prose("How it was measured", how)]
    lead = recommendation(view, per=per, slowdown=slowdown)
    return Page(title=title, lead=lead, simulated=simulated, sections=tuple(sections), foot=made, trust=trust)


def sweep_chart(view: FrontierView[Setting], *, title: str, simulated: bool, per: str, slowdown: float) -> Chart:
    """Draw the frontier of a sweep, with the time that the slowdown limit allows as a band."""
    subtitle = f"{'simulated; ' if simulated else ''}left is faster, down is cheaper"
    chart = frontier_chart(view, title=title, subtitle=subtitle, per=per)
    if view.reference_name != "driver default":
        return chart
    return replace(chart, bands=(allowed_band(view, slowdown=slowdown),))


_KNOBS = (("core clock", "MHz", "sm_mhz"), ("power limit", "W", "power_limit_w"), ("memory clock", "MHz", "mem_mhz"))


def _knob_charts(view: FrontierView[Setting], knob: str, unit: str, name: str, *, per: str) -> tuple[Chart, ...]:
    """Draw energy, time and power against the knob, with the reference as a dashed line."""
    placed = [(getattr(row.trial.choice, name), row) for row in view.rows]
    rows = sorted(((at, row) for at, row in placed if at is not None), key=lambda pair: pair[0])

    def against(title: str, what: str, base: str, tone: Tone, value: Callable[[Measurement], float]) -> Chart:
        fitting = unit_for((value(row.trial.cost) for row in view.rows), base)
        points = tuple(Point(at, value(row.trial.cost) * fitting.factor, tip(row)) for at, row in rows)
        return Chart(
            title=f"{title} against {knob}",
            x=Axis(title=knob, unit=unit),
            y=Axis(title=what, unit=fitting.symbol, low=0.0),
            series=(Series(name=what, points=points, mark=Mark.LINE_AND_POINTS, tone=tone),),
            rules=(ReferenceLine(value(view.reference.cost) * fitting.factor, view.reference_name),),
        )

    return (
        against("Energy", f"energy per {per}", "J", Tone.GREEN, lambda cost: cost.energy_j),
        against("Time", f"time per {per}", "s", Tone.BLUE, lambda cost: cost.time_s),
        against("Power", "mean power", "W", Tone.ORANGE, lambda cost: cost.power_w),
    )


def _trial_table(view: FrontierView[Setting], *, per: str) -> Table:
    """List every trial in the order of measuring, Δ against the reference, the named ones in bold."""
    head = ("setting", "", "time", "energy", "mean power", "Δ time", "Δ energy", "frontier")
    strong = frozenset(index for index, row in enumerate(view.rows) if row.names)
    return Table(f"Every trial, per {per}", head, tuple(map(_cells, view.rows)), words=2, strong=strong)


def _cells(row: FrontierRow[Setting]) -> tuple[str, ...]:
    cost, setting = row.trial.cost, str(row.trial.choice)
    return (
        setting,
        "" if row.title == setting else row.title,
        with_error(cost.time_s, cost.time_error_s, "s"),
        with_error(cost.energy_j, cost.energy_error_j, "J"),
        quantity(cost.power_w, "W"),
        row.time_change,
        row.energy_change,
        "yes" if row.on_frontier else "no",
    )


def _figures(view: FrontierView[Setting], per: str, within: str, saved: str | None) -> tuple[Figure, ...]:
    """Return the savings first, then what they are compared with."""
    reference = view.reference.cost
    base = Figure(
        quantity(reference.energy_j, "J"),
        f"per {per} at the {view.reference_name}",
        f"{quantity(reference.time_s, 's')} at {quantity(reference.power_w, 'W')}",
    )
    named = ((_pick(view, "within"), within), (_pick(view, "cheapest"), "at the cheapest"))
    picks = [
        Figure(row.energy_change, f"energy {label}", f"time {row.time_change}, {row.trial.choice}")
        for row, label in named
        if row
    ]
    count = f"{sum(row.on_frontier for row in view.rows)} of {len(view.rows)}"
    long_run = [] if saved is None else [Figure(saved, "saved per 1,000 GPU-hours", f"computed, {within}")]
    return (
        *picks,
        *long_run,
        base,
        Figure(count, "trials on the frontier", "no other is both faster and cheaper"),
    )


def _pick(view: FrontierView[Setting], name: str) -> FrontierRow[Setting] | None:
    return next((row for row in view.picks if any(own.startswith(name) for own in row.names)), None)


def recommended(view: FrontierView[Setting]) -> FrontierRow[Setting] | None:
    """Return the setting that saves most within the slowdown limit; None where none saves, or times are in doubt."""
    pick = None if view.doubt is not None else _pick(view, "within")
    if pick is None or pick.trial.choice == DRIVER_DEFAULT or not pick.saving_percent or pick.saving_percent < 0.05:
        return None
    return pick


def recommendation(view: FrontierView[Setting], *, per: str, slowdown: float) -> str:
    """Return what to set, what that changes and, where the scatter of times is known, how sure that is."""
    if view.doubt is not None:
        return f"No setting can be recommended, since the command does not follow the clock of the GPU: {view.doubt}."
    pick, within = recommended(view), _within(slowdown)
    if pick is None:
        surely = " surely" if view.reference.cost.time_error_s is not None else ""
        return f"No setting{surely} saved energy {within} than the {view.reference_name}."
    return (
        f"Set to {pick.trial.choice}: {_changes(pick)} per {per} against the {view.reference_name}"
        f"{_how_sure(view, pick, slowdown)}."
    )


def _changes(row: FrontierRow[C]) -> str:
    return f"time {row.time_change}, energy {row.energy_change}"


def certain_percent(view: FrontierView[Setting], row: FrontierRow[Setting], *, slowdown: float) -> float | None:
    """Return how sure it is that a row is within the slowdown limit; None where the scatter of times is not known."""
    if not view.is_sure:
        return None
    share = certainty(row.trial.cost, view.reference.cost, slowdown=slowdown)
    return None if share is None else 100 * share


def _how_sure(view: FrontierView[Setting], pick: FrontierRow[Setting], slowdown: float) -> str:
    sure = certain_percent(view, pick, slowdown=slowdown)
    if sure is None:
        return ""
    words = "more than 99" if sure > 99 else f"{sure:.0f}"
    return f"; it is {_within(slowdown)} with {words} % confidence"


def _within(slowdown: float) -> str:
    return f"within {100 * slowdown:g} % more time"
