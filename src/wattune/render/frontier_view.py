"""A history as people want to see it: what each trial saves against the reference, and the few that are worth a name.

Notation: (T0, E0) time and energy of the reference, as a rule the driver's default; a trial's slowdown is T/T0 − 1 and
its saving 1 − E/E0, both in percent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from wattune.core.errors import Infeasible
from wattune.core.frontier import C, Frontier, History, Trial
from wattune.core.measurement import Measurement
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.render.chart import Axis, Band, Chart, Mark, Note, Point, Series, Tone
from wattune.render.quantity import Unit, percent, quantity, unit_for

_LEAST = 0.02
"""Share of its middle that an axis is wide at least: trials that differ by less are alike."""


@dataclass(frozen=True, slots=True)
class FrontierRow(Generic[C]):
    """A trial, what it saves and costs against the reference, and the names it has earned."""

    trial: Trial[C]
    saving_percent: float | None
    slowdown_percent: float | None
    on_frontier: bool
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """The names in one line; empty where it has none."""
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class FrontierView(Generic[C]):
    """All trials as rows in the order in which they were made, and the named ones, fastest first."""

    reference: Trial[C]
    reference_name: str
    rows: tuple[FrontierRow[C], ...]
    picks: tuple[FrontierRow[C], ...]

    @property
    def frontier(self) -> tuple[FrontierRow[C], ...]:
        """The rows that no other dominates, fastest first."""
        return tuple(sorted((row for row in self.rows if row.on_frontier), key=_time_s))


def view_settings(history: History[Setting], *, slowdown: float) -> FrontierView[Setting]:
    """The view of a sweep over settings, compared with the driver's default where that was tried, else the fastest."""
    default = next((trial for trial in history if trial.choice == DRIVER_DEFAULT), None)
    if default is not None:
        return view_frontier(history, reference=default, reference_name="driver default", slowdown=slowdown)
    return view_frontier(history, reference=Frontier.of(history).fastest, reference_name="fastest", slowdown=slowdown)


def view_frontier(
    history: Iterable[Trial[C]], *, reference: Trial[C], reference_name: str, slowdown: float
) -> FrontierView[C]:
    """The view of any history; `slowdown` (0.05 = 5 %) is the one that earns the name "within 5 %"."""
    trials = tuple(history)
    frontier = Frontier.of(trials)
    named = [(reference_name, reference), *_worth_a_name(frontier, reference.cost, slowdown)]
    kept = {id(trial) for trial in frontier}
    rows = tuple(
        FrontierRow(
            trial=trial,
            saving_percent=saving_percent(trial.cost, reference.cost),
            slowdown_percent=slowdown_percent(trial.cost, reference.cost),
            on_frontier=id(trial) in kept,
            names=tuple(name for name, owner in named if owner is trial),
        )
        for trial in trials
    )
    picks = tuple(sorted((row for row in rows if row.names), key=_time_s))
    return FrontierView(reference, reference_name, rows, picks)


def saving_percent(cost: Measurement, reference: Measurement) -> float | None:
    """How much less energy than the reference, in percent; None where the reference has none."""
    return 100 * (1 - cost.energy_j / reference.energy_j) if reference.energy_j > 0 else None


def slowdown_percent(cost: Measurement, reference: Measurement) -> float | None:
    """How much more time than the reference, in percent; None where the reference has none."""
    return 100 * (cost.time_s / reference.time_s - 1) if reference.time_s > 0 else None


def _worth_a_name(frontier: Frontier[C], reference: Measurement, slowdown: float) -> list[tuple[str, Trial[C]]]:
    named = [("knee", frontier.knee), ("cheapest", frontier.cheapest)]
    try:
        within = LeastEnergy(slowdown).choose(frontier, reference=reference)
    except Infeasible:
        return named
    return [(f"within {100 * slowdown:g} %", within), *named]


def _time_s(row: FrontierRow[C]) -> float:
    return row.trial.cost.time_s


