"""What `wattune pipeline` prints: documents for programs, tables and timelines for people, pages."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from wattune._version import __version__
from wattune.core.measurement import Measurement
from wattune.levels.kernel.page import PipelineReport, PlanPoint, pipeline_page
from wattune.levels.kernel.planned import PlannedPipeline, StagePlan, TimedPlan
from wattune.levels.kernel.straggler import StragglerAnswer
from wattune.render.clock_colours import clock_colour, ink_on
from wattune.render.quantity import percent
from wattune.render.terminal_graph import Line
from wattune.render.timeline_terminal import LEVELS, colour_timelines, plain_timelines
from wattune.render.timeline_view import Timeline, Timelines, timeline

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SHOWN = 12
"""Plans that a table for people shows; files and JSON have all."""


def pipeline_document(planned: PlannedPipeline) -> dict[str, Any]:
    """The pipeline and its frontier as one JSON document."""
    shape = planned.shape
    return {
        "simulated": planned.source.simulated,
        "profile": planned.source.file,
        "made_by": planned.made_by,
        "schedule": shape.schedule,
        "stages": shape.stages,
        "ranks": shape.ranks,
        "chunks": shape.chunks,
        "extras": list(shape.extras),
        "microbatches": shape.microbatches,
        "blocking_power_w": planned.blocking_power_w,
        "default": {"time_s": planned.default.cost.time_s, "energy_j": planned.default.cost.energy_j},
        "chosen": planned.chosen,
        "frontier": [_row(point, planned.default.cost) for point in points(planned)],
    }


def _row(point: PlanPoint, default: Measurement) -> dict[str, float]:
    return {
        "time_s": point.cost.time_s,
        "energy_j": point.cost.energy_j,
        "bound_j": point.bound_j,
        "gap_percent": point.gap_percent,
        "saving_percent": 100 * (1 - point.cost.energy_j / default.energy_j),
        "slowdown_percent": 100 * (point.cost.time_s / default.time_s - 1),
    }


def straggler_document(answer: StragglerAnswer) -> dict[str, float]:
    """What is done about a straggler."""
    return {
        "straggler_time_s": answer.straggler_time_s,
        "wait_s": answer.wait_s,
        "energy_j": answer.energy_j,
        "default_energy_j": answer.default_energy_j,
        "saving_percent": answer.saving_percent,
    }


def points(planned: PlannedPipeline) -> tuple[PlanPoint, ...]:
    """The frontier as the views take it."""
    return tuple(PlanPoint(trial.cost, trial.choice.bound_j) for trial in planned.frontier)


def frontier_csv(planned: PlannedPipeline) -> str:
    """The frontier as CSV, fastest first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("time_s", "energy_j", "bound_j"))
    writer.writerows((repr(p.cost.time_s), repr(p.cost.energy_j), repr(p.bound_j)) for p in points(planned))
    return text.getvalue()


def heading(planned: PlannedPipeline) -> str:
    """The pipeline in one line."""
    label = " (simulated)" if planned.source.simulated else ""
    return f"{planned.shape}; profile {planned.source.file}{label}, blocking power {planned.blocking_power_w:g} W"


def frontier_table(planned: PlannedPipeline) -> Table:
    """The default, the chosen plan and a few of the others, fastest first."""
    from rich.table import Table

    default, plans = planned.default.cost, points(planned)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("plan")
    for head in ("time", "energy", "above bound", "Δ time", "Δ energy"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("")
    table.add_row("", f"{default.time_s:.4f} s", f"{default.energy_j:.1f} J", "", "", "", "default")
    for number in _few(len(plans), planned.chosen):
        row = _row(plans[number], default)
        table.add_row(
            str(number),
            f"{row['time_s']:.4f} s",
            f"{row['energy_j']:.1f} J",
            f"{row['gap_percent']:.2f} %",
            percent(row["slowdown_percent"]),
            percent(-row["saving_percent"]),
            _names(number, planned),
            style="bold" if number == planned.chosen else None,
        )
    return table


def _few(count: int, chosen: int) -> list[int]:
    if count <= SHOWN:
        return list(range(count))
    return sorted({round(step * (count - 1) / (SHOWN - 1)) for step in range(SHOWN)} | {chosen})


def _names(number: int, planned: PlannedPipeline) -> str:
    last = len(planned.frontier) - 1
    named = ((planned.chosen, "chosen"), (0, "fastest"), (last, "cheapest"))
    return ", ".join(name for place, name in named if place == number)


def timelines(planned: PlannedPipeline) -> Timelines:
    """The default above, the chosen plan below."""
    lines = (
        _timeline(planned, "default", planned.default.choice, planned.default.cost),
        _timeline(planned, f"plan {planned.chosen}", planned.plan.choice, planned.plan.cost),
    )
    return Timelines(lines, planned.source.simulated)


def _timeline(planned: PlannedPipeline, title: str, plan: TimedPlan | StagePlan, cost: Measurement) -> Timeline:
    return timeline(
        planned.graph,
        title=title,
        durations_s=plan.durations_s,
        energies_j=plan.energies_j,
        settings=(choice.setting for choice in plan.choices),
        cost=cost,
    )


def timeline_picture(view: Timelines, screen: Console) -> Text:
    """The timelines as that terminal can show them."""
    coloured = screen.color_system is not None and not screen.no_color
    draw = colour_timelines if coloured else plain_timelines
    return _styled(draw(view, width=screen.width - 1))


def _styled(lines: tuple[Line, ...]) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True)
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for stretch in line:
            text.append(stretch.text, style=_style(stretch.kind))
    return text


def _style(kind: str) -> str:
    words = kind.split()
    if words[0] == "clock":
        share = int(words[1]) / (LEVELS - 1)
        slant = " italic" if "forward" in words else " bold"
        return f"{ink_on(share)} on {clock_colour(share)}{slant}"
    return {"idle": "dim", "axis": "dim", "head": "bold"}[kind]


def plan_page(planned: PlannedPipeline) -> str:
    """The page of the frontier and its chosen plan."""
    from wattune.render.page import render_page

    report = PipelineReport(
        pipeline=str(planned.shape),
        profile=planned.source.file,
        simulated=planned.source.simulated,
        default=planned.default.cost,
        plans=points(planned),
        chosen=planned.chosen,
        timelines=timelines(planned),
        blocking_power_w=planned.blocking_power_w,
        made=f"Made by wattune {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
    )
    return render_page(pipeline_page(report))
