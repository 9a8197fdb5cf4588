"""What people see of `wattune pipeline`: tables, remarks, and the steps of a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wattune.cli.output import console
from wattune.cli.pipeline.output import frontier_table, heading, timelines
from wattune.levels.kernel.planned import PlannedPipeline, rank_plan
from wattune.levels.kernel.straggler import StragglerAnswer
from wattune.levels.kernel.verify import Verified


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
    ranks = rank_plan(planned.graph, planned.plan.choice.choices).ranks
    bars = timelines(planned).lines[1].ranks
    wanted = range(len(ranks)) if rank is None else (rank,)
    return [
        [
            {
                "span": step.span,
                "sm_mhz": step.setting.sm_mhz,
                "mem_mhz": step.setting.mem_mhz,
                "power_limit_w": step.setting.power_limit_w,
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
