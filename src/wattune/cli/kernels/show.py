"""`wattune kernels show`: the settings of a plan's partitions, in the terminal and as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.output import FILE, check_writable, json_option, marked, print_json, print_written, write_text
from wattune.core.errors import InputError

if TYPE_CHECKING:
    from wattune.levels.overlap.view.kernel_report import SearchedKernels
    from wattune.levels.pipeline.planned import PlannedPipeline


@click.command("show", short_help="Show launch, SMs and clock of each partition in a plan.")
@click.argument("plan_file", type=FILE, metavar="PLAN")
@click.option("--plan", "number", type=click.IntRange(min=0), help="The plan of this number.")
@click.option("--deadline", type=click.FloatRange(min=0, min_open=True), help="Seconds per iteration.")
@click.option("--trials", type=FILE, help="The trials that it was made from: adds frontiers and streams.")
@click.option("--html", type=FILE, help="Write a page.")
@json_option
def show(
    plan_file: Path,
    number: int | None,
    deadline: float | None,
    trials: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show for each kind of instruction the settings of its partitions: launch and SMs of the collective, and clock.

    A column is one option of the instruction, ×N how many microbatches of an iteration run it. `after` is a collective
    behind its computation. Without --plan or --deadline it is the plan that was chosen when the file was made. With
    --trials the partitions are drawn over time.
    """
    from wattune.cli.kernels import output
    from wattune.levels.overlap.view.kernel_report import KernelReport
    from wattune.levels.pipeline.plan_file import read_plan
    from wattune.levels.pipeline.planned import choose

    check_writable(html)
    planned = read_plan(plan_file)
    _check_knobs(planned, plan_file)
    if number is not None:
        if deadline is not None:
            raise click.UsageError("--plan and --deadline cannot be used together")
        planned = replace(planned, chosen=number)
    elif deadline is not None:
        planned = choose(planned, deadline_s=deadline)
    searched = None if trials is None else _searched(trials, planned)
    report = KernelReport(planned.source.file, planned, searched)
    if html is not None:
        write_text(html, output.page_text(report))
    if as_json:
        found = {} if searched is None else output.search_document(searched)
        mark = marked(planned.source.simulated, planned.source.gpu)
        print_json({**mark, "title": report.title, **found, **output.plan_document(planned), "html": html})
        return
    output.show_settings(report)
    print_written(html)


def _check_knobs(planned: PlannedPipeline, file: Path) -> None:
    """Refuse a plan of clocks alone, and one whose knobs are no settings of partitions."""
    from wattune.levels.overlap.view.used_settings import used_options

    options = [option for own in used_options(planned.plan.choice).values() for option in own]
    if not any(option.choice.knobs for option in options):
        raise InputError(
            f"{file} has clocks alone, no settings of partitions", hint="show it with `wattune pipeline show`"
        )
    for option in options:
        assert option.partitions is not None  # parses every setting


def _searched(file: Path, planned: PlannedPipeline) -> SearchedKernels:
    """Read the trials of a plan; refuse those of another model."""
    from wattune.cli.kernels.searching import measured_kernels
    from wattune.levels.overlap.trial_file import read_header, read_trials
    from wattune.levels.overlap.view.used_settings import used_options
    from wattune.physics.catalog import load_model

    header = read_header(file)
    if header is None:
        raise InputError(f"there are no trials in {file}", hint="`wattune kernels plan --trials FILE` writes them")
    found = measured_kernels(header.model, load_model(header.gpu), read_trials(file, header), file=file)
    names = {own.partition.name for own in found.partitions}
    for options in used_options(planned.plan.choice).values():
        for name in (name for option in options for name in option.partitions):
            if name not in names:
                raise InputError(
                    f"the plan has a partition {name}, and {file} is of {header.layout}",
                    hint="name the trials that the plan was made from",
                )
    return found
