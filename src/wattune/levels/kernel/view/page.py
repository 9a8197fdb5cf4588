"""The page of a pipeline's frontier: its savings, the chosen plan beside the default, and every plan."""

from __future__ import annotations

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan
from wattune.levels.kernel.planned import PlannedPipeline, energy_percent, gap_percent, time_percent
from wattune.levels.kernel.view.timeline import STYLE, draw_timelines, timelines
from wattune.render.chart import Axis, Chart, Mark, Note, Point, Series, Tone
from wattune.render.page import Drawing, Figure, Figures, LargeChart, Page, Prose, Table
from wattune.render.quantity import percent, quantity, unit_for


def pipeline_page(planned: PlannedPipeline, *, made: str) -> Page:
    """Make the page of a frontier; `made` is its last line."""
    cost = planned.plan.cost
    return Page(
        title=f"Pipeline plan: {planned.shape}",
        lead=(
            f"The chosen plan takes {cost.time_s:.4g} s and {quantity(cost.energy_j, 'J')} per iteration: "
            f"{_changes(planned.plan, planned)} against every instruction at the highest setting of "
            f"{planned.source.file}."
        ),
        simulated=planned.source.simulated,
        sections=(
            Figures(_figures(planned)),
            Drawing(draw_timelines(timelines(planned)), STYLE),
            LargeChart(plans_chart(planned)),
            _table(planned),
            Prose("Where the numbers come from", _origins(planned)),
        ),
        foot=made,
    )


def plans_chart(planned: PlannedPipeline) -> Chart:
    """Plot energy against time: the plans, their bounds, and the default."""
    default, plan = planned.default.cost, planned.plan.cost
    seconds, joules = unit_for((default.time_s,), "s"), unit_for((default.energy_j,), "J")

    def place(time_s: float, energy_j: float) -> tuple[float, float]:
        return time_s * seconds.factor, energy_j * joules.factor

    def measured(cost: Measurement) -> Point:
        return Point(*place(cost.time_s, cost.energy_j), f"{cost.time_s:.4g} s, {quantity(cost.energy_j, 'J')}")

    bounds = tuple(Point(*place(trial.cost.time_s, trial.choice.bound_j)) for trial in planned.frontier)
    return Chart(
        title="Time-energy frontier of one iteration",
        subtitle=f"{'simulated; ' if planned.source.simulated else ''}left is faster, down is cheaper",
        x=Axis(title="time per iteration", unit=seconds.symbol),
        y=Axis(title="energy per iteration", unit=joules.symbol),
        series=(
            Series(
                name="plans",
                points=tuple(measured(trial.cost) for trial in planned.frontier),
                mark=Mark.LINE_AND_POINTS,
                tone=Tone.BLUE,
            ),
            Series(name="no plan can lie below", points=bounds, tone=Tone.GREY, dashed=True),
            Series(name="default settings", points=(measured(default),), mark=Mark.POINTS, tone=Tone.ORANGE),
        ),
        notes=(
            Note(*place(default.time_s, default.energy_j), "default"),
            Note(*place(plan.time_s, plan.energy_j), "chosen plan", _changes(planned.plan, planned)),
        ),
    )


def _figures(planned: PlannedPipeline) -> tuple[Figure, ...]:
    default, cheapest = planned.default.cost, planned.frontier.cheapest
    gaps = [gap_percent(trial) for trial in planned.frontier]

    def saving(trial: Trial[Plan], words: str) -> Figure:
        slower = f"{percent(time_percent(trial.cost, default))} time"
        return Figure(percent(energy_percent(trial.cost, default)), words, slower)

    return (
        Figure(quantity(default.energy_j, "J"), "per iteration at default settings", f"{default.time_s:.4g} s"),
        saving(planned.plan, "energy with the chosen plan"),
        saving(cheapest, "energy at the least"),
        Figure(f"{sum(gaps) / len(gaps):.2f} %", "above the bound, on average", f"{max(gaps):.2f} % at worst"),
    )


def _table(planned: PlannedPipeline) -> Table:
    rows = []
    for number, trial in enumerate(planned.frontier):
        cost, default = trial.cost, planned.default.cost
        cells = (f"{cost.time_s:.4f} s", f"{cost.energy_j:.1f} J", f"{trial.choice.bound_j:.1f} J")
        changes = (percent(time_percent(cost, default)), percent(energy_percent(cost, default)))
        name = "chosen" if number == planned.chosen else ""
        rows.append((str(number), name, *cells, f"{gap_percent(trial):.2f} %", *changes))
    head = ("plan", "", "time", "energy", "bound", "above bound", "Δ time", "Δ energy")
    return Table("Every plan", head, tuple(rows), words=2, strong=frozenset({planned.chosen}))


def _origins(planned: PlannedPipeline) -> tuple[str, ...]:
    return (
        f"Time and energy of each instruction at each setting come from {planned.source.file}; an instruction starts "
        f"as soon as the schedule lets it, and a rank that waits draws {planned.blocking_power_w:g} W.",
        "The bound is the optimum of the relaxed problem, in which an instruction may last anywhere between two of its "
        "options: no plan that takes as long spends less, so a better planner could gain at most the distance to it.",
        "Δ is against every instruction at the highest setting of the profile.",
    )


def _changes(trial: Trial[Plan], planned: PlannedPipeline) -> str:
    energy, time = (change(trial.cost, planned.default.cost) for change in (energy_percent, time_percent))
    return f"{percent(energy)} energy, {percent(time)} time"