def worth_showing(view: FrontierView[C]) -> tuple[FrontierRow[C], ...]:
    """The rows that a picture shows: all but those so slow that the frontier would shrink to a corner.

    What is kept reaches past the frontier by as much as the frontier is wide.
    """
    times_s = [_time_s(row) for row in (*view.frontier, *view.picks)]
    end_s = max(times_s) + max(max(times_s) - min(times_s), 0.1 * max(times_s))
    return tuple(row for row in view.rows if _time_s(row) <= end_s)


def frontier_chart(view: FrontierView[C], *, title: str, subtitle: str | None = None, per: str = "iteration") -> Chart:
    """Energy against time: the trials worth showing, the frontier, and a note at each named trial."""
    rows = worth_showing(view)
    seconds, joules = units(rows)
    others = tuple(_point(row, seconds, joules) for row in rows if not row.on_frontier)
    kept = tuple(_point(row, seconds, joules) for row in view.frontier)
    series = [Series(name="frontier", points=kept, mark=Mark.LINE_AND_POINTS, tone=Tone.BLUE)]
    left_out = len(view.rows) - len(rows)
    if others or left_out:
        name = "beaten in both" + (f"; {left_out} far slower not shown" if left_out else "")
        series.append(Series(name=name, points=others, mark=Mark.POINTS, tone=Tone.GREY))
    return Chart(
        title=title,
        subtitle=subtitle,
        x=Axis(title=f"time per {per}", unit=seconds.symbol, least=_LEAST),
        y=Axis(title=f"energy per {per}", unit=joules.symbol, low=_low_j(rows) * joules.factor, least=_LEAST),
        series=tuple(series),
        notes=tuple(_note(row, seconds, joules) for row in view.picks),
    )


def units(rows: Iterable[FrontierRow[C]]) -> tuple[Unit, Unit]:
    """The units in which the times and energies of these rows are best shown."""
    costs = [row.trial.cost for row in rows]
    return unit_for((cost.time_s for cost in costs), "s"), unit_for((cost.energy_j for cost in costs), "J")


def _low_j(rows: Iterable[FrontierRow[C]]) -> float:
    """Where the energy axis starts: low enough for words under the cheapest point, where the chart is emptiest."""
    energies_j = [row.trial.cost.energy_j for row in rows]
    low_j, high_j = min(energies_j), max(energies_j)
    return max(low_j - 0.25 * max(high_j - low_j, _LEAST * low_j), 0.0)


def allowed_band(view: FrontierView[C], *, slowdown: float) -> Band:
    """The stretch of the time axis that the slowdown allows, from the reference on."""
    seconds, _ = units(worth_showing(view))
    start_s = view.reference.cost.time_s
    text = f"up to {100 * slowdown:g} % slower"
    return Band(start_s * seconds.factor, start_s * (1 + slowdown) * seconds.factor, text, Tone.GREEN)


def tip(row: FrontierRow[C]) -> str:
    """What a tooltip says of a trial."""
    cost = row.trial.cost
    lines = [str(row.trial.choice), f"{quantity(cost.time_s, 's')}, {quantity(cost.energy_j, 'J')}"]
    lines.append(f"{quantity(cost.power_w, 'W')} mean power")
    lines.append(f"{percent(row.saving_percent)} energy saved, {percent(row.slowdown_percent)} time")
    return "\n".join(([row.title] if row.names else []) + lines)


def _point(row: FrontierRow[C], seconds: Unit, joules: Unit) -> Point:
    cost = row.trial.cost
    return Point(cost.time_s * seconds.factor, cost.energy_j * joules.factor, tip(row))


def _note(row: FrontierRow[C], seconds: Unit, joules: Unit) -> Note:
    cost, choice = row.trial.cost, str(row.trial.choice)
    text = row.title if choice in row.names else f"{row.title}: {choice}"
    detail = None
    if row.saving_percent:
        detail = f"{percent(-row.saving_percent)} energy, {percent(row.slowdown_percent)} time"
    return Note(cost.time_s * seconds.factor, cost.energy_j * joules.factor, text, detail)
