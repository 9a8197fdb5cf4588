"""`wattune kernels plan`: search the partitions of a model, and plan its pipeline with what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from wattune.cli.kernels.model import ModelOptions, model_options
from wattune.cli.output import FILE, check_writable, json_option, print_json, print_written
from wattune.core.errors import InputError
from wattune.core.objective import parse_share

F = TypeVar("F", bound=Callable[..., Any])

# Written out, because the planner is slow to import; a test compares them.
SEARCHES = ("wattune", "kareus", "random")
SCHEDULES = ("1f1b", "gpipe")
"""Those that run whole forwards and backwards, one stage per rank."""


def search_options(function: F) -> F:
    """Add the options of a search of partitions."""
    options = (
        click.option(
            "--search", type=click.Choice(SEARCHES), default="wattune", show_default=True, help="Rule of the search."
        ),
        click.option("--budget", type=click.IntRange(min=1), help="Most measurements of a partition.  [default: all]"),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the search."),
        click.option(
            "--epsilon",
            metavar="SHARE",
            default="0.5%",
            show_default=True,
            help="Expected distance from the frontier at which the search of wattune ends.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("plan", short_help="Search the partitions of a model and plan its pipeline.")
@model_options
@click.option("--pp", type=click.IntRange(1, 100_000), required=True, help="Stages of the pipeline.")
@click.option("--dp", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Replicas of the model.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs of the job, to check the layout against.")
@click.option("--microbatches", type=click.IntRange(1, 100_000), required=True, help="Microbatches per iteration.")
@click.option("--gpu", required=True, help="A GPU of the catalogue: a100-40gb …")
@click.option("--no-recompute", is_flag=True, help="Keep activations; backward passes do not run forward again.")
@click.option("--stage-layers", metavar="N,N…", help="Layers of each stage: 15,13.  [default: about equal work]")
@click.option(
    "--schedule", type=click.Choice(SCHEDULES), default="1f1b", show_default=True, help="Order of the instructions."
)
@search_options
@click.option("--trials", type=FILE, help="Append every trial to this file (JSON lines), and go on from it.")
@click.option("--no-plain", is_flag=True, help="Split every microbatch, so that all plans are schedules of Kareus.")
@click.option(
    "--blocking-power", type=click.FloatRange(min=0), help="Watts of a GPU that waits.  [default: idle with a context]"
)
@click.option("--switch-latency", metavar="TIME", help="From the request of a clock until it holds: 10ms.")
@click.option("--deadline", type=click.FloatRange(min=0, min_open=True), help="Seconds per iteration.")
@click.option("--out", type=FILE, required=True, help="Write the plan file (JSON).")
@click.option("--profile-csv", type=FILE, help="Write the stage profile, for `pipeline verify` and `import`.")
@click.option("--html", type=FILE, help="Write a page with frontiers, streams and clocks.")
@json_option
def plan(
    name: str,
    tp: int,
    cp: int,
    sequence_parallel: bool,
    microbatch_size: int,
    sequence: int,
    nanobatches: int,
    pp: int,
    dp: int,
    gpus: int | None,
    microbatches: int,
    gpu: str,
    no_recompute: bool,
    stage_layers: str | None,
    schedule: str,
    search: str,
    budget: int | None,
    seed: int,
    epsilon: str,
    trials: Path | None,
    no_plain: bool,
    blocking_power: float | None,
    switch_latency: str | None,
    deadline: float | None,
    out: Path,
    profile_csv: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Search launch, SMs and clock of each partition of a transformer, and plan the pipeline with the best of them.

    Partitions are simulated on a GPU of the catalogue; a file of trials that real GPUs measured (--trials) is planned
    from as it is. The chosen plan is the one of least energy that is no slower than the same model without nanobatches
    at the highest clock, or that meets --deadline.
    """
    from wattune.cli.threads import one_thread_each

    with one_thread_each():
        from wattune.cli.kernels import output, planning, searching
        from wattune.physics.catalog import load_model

    files = {"out": out, "profile_csv": profile_csv, "html": html, "trials": trials}
    for path in files.values():
        check_writable(path)
    options = ModelOptions(
        name=name,
        tp=tp,
        cp=cp,
        pp=pp,
        dp=dp,
        gpus=gpus,
        sequence_parallel=sequence_parallel,
        microbatch_size=microbatch_size,
        sequence=sequence,
        nanobatches=nanobatches,
        recompute=not no_recompute,
        stage_layers=stage_layers,
    )
    model, plain, simulated = options.partitioned(), options.partitioned(nanobatches=1), load_model(gpu)
    rule = searching.SearchOptions(
        search=search,
        budget=budget,
        seed=seed,
        epsilon=epsilon_of(epsilon),
        trials=trials,
        waiting_w=blocking_power,
    )
    wanted = planning.PlanOptions(
        schedule=schedule,
        microbatches=microbatches,
        blocking_power_w=blocking_power,
        switch_latency=switch_latency,
        deadline_s=deadline,
        with_plain=not no_plain,
    )
    found = searching.searched_kernels(model, simulated, rule)
    result = planning.plan_kernels(found, plain, wanted)
    output.write_files(result, files)
    if as_json:
        print_json({**output.document(result), "search": search, "seed": seed, **files})
        return
    output.show_plan(result, rule)
    print_written(out, profile_csv, html)


def epsilon_of(text: str) -> float:
    """Parse --epsilon."""
    try:
        return parse_share(text)
    except ValueError:
        raise InputError(f"--epsilon {text!r} is no share", hint="write for example --epsilon 0.5%") from None
