"""Files and output of `wattune pipeline`: profiles and schedules, JSON documents, tables, timelines, and the page."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import console, made_line, marked, trust_lines, write_text
from wattune.core.codec import to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement, energy_percent, time_percent
from wattune.core.tariff import Tariff
from wattune.levels.pipeline.planned import PlannedPipeline, Source, gap_percent
from wattune.levels.pipeline.schedule_exchange import FREQS_NAME
from wattune.levels.pipeline.solver.switching import new_settings, shortest_dwell_s
from wattune.levels.pipeline.straggler import StragglerAnswer
from wattune.levels.pipeline.view.page import long_run_saving, pipeline_page
from wattune.levels.pipeline.view.timeline import Timelines, text_timelines, timeline
from wattune.plans.stage_profile import StageProfile, parse_stage_profile
from wattune.render.quantity import footprint_words, percent, quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


MOST_ROWS = 12
"""Plans in a table on the screen; files and JSON have all."""


def pipeline_document(planned: PlannedPipeline, tariff: Tariff) -> dict[str, Any]:
    """Describe the pipeline and its frontier as one JSON document."""
    shape = planned.shape
    return {
        **marked(planned.source.simulated, planned.source.gpu),
        "profile": planned.source.file,
        "made_by": planned.made_by,
        "schedule": shape.schedule,
        "stages": shape.stages,
        "ranks": shape.ranks,
        "chunks": shape.chunks,
        "extras": list(shape.extras),
        "microbatches": shape.microbatches,
        "blocking_power_w": planned.blocking_power_w,
        "switching": to_json(planned.switching),
        "baseline": planned.baseline,
        "job": job_document(planned),
        "default": {"time_s": planned.default.cost.time_s, "energy_j": planned.default.cost.energy_j},
        "chosen": planned.chosen,
        "saved_per_1000_gpu_hours": asdict(long_run_saving(planned, tariff)),
        "frontier": [_row(number, planned) for number in range(len(planned.frontier))],
    }


def _row(number: int, planned: PlannedPipeline) -> dict[str, float]:
    trial = planned.frontier.trials[number]
    cost, default = trial.cost, planned.default.cost
    row = {
        "time_s": cost.time_s,
        "energy_j": cost.energy_j,
        "bound_j": trial.choice.bound_j,
        "gap_percent": gap_percent(trial),
        "saving_percent": 100 * (1 - cost.energy_j / default.energy_j),
        "slowdown_percent": time_percent(cost, default),
    }
    if planned.switching is not None:
        row["free_energy_j"] = planned.free_energies_j[number]
        row["switching_loss_percent"] = planned.switching_losses_percent[number]
    return row


def job_document(planned: PlannedPipeline) -> dict[str, float]:
    """Describe an iteration of the whole job: what all its GPUs spend."""
    return {
        "gpus": planned.gpus,
        "energy_j": planned.job_energy_j,
        "default_energy_j": planned.job_default_energy_j,
    }


def job_words(planned: PlannedPipeline) -> str:
    """Return what all GPUs of the job spend in an iteration."""
    plan, default = quantity(planned.job_energy_j, "J"), quantity(planned.job_default_energy_j, "J")
    one = f"one GPU of each {'stage' if planned.shape.ranks == planned.shape.stages else 'rank'}"
    if planned.gpus_per_rank == 1:
        larger = "`wattune pipeline plan` takes --dp and --tp for a larger job"
        return f"Energies are those of {one}, {planned.gpus} GPUs in all; {larger}."
    spent = f"all {planned.gpus} GPUs of the job spend {plan} per iteration instead of {default}"
    return f"Energies above are those of {one}; {spent}."


def straggler_document(answer: StragglerAnswer | None) -> dict[str, float] | None:
    """Describe the answer to a straggler; None where there is none."""
    if answer is None:
        return None
    names = ("straggler_time_s", "wait_s", "energy_j", "default_energy_j", "saving_percent")
    return {name: getattr(answer, name) for name in names}


def frontier_csv(planned: PlannedPipeline) -> str:
    """Write the frontier as CSV, fastest first."""
    rows = (f"{t.cost.time_s!r},{t.cost.energy_j!r},{t.choice.bound_j!r}\n" for t in planned.frontier)
    return "time_s,energy_j,bound_j\n" + "".join(rows)


def heading(planned: PlannedPipeline) -> str:
    """Describe the pipeline in one line."""
    label = " (simulated)" if planned.source.simulated else ""
    return f"{planned.shape}; profile {planned.source.file}{label}, blocking power {planned.blocking_power_w:g} W"


def frontier_table(planned: PlannedPipeline) -> Table:
    """Tabulate the default, the chosen plan and a few of the others, fastest first."""
    from rich.table import Table

    default, trials = planned.default.cost, planned.frontier.trials
    losses = planned.switching_losses_percent
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1 if losses else 2, 0, 0))
    table.add_column("plan")
    for head in ("time", "energy", "above bound", *(("lost to\nswitching",) if losses else ()), "Δ time", "Δ energy"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    unknown = [""] * (4 if losses else 3)
    table.add_row("", f"{default.time_s:.4f} s", f"{default.energy_j:.1f} J", *unknown, "default")
    for number in _few(len(trials), planned.chosen):
        cost = trials[number].cost
        table.add_row(
            str(number),
            f"{cost.time_s:.4f} s",
            f"{cost.energy_j:.1f} J",
            f"{gap_percent(trials[number]):z.2f} %",
            *((f"{losses[number]:z.2f} %",) if losses else ()),
            percent(time_percent(cost, default)),
            percent(energy_percent(cost, default)),
            _names(number, planned),
            style="bold" if number == planned.chosen else None,
        )
    return table


def _few(count: int, chosen: int) -> Iterable[int]:
    if count <= MOST_ROWS:
        return range(count)
    return sorted({round(step * (count - 1) / (MOST_ROWS - 1)) for step in range(MOST_ROWS)} | {chosen})


def _names(number: int, planned: PlannedPipeline) -> str:
    last = len(planned.frontier) - 1
    named = ((planned.chosen, "chosen"), (0, "fastest"), (last, "cheapest"))
    return ", ".join(name for place, name in named if place == number)


def timeline_picture(view: Timelines, screen: Console) -> Text:
    """Draw the timelines, in colours where the terminal has them."""
    from rich.text import Text

    coloured = screen.color_system is not None and not screen.no_color
    return Text("\n", no_wrap=True).join(text_timelines(view, width=screen.width - 1, coloured=coloured))


def plan_page(planned: PlannedPipeline, tariff: Tariff) -> str:
    """Render the page of the frontier and its chosen plan."""
    from wattune.render.page import render_page

    made = made_line()
    return render_page(pipeline_page(planned, made=made, tariff=tariff))


def print_frontier(planned: PlannedPipeline, answer: StragglerAnswer | None, tariff: Tariff) -> None:
    """Print the frontier, what its chosen plan saves in the long run, and the answer to a straggler."""
    screen = console()
    screen.print(heading(planned), markup=False, soft_wrap=True)
    for line in trust_lines(planned.source.simulated, planned.source.gpu):
        screen.print(line, markup=False, soft_wrap=True)
    screen.print(frontier_table(planned))
    screen.print(long_run_words(planned, tariff), markup=False, soft_wrap=True)
    screen.print(job_words(planned), markup=False, soft_wrap=True)
    screen.print(switching_words(planned), markup=False, soft_wrap=True)
    print_answer(answer)


def long_run_words(planned: PlannedPipeline, tariff: Tariff) -> str:
    """Return what the chosen plan saves in 1,000 GPU-hours of training, and against what."""
    label = " (simulated)" if planned.source.simulated else ""
    saved = footprint_words(long_run_saving(planned, tariff))
    return f"The chosen plan saves {saved} per 1,000 GPU-hours{label}, against {planned.baseline}."


def switching_words(planned: PlannedPipeline) -> str:
    """Describe what changes of clocks were taken to cost, and what the chosen plan loses by them."""
    switching, plan = planned.switching, planned.plan.choice
    dwell_s = shortest_dwell_s(plan)
    held = f"holds each clock for {1e3 * dwell_s:.3g} ms or longer" if dwell_s else "never changes the clock of a rank"
    held += f" ({len(new_settings(plan.graph, plan.choices))} changes per iteration, all ranks)" if dwell_s else ""
    if switching is None:
        return (
            f"Switching is taken to be free; the chosen plan {held}. "
            "`wattune pipeline plan` takes --switch-latency, or --gpu to look it up."
        )
    loss = planned.switching_losses_percent[planned.chosen]
    return (
        f"A change of clocks takes {1e3 * switching.latency_s:g} ms and stalls for {1e3 * switching.stall_s:g} ms "
        f"({switching.source}); the chosen plan {held} and spends {loss:z.2f} % more than if switching were free."
    )


def print_answer(answer: StragglerAnswer | None) -> None:
    """Print the cost of a straggler, where there is one."""
    if answer is not None:
        console().print(
            f"The straggler takes {answer.straggler_time_s:.4f} s; with the plan of {answer.trial.cost.time_s:.4f} s "
            f"and {answer.wait_s:.4f} s of waiting the others spend {answer.energy_j:.1f} J instead of "
            f"{answer.default_energy_j:.1f} J ({percent(-answer.saving_percent)}).",
            soft_wrap=True,
        )


def rank_steps(planned: PlannedPipeline, rank: int | None) -> list[list[dict[str, Any]]]:
    """List the steps of every rank, or of one, with their times."""
    if rank is not None and rank >= planned.shape.ranks:
        raise click.UsageError(f"there is no rank {rank}; the last is {planned.shape.ranks - 1}")
    ranks = timeline("", planned.plan).ranks
    return [
        [
            {"span": bar.name, **to_json(bar.setting), "start_s": bar.start_s, "end_s": bar.end_s}
            for bar in ranks[number]
        ]
        for number in (range(len(ranks)) if rank is None else (rank,))
    ]


def print_steps(steps: list[dict[str, Any]]) -> None:
    """Print the steps of one rank."""
    from rich.table import Table

    table = Table("instruction", "from", "to", "clock", box=None, pad_edge=False, header_style="dim")
    for step in steps:
        clock = "default" if step["sm_mhz"] is None else f"{step['sm_mhz']} MHz"
        table.add_row(step["span"], f"{step['start_s']:.4f} s", f"{step['end_s']:.4f} s", clock)
    console().print(table)


def verified_rows(planned: PlannedPipeline, verified: tuple[Measurement, ...]) -> list[dict[str, float]]:
    """Describe every plan as predicted and as timed again."""
    return [
        {
            "planned_time_s": trial.cost.time_s,
            "planned_energy_j": trial.cost.energy_j,
            "time_s": real.time_s,
            "energy_j": real.energy_j,
            "time_percent": time_percent(real, trial.cost),
            "energy_percent": energy_percent(real, trial.cost),
        }
        for trial, real in zip(planned.frontier, verified, strict=True)
    ]


def print_verified(rows: list[dict[str, float]], *, chosen: int, profile: str) -> None:
    """Print every plan as predicted and as timed again."""
    from rich.table import Table

    table = Table("plan", "planned", "", "really", "", "Δ time", "Δ energy", box=None, pad_edge=False)
    for number, row in enumerate(rows):
        table.add_row(
            f"{number}{' (chosen)' if number == chosen else ''}",
            f"{row['planned_time_s']:.4f} s",
            f"{row['planned_energy_j']:.1f} J",
            f"{row['time_s']:.4f} s",
            f"{row['energy_j']:.1f} J",
            percent(row["time_percent"], places=2),
            percent(row["energy_percent"], places=2),
        )
    screen = console()
    screen.print(table)
    late = sum(row["time_percent"] > 0.001 for row in rows)
    screen.print(f"By {profile}, {late} of {len(rows)} plans take longer than planned.", markup=False)


def read_profile(path: Path) -> tuple[StageProfile, Source]:
    """Read a stage profile and identify its file."""
    text = read_text(path, hint="name a stage profile as CSV")
    profile = parse_stage_profile(text, file=str(path))
    return profile, Source(path.name, hashlib.sha256(text.encode()).hexdigest(), profile.simulated, profile.gpu)


def read_schedules(path: Path) -> dict[str, str]:
    """Read the schedule files of a folder, or one freqs file and the scheds file beside it, by name."""
    if not path.exists():
        raise InputError(f"there is no {path}", hint="name a folder of freqs_pipeline_NNNNN.py files, or one of them")
    found = _listed(path) if path.is_dir() else [path]
    names = [file for file in found if FREQS_NAME.fullmatch(file.name)]
    if not names:
        raise InputError(
            f"{path} has no freqs_pipeline_NNNNN.py", hint="name such a file, or the folder that holds some"
        )
    halves = [file.with_name(file.name.replace("freqs", "scheds", 1)) for file in names]
    return {
        file.name: read_text(file, hint="name schedule files")
        for file in (*names, *(half for half in halves if half.is_file()))
    }


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}", hint="check its permissions") from None


def write_folder(folder: Path, files: dict[str, str]) -> None:
    """Write the files to a folder; refuse one that has schedules of another frontier.

    A reader takes all files of a folder as one frontier.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}", hint="choose another folder") from None
    others = [file.name for file in _listed(folder) if FREQS_NAME.fullmatch(file.name) and file.name not in files]
    if others:
        raise InputError(
            f"{folder} already has schedules of another frontier, such as {others[0]}",
            hint="choose an empty folder",
        )
    for name, text in files.items():
        write_text(folder / name, text)
