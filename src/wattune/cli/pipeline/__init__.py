"""`wattune pipeline`: the time-energy frontier of a training pipeline, its plans as files and as pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattune.cli.output import (
    check_writable,
    console,
    json_option,
    marked,
    print_json,
    print_line,
    print_written,
    stderr_console,
    trust_lines,
    write_text,
)
from wattune.cli.pipeline.profile import profile
from wattune.config import load_config
from wattune.levels.pipeline.schedule_files import FORMATS
from wattune.plans.shape import INTERLEAVED, SCHEDULE_NAMES

if TYPE_CHECKING:
    from wattune.levels.pipeline.planned import PlannedPipeline
    from wattune.levels.pipeline.straggler import StragglerAnswer

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def command() -> None:
    """Plan the clocks of a training pipeline: the least energy for every iteration time.

    A profile has the time and energy of each instruction of each stage at each clock; `profile` measures one while a
    program trains. `plan` writes the whole frontier to a plan file; the other commands show, convert and check it.
    """


command.add_command(profile)


_DEGREE = click.IntRange(1, 100_000)


def _waiting_option(function: F) -> F:
    return click.option(
        "--blocking-power",
        type=click.FloatRange(min=0),
        help="Watts of a GPU that waits.  [default: of the profile, else of its GPU or --gpu by the catalogue]",
    )(function)


def _choice_options(function: F) -> F:
    deadline = click.option("--deadline", type=click.FloatRange(min=0, min_open=True), help="Seconds per iteration.")
    straggler = click.option(
        "--straggler", type=click.FloatRange(1, 1000), help="Another pipeline takes this many times as long (1.2)."
    )
    return deadline(straggler(function))


@command.command(short_help="Find the frontier of a pipeline from a stage profile.")
@click.option(
    "--profile",
    "profile_file",
    type=_FILE,
    required=True,
    help="CSV: stage,instruction,frequency,time,energy.",
)
@click.option(
    "--schedule",
    type=click.Choice(SCHEDULE_NAMES),
    default="1f1b",
    show_default=True,
    help="Order of the instructions.",
)
@click.option("--microbatches", type=click.IntRange(1, 100_000), required=True, help="Microbatches per iteration.")
@click.option("--chunks", type=click.IntRange(1, 1000), help=f"Stages per rank, for {INTERLEAVED}.  [default: 2]")
@_waiting_option
@click.option("--dp", type=_DEGREE, default=1, show_default=True, help="Data-parallel GPUs: replicas of the model.")
@click.option("--tp", type=_DEGREE, default=1, show_default=True, help="Tensor-parallel GPUs that share each stage.")
@click.option("--switch-latency", metavar="TIME", help="From the request of a clock until it holds: 10ms.")
@click.option("--gpu", metavar="NAME", help="GPU of the catalogue whose switching time and waiting power count: a100.")
@_choice_options
@click.option(
    "--points",
    type=click.IntRange(2, 2000),
    help="Iteration times to solve for.  [default: 40, or 20 for thousands of operations]",
)
@click.option("--out", type=_FILE, help="Write the plan file (JSON).")
@click.option("--frontier-csv", "csv_file", type=_FILE, help="Write time_s,energy_j,bound_j as CSV.")
@json_option
def plan(
    profile_file: Path,
    schedule: str,
    microbatches: int,
    chunks: int | None,
    blocking_power: float | None,
    dp: int,
    tp: int,
    switch_latency: str | None,
    gpu: str | None,
    deadline: float | None,
    straggler: float | None,
    points: int | None,
    out: Path | None,
    csv_file: Path | None,
    as_json: bool,
) -> None:
    """Find the plan of least energy for every iteration time, from the fastest to the time of least energy.

    The chosen plan is the one of least energy that is no slower than default settings, or that meets --deadline, or
    that ends within the time of a --straggler. With --switch-latency or --gpu no plan changes clocks faster than the
    GPU can, and the energy lost by that is shown; otherwise switching is taken to be free.
    """
    from wattune.cli.pipeline import output
    from wattune.cli.pipeline.switching import switching_of
    from wattune.cli.pipeline.waiting import waiting_power
    from wattune.levels.pipeline.plan_file import plan_text
    from wattune.levels.pipeline.planned import plan_profile
    from wattune.levels.pipeline.planner import LARGE

    tariff = load_config().tariff
    for path in (out, csv_file):
        check_writable(path)
    switching = switching_of(latency=switch_latency, gpu=gpu)
    found, source = output.read_profile(profile_file)
    waiting_w, origin = waiting_power(blocking_power, gpu=gpu, profile=found)
    found.check_blocking_power(waiting_w)
    shape = found.shape(schedule, microbatches, chunks=chunks or (2 if schedule == INTERLEAVED else 1))
    operations = sum(len(rank) for rank in shape.order)
    if operations >= LARGE:
        stderr_console().print(f"planning {operations} operations")
    planned = plan_profile(found, shape, source=source, blocking_power_w=waiting_w, points=points, switching=switching)
    chosen, answer = _chosen(replace(planned, gpus_per_rank=dp * tp), deadline, straggler)
    _write(out, lambda: plan_text(chosen))
    _write(csv_file, lambda: output.frontier_csv(chosen))
    if as_json:
        straggling = output.straggler_document(answer)
        document = {**output.pipeline_document(chosen, tariff), "blocking_power_source": origin}
        print_json({**document, "straggler": straggling, "out": out, "frontier_csv": csv_file})
        return
    output.print_frontier(chosen, answer, tariff)
    print_line(f"A GPU that waits draws {waiting_w:g} W: {origin}.")
    print_written(out, csv_file)


@command.command(short_help="Draw a plan beside the default: in the terminal, as SVG, as a page.")
@click.argument("plan_file", type=_FILE, metavar="PLAN")
@_choice_options
@click.option("--plan", "number", type=click.IntRange(min=0), help="The plan of this number.")
@click.option("--rank", type=click.IntRange(min=0), help="List the instructions of one rank instead.")
@click.option("--svg", type=_FILE, help="Write the timelines as SVG.")
@click.option("--html", type=_FILE, help="Write a page with timelines, frontier and every plan.")
@json_option
def show(
    plan_file: Path,
    deadline: float | None,
    straggler: float | None,
    number: int | None,
    rank: int | None,
    svg: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Draw one iteration of a plan: ranks over time, coloured by clock, default above and plan below.

    Without --plan, --deadline or --straggler it is the plan that was chosen when the file was made.
    """
    from wattune.cli.pipeline import output
    from wattune.levels.pipeline.plan_file import read_plan
    from wattune.levels.pipeline.view.page import standalone_timelines
    from wattune.levels.pipeline.view.timeline import timelines

    tariff = load_config().tariff
    for path in (svg, html):
        check_writable(path)
    planned, answer = read_plan(plan_file), None
    if number is not None:
        if deadline is not None or straggler is not None:
            raise click.UsageError("--plan, --deadline and --straggler cannot be used together")
        planned = replace(planned, chosen=number)
    elif deadline is not None or straggler is not None:
        planned, answer = _chosen(planned, deadline, straggler)
    steps = output.rank_steps(planned, rank)
    _write(svg, lambda: standalone_timelines(timelines(planned)))
    _write(html, lambda: output.plan_page(planned, tariff))
    if as_json:
        straggling = output.straggler_document(answer)
        print_json(
            {
                **output.pipeline_document(planned, tariff),
                "straggler": straggling,
                "steps": steps,
                "svg": svg,
                "html": html,
            }
        )
        return
    screen = console()
    for line in (output.heading(planned), *trust_lines(planned.source.simulated, planned.source.gpu)):
        screen.print(line, markup=False, soft_wrap=True)
    if rank is not None:
        output.print_steps(steps[0])
    else:
        screen.print(output.timeline_picture(timelines(planned), screen))
        screen.print(output.job_words(planned), markup=False, soft_wrap=True)
    output.print_answer(answer)
    print_written(svg, html)


