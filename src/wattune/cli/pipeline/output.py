"""What `wattune pipeline` prints: documents for programs, tables and timelines for people, pages."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune._version import __version__
from wattune.cli.output import console
from wattune.core.codec import to_json
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan
from wattune.levels.kernel.planned import PlannedPipeline, Verified
from wattune.levels.kernel.straggler import StragglerAnswer
from wattune.levels.kernel.view.page import PipelineReport, PlanPoint, pipeline_page
from wattune.levels.kernel.view.terminal import colour_timelines, plain_timelines
from wattune.levels.kernel.view.timeline import PipelineTimeline, Timelines, timeline
from wattune.render.quantity import percent

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


def _timeline(planned: PlannedPipeline, title: str, plan: Plan, cost: Measurement) -> PipelineTimeline:
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
    from rich.text import Text

    return Text("\n", no_wrap=True).join(draw(view, width=screen.width - 1))


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


def print_frontier(planned: PlannedPipeline, answer: StragglerAnswer | None) -> None:
    """Nothing; the frontier is on the screen."""
    screen = console()
    screen.print(heading(planned), markup=False, soft_wrap=True)
    screen.print(frontier_table(planned))
    print_answer(answer)


def print_answer(answer: StragglerAnswer | None) -> None:
    """Nothing; what a straggler costs is on the screen, where there is one."""
    if answer is not None:
        console().print(
            f"The straggler takes {answer.straggler_time_s:.4f} s; with the plan of {answer.trial.cost.time_s:.4f} s "
            f"and {answer.wait_s:.4f} s of waiting the others spend {answer.energy_j:.1f} J instead of "
            f"{answer.default_energy_j:.1f} J ({-answer.saving_percent:+.1f} %).",
            soft_wrap=True,
        )


def print_written(*paths: Path | None) -> None:
    """Nothing; the files that were written are named."""
    for path in paths:
        if path is not None:
            console().print(f"written to {path}", markup=False, soft_wrap=True)


def rank_steps(planned: PlannedPipeline, rank: int | None) -> list[list[dict[str, Any]]]:
    """The steps of every rank, or of one."""
    if rank is not None and rank >= planned.shape.ranks:
        raise click.UsageError(f"there is no rank {rank}; the last is {planned.shape.ranks - 1}")
    ranks = planned.plan.choice.ranks
    bars = timelines(planned).lines[1].ranks
    wanted = range(len(ranks)) if rank is None else (rank,)
    return [
        [
            {
                "span": step.span,
                **to_json(step.setting),
                "start_s": bar.start_s,
                "end_s": bar.end_s,
            }
            for step, bar in zip(ranks[number], bars[number], strict=True)
        ]
        for number in wanted
    ]


def print_steps(steps: list[dict[str, Any]]) -> None:
    """Nothing; the steps of one rank are on the screen."""
    from rich.table import Table

    table = Table("instruction", "from", "to", "clock", box=None, pad_edge=False, header_style="dim")
    for step in steps:
        clock = "default" if step["sm_mhz"] is None else f"{step['sm_mhz']} MHz"
        table.add_row(step["span"], f"{step['start_s']:.4f} s", f"{step['end_s']:.4f} s", clock)
    console().print(table)


def verified_row(row: Verified) -> dict[str, float]:
    """A plan that was timed anew, for programs."""
    return {
        "planned_time_s": row.planned.time_s,
        "planned_energy_j": row.planned.energy_j,
        "time_s": row.real.time_s,
        "energy_j": row.real.energy_j,
        "time_percent": row.time_percent,
        "energy_percent": row.energy_percent,
    }


def print_verified(planned: PlannedPipeline, verified: tuple[Verified, ...], profile: str) -> None:
    """Nothing; promise and truth of every plan are on the screen."""
    from rich.table import Table

    table = Table("plan", "planned", "", "really", "", "Δ time", "Δ energy", box=None, pad_edge=False)
    for number, row in enumerate(verified):
        table.add_row(
            f"{number}{' (chosen)' if number == planned.chosen else ''}",
            f"{row.planned.time_s:.4f} s",
            f"{row.planned.energy_j:.1f} J",
            f"{row.real.time_s:.4f} s",
            f"{row.real.energy_j:.1f} J",
            f"{row.time_percent:+.2f} %",
            f"{row.energy_percent:+.2f} %",
        )
    screen = console()
    screen.print(table)
    late = sum(row.time_percent > 0.001 for row in verified)
    screen.print(f"By {profile}, {late} of {len(verified)} plans take longer than planned.", markup=False)
