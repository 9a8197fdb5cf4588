"""`wattune job`: tune training jobs that run again and again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.job.run import run, searcher_option
from wattune.cli.output import check_writable, console, json_option, made_line, marked, print_json, write_text
from wattune.config import load_config
from wattune.core.codec import to_json
from wattune.core.errors import InputError
from wattune.levels.job.policies import searcher_named

if TYPE_CHECKING:
    from wattune.core.tariff import Tariff
    from wattune.levels.job.view.view_model import JobView
    from wattune.store.sql_job_store import JobStore


@click.group()
def command() -> None:
    """Tune training jobs that run again and again: their batch size, and the GPU's power limit or clock.

    Each run gets a batch size to train with. The epochs that it needs to reach its target metric, and their cost, are
    kept in the store, so that every run improves the next choice.
    """


command.add_command(run)


def open_job_store() -> JobStore:
    """Open the jobs of the configured store, which first takes in ends of runs that were saved in files."""
    from wattune.cli.history import open_history

    return open_history().jobs


@command.command("list", short_help="List the jobs that were run.")
@json_option
def list_jobs(as_json: bool) -> None:
    """List the jobs that were run, with their energy so far."""
    from wattune.cli.job.output import job_table, summary_document
    from wattune.levels.job.view.view_model import costs_footprint

    tariff, summaries = load_config().tariff, open_job_store().jobs()
    footprints = [costs_footprint(summary.spent, tariff) for summary in summaries]
    if as_json:
        print_json({"jobs": list(map(summary_document, summaries, footprints))})
    elif summaries:
        console().print(job_table(summaries, footprints))
    else:
        console().print("no jobs yet; try: wattune job run NAME -- COMMAND", markup=False, soft_wrap=True)


@command.command(short_help="Show results, cost and savings of a job.")
@click.argument("name")
@searcher_option
@click.option("--limit", type=click.IntRange(min=0), default=10, show_default=True, help="Most runs to list.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the page of the job (.html), or its first chart (.svg).",
)
@json_option
def show(name: str, searcher: str, limit: int, plot: Path | None, as_json: bool) -> None:
    """Show results, cost and savings of a job, and which batch size comes next.

    For each GPU model: epochs and cost of every batch size, the cost of profiling and of trials, and the savings
    against the default batch size at the GPU's own setting.
    """
    from wattune.cli.job.output import overview_document, record_document, simulated_fields
    from wattune.levels.job.view.view_model import JobView, gpus_of

    _check_plot(plot)
    tariff = load_config().tariff
    job_store = open_job_store()
    job, memory = job_store.job(name), job_store.job_memory(name)
    records = job_store.job_runs(name, limit=limit)
    chooser = searcher_named(searcher)
    found = tuple(JobView.of(job, memory, gpu, searcher=chooser) for gpu in gpus_of(memory))
    if plot is not None:
        _write_plot(plot, found, searcher, tariff)
    if as_json:
        document = {
            **simulated_fields(memory.runs),
            "job": to_json(job),
            "parts": [overview_document(one, tariff) for one in found],
            "runs": [record_document(record) for record in records],
            "plot": plot,
        }
        print_json(document)
    else:
        from wattune.cli.job.output import print_job

        print_job(console(), job, found, records, tariff)
        if plot is not None:
            console().print(f"plot written to {plot}", soft_wrap=True, markup=False)


@command.command("next", short_help="Show what the next run of a job would get, and why.")
@click.argument("name")
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="GPU that it would run on: auto, nvml:0, sim:a100 … (repeatable).  [default: that of the newest run]",
)
@searcher_option
@json_option
def next_run(name: str, devices: tuple[str, ...], searcher: str, as_json: bool) -> None:
    """Show which batch size and setting the next run of a job would get on a GPU, and why. This changes nothing.

    Without --device the answer is for the GPUs of its newest run, which `job show` lists first.
    """
    from wattune.cli.gpus import open_gpus
    from wattune.cli.job.output import gpu_document
    from wattune.levels.job.gpus import job_gpu_of
    from wattune.levels.job.view.view_model import JobView, gpu_label, gpus_of

    job_store = open_job_store()
    job, memory = job_store.job(name), job_store.job_memory(name)
    known = () if devices else gpus_of(memory)
    if known:
        gpu = known[0]
    else:
        with open_gpus(*devices) as gpus:
            gpu = job_gpu_of(gpus)
    chooser = searcher_named(searcher)
    proposal = chooser.propose(job, memory, gpu)
    setting = JobView.of(job, memory, gpu, searcher=chooser).setting
    if as_json:
        print_json(
            {
                **marked(gpu.simulated, gpu.name),
                "job": name,
                "gpu": gpu_document(gpu),
                "searcher": searcher,
                **to_json(proposal),
                "setting": to_json(setting),
            }
        )
        return
    out = console()
    held = "to be found by profiling" if setting is None else str(setting)
    out.print(f"batch size {proposal.batch_size} on {gpu_label(gpu)}", markup=False, soft_wrap=True)
    out.print(f"setting: {held}", markup=False, soft_wrap=True)
    out.print(f"why: {proposal.why}", markup=False, soft_wrap=True)


@command.command(short_help="Remove a job and all its runs from the store.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def forget(name: str, yes: bool, as_json: bool) -> None:
    """Remove a job, its runs and its profiles from the store for good."""
    from wattune.cli.job.output import summary_document
    from wattune.levels.job.view.view_model import runs_footprint
    from wattune.render.quantity import counted

    job_store = open_job_store()
    job_store.job(name)
    if not yes:
        if as_json:
            raise click.UsageError("--json cannot ask; add --yes")
        runs = len(job_store.job_runs(name))
        click.confirm(f"Forget {name} and its {counted(runs, 'run')}?", abort=True, err=True)
    footprint = runs_footprint(job_store.job_memory(name).runs, load_config().tariff)
    summary = job_store.forget_job(name)
    if as_json:
        print_json({"forgotten": summary_document(summary, footprint)})
    else:
        console().print(f"forgot {name} ({counted(summary.runs, 'run')})", markup=False, soft_wrap=True)


def _check_plot(plot: Path | None) -> None:
    if plot is not None and plot.suffix not in (".html", ".svg"):
        raise InputError(f"cannot plot to {plot}", hint="name a file that ends with .html or .svg")
    check_writable(plot)


def _write_plot(plot: Path, found: tuple[JobView, ...], searcher: str, tariff: Tariff) -> None:
    from wattune.levels.job.view.page import job_file

    if not found:
        raise InputError("there is nothing to plot yet", hint="run the job first: wattune job run NAME -- COMMAND")
    made = made_line()
    write_text(plot, job_file(found[0], searcher=searcher, made=made, suffix=plot.suffix, tariff=tariff))