@command.command(short_help="Write a frontier as schedule files of Perseus or Kareus.")
@click.argument("plan_file", type=_FILE, metavar="PLAN")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="Format of the files.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the files.")
@json_option
def export(plan_file: Path, form: str, out: Path, as_json: bool) -> None:
    """Write one freqs_pipeline_NNNNN.py per plan, and for Kareus one scheds_pipeline_NNNNN.py.

    The fastest plan has the largest number.
    """
    from wattune.cli.pipeline import output
    from wattune.levels.pipeline.plan_file import read_plan
    from wattune.levels.pipeline.schedule_exchange import export_files

    files = export_files(read_plan(plan_file), form)
    output.write_folder(out, files)
    if as_json:
        print_json({"format": form, "out": out, "files": list(files)})
    else:
        print_line(f"{len(files)} files written to {out}")


@command.command(name="import", short_help="Read schedule files of Perseus or Kareus as a plan file.")
@click.argument("schedules", type=click.Path(path_type=Path), metavar="FOLDER|FILE")
@click.option("--profile", type=_FILE, required=True, help="The stage profile to time them with.")
@_waiting_option
@click.option("--gpu", metavar="NAME", help="GPU of the catalogue whose waiting power counts: a100.")
@click.option(
    "--schedule",
    type=click.Choice([name for name in SCHEDULE_NAMES if name != INTERLEAVED]),
    default="1f1b",
    show_default=True,
    help="For files that do not name their instructions.",
)
@click.option("--out", type=_FILE, help="Write the plan file (JSON).")
@json_option
def import_(
    schedules: Path,
    profile: Path,
    blocking_power: float | None,
    gpu: str | None,
    schedule: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Read freqs_pipeline_NNNNN.py files, with the scheds_pipeline_NNNNN.py beside them where there are any.

    The files are parsed as literals and never run. Each plan is timed again from the profile; plans that another plan
    beats in both time and energy are left out.
    """
    from wattune.cli.pipeline import output
    from wattune.cli.pipeline.waiting import waiting_power
    from wattune.levels.pipeline.plan_file import plan_text
    from wattune.levels.pipeline.planned import choose
    from wattune.levels.pipeline.schedule_exchange import import_files

    tariff = load_config().tariff
    check_writable(out)
    found, source = output.read_profile(profile)
    waiting_w, origin = waiting_power(blocking_power, gpu=gpu, profile=found)
    found.check_blocking_power(waiting_w)
    files = output.read_schedules(schedules)
    planned = choose(import_files(files, found, source=source, blocking_power_w=waiting_w, schedule=schedule))
    _write(out, lambda: plan_text(planned))
    if as_json:
        print_json({**output.pipeline_document(planned, tariff), "blocking_power_source": origin, "out": out})
        return
    output.print_frontier(planned, None, tariff)
    print_line(f"A GPU that waits draws {waiting_w:g} W: {origin}.")
    print_written(out)


@command.command(name="verify", short_help="Time the plans of a file again, from another profile.")
@click.argument("plan_file", type=_FILE, metavar="PLAN")
@click.option("--profile", type=_FILE, required=True, help="The stage profile to time it with.")
@json_option
def verify_(plan_file: Path, profile: Path, as_json: bool) -> None:
    """Compare the predicted time and energy of each plan of a file with those by a profile."""
    from wattune.cli.pipeline import output
    from wattune.levels.pipeline.plan_file import read_plan
    from wattune.levels.pipeline.planned import verify

    planned = read_plan(plan_file)
    found, source = output.read_profile(profile)
    rows = output.verified_rows(planned, verify(planned, found))
    if as_json:
        mark = marked(source.simulated, source.gpu)
        print_json({**mark, "profile": source.file, "chosen": planned.chosen, "plans": rows})
        return
    output.print_verified(rows, chosen=planned.chosen, profile=source.file)


def _chosen(
    planned: PlannedPipeline, deadline_s: float | None, straggler: float | None
) -> tuple[PlannedPipeline, StragglerAnswer | None]:
    from wattune.levels.pipeline.planned import choose
    from wattune.levels.pipeline.straggler import answer_slowdown

    if deadline_s is not None and straggler is not None:
        raise click.UsageError("--deadline and --straggler cannot be used together")
    if straggler is None:
        return choose(planned, deadline_s=deadline_s), None
    answer = answer_slowdown(planned, straggler)
    return choose(planned, deadline_s=answer.straggler_time_s), answer


def _write(path: Path | None, text: Callable[[], str]) -> None:
    if path is not None:
        write_text(path, text())
