"""The page of a pipeline's frontier: what it saves, the chosen plan beside the default, and every plan."""

from __future__ import annotations

from dataclasses import dataclass

from wattune.core.measurement import Measurement
from wattune.levels.kernel.view.timeline import STYLE, Timelines, draw_timelines
from wattune.render.chart import Axis, Chart, Mark, Note, Point, Series, Tone
from wattune.render.page import Drawing, Figure, Figures, LargeChart, Page, Prose, Table
from wattune.render.quantity import Unit, percent, quantity, unit_for


@dataclass(frozen=True, slots=True)
class PlanPoint:
    """A plan of a frontier: what it takes and spends, and what no plan of its time can beat."""

    cost: Measurement
    bound_j: float

    @property
    def gap_percent(self) -> float:
        """How far above its bound."""
        return 100 * (self.cost.energy_j / self.bound_j - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """A frontier and what a reader must know to judge it."""

    pipeline: str
    profile: str
    simulated: bool
    default: Measurement
    plans: tuple[PlanPoint, ...]
    """Fastest first."""
    chosen: int
    timelines: Timelines
    blocking_power_w: float
    made: str


def pipeline_page(report: PipelineReport) -> Page:
    """The page of a frontier."""
    plan = report.plans[report.chosen]
    saved, slower = _against(plan.cost, report.default)
    return Page(
        title=f"Pipeline plan: {report.pipeline}",
        lead=(
            f"The chosen plan takes {plan.cost.time_s:.4g} s and {quantity(plan.cost.energy_j, 'J')} per iteration: "
            f"{percent(saved)} energy and {percent(slower)} time against every instruction at the highest setting of "
            f"{report.profile}."
        ),
        simulated=report.simulated,
        sections=(
            Figures(_figures(report)),
            Drawing(draw_timelines(report.timelines), STYLE),
            LargeChart(plans_chart(report)),
            _table(report),
            Prose("Where the numbers come from", _how(report)),
        ),
        foot=report.made,
    )


def plans_chart(report: PipelineReport) -> Chart:
    """Energy against time: the plans, their bounds, and the default."""
    seconds = unit_for((report.default.time_s,), "s")
    joules = unit_for((report.default.energy_j,), "J")
    plan, default = report.plans[report.chosen].cost, report.default
    return Chart(
        title="Time-energy frontier of one iteration",
        subtitle=f"{'simulated; ' if report.simulated else ''}left is faster, down is cheaper",
        x=Axis(title="time per iteration", unit=seconds.symbol),
        y=Axis(title="energy per iteration", unit=joules.symbol),
        series=(
            Series(
                name="plans",
                points=tuple(_point(point.cost, seconds, joules) for point in report.plans),
                mark=Mark.LINE_AND_POINTS,
                tone=Tone.BLUE,
            ),
            Series(
                name="no plan can lie below",
                points=tuple(
                    Point(point.cost.time_s * seconds.factor, point.bound_j * joules.factor) for point in report.plans
                ),
                tone=Tone.GREY,
                dashed=True,
            ),
            Series(
                name="default settings",
                points=(_point(default, seconds, joules),),
                mark=Mark.POINTS,
                tone=Tone.ORANGE,
            ),
        ),
        notes=(
            Note(default.time_s * seconds.factor, default.energy_j * joules.factor, "default"),
            Note(plan.time_s * seconds.factor, plan.energy_j * joules.factor, "chosen plan", _words(plan, default)),
        ),
    )


def _figures(report: PipelineReport) -> tuple[Figure, ...]:
    plan, cheapest = report.plans[report.chosen], report.plans[-1]
    gaps = [point.gap_percent for point in report.plans]
    return (
        Figure(
            quantity(report.default.energy_j, "J"),
            "per iteration at default settings",
            f"{report.default.time_s:.4g} s",
        ),
        Figure(percent(_against(plan.cost, report.default)[0]), "energy with the chosen plan", _time(plan, report)),
        Figure(percent(_against(cheapest.cost, report.default)[0]), "energy at the least", _time(cheapest, report)),
        Figure(f"{sum(gaps) / len(gaps):.2f} %", "above the bound, on average", f"{max(gaps):.2f} % at worst"),
    )


def _time(point: PlanPoint, report: PipelineReport) -> str:
    return f"{percent(_against(point.cost, report.default)[1])} time"


def _table(report: PipelineReport) -> Table:
    rows = []
    for number, point in enumerate(report.plans):
        energy, time = _against(point.cost, report.default)
        name = "chosen" if number == report.chosen else ""
        cells = (f"{point.cost.time_s:.4f} s", f"{point.cost.energy_j:.1f} J", f"{point.bound_j:.1f} J")
        rows.append((str(number), name, *cells, f"{point.gap_percent:.2f} %", percent(time), percent(energy)))
    head = ("plan", "", "time", "energy", "bound", "above bound", "Δ time", "Δ energy")
    return Table("Every plan", head, tuple(rows), words=2, strong=frozenset({report.chosen}))


def _how(report: PipelineReport) -> tuple[str, ...]:
    return (
        f"Time and energy of each instruction at each setting come from {report.profile}; an instruction starts as "
        f"soon as the schedule lets it, and a rank that waits draws {report.blocking_power_w:g} W.",
        "The bound is the optimum of the relaxed problem, in which an instruction may last anywhere between two of its "
        "options: no plan that takes as long spends less, so the distance to it is the most that a better planner "
        "could gain.",
        "Δ is against every instruction at the highest setting of the profile.",
    )


def _against(cost: Measurement, default: Measurement) -> tuple[float, float]:
    """Energy and time against the default, in percent."""
    return 100 * (cost.energy_j / default.energy_j - 1), 100 * (cost.time_s / default.time_s - 1)


def _words(cost: Measurement, default: Measurement) -> str:
    energy, time = _against(cost, default)
    return f"{percent(energy)} energy, {percent(time)} time"


def _point(cost: Measurement, seconds: Unit, joules: Unit) -> Point:
    tip = f"{cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}"
    return Point(cost.time_s * seconds.factor, cost.energy_j * joules.factor, tip)
