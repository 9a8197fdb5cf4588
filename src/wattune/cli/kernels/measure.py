"""`wattune kernels measure`: trials of the partitions of a model on a simulated GPU, into a file."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.kernels.model import ModelOptions, model_options
from wattune.cli.kernels.plan import epsilon_of, search_options
from wattune.cli.output import FILE, check_writable, json_option, print_json, print_line
from wattune.core.errors import NotSupported

SIMULATED = "sim:"


@click.command("measure", short_help="Measure the partitions of a model into a file of trials.")
@model_options
@search_options
@click.option("--device", required=True, help="A simulated GPU: sim:a100-40gb.")
@click.option("--trials", type=FILE, required=True, help="Append every trial (JSON lines), and go on from there.")
@json_option
def measure(
    name: str,
    tp: int,
    cp: int,
    sequence_parallel: bool,
    microbatch_size: int,
    sequence: int,
    nanobatches: int,
    search: str,
    budget: int | None,
    seed: int,
    epsilon: str,
    device: str,
    trials: Path,
    as_json: bool,
) -> None:
    """Make the trials that a search asks for on a simulated GPU; `wattune kernels plan --trials FILE` plans from them.

    A run that was stopped goes on where it was. Partitions on real GPUs run inside a job with all its ranks: a
    `TrialSession` of wattune.integrations.overlap writes the same file there.
    """
    from wattune.search.threads import one_thread_each

    with one_thread_each():
        from wattune.cli.kernels import output, searching
        from wattune.physics.catalog import load_model

    check_writable(trials)
    if not device.startswith(SIMULATED):
        raise NotSupported(
            f"{device} cannot run partitions of {name} alone",
            hint="measure them inside a job with TrialSession (docs/how-to/plan-kernels.md), or use sim:a100-40gb",
        )
    options = ModelOptions(
        name=name,
        tp=tp,
        cp=cp,
        sequence_parallel=sequence_parallel,
        microbatch_size=microbatch_size,
        sequence=sequence,
        nanobatches=nanobatches,
    )
    rule = searching.SearchOptions(search=search, budget=budget, seed=seed, epsilon=epsilon_of(epsilon), trials=trials)
    gpu = load_model(device.removeprefix(SIMULATED))
    found = searching.searched_kernels(options.partitioned(), gpu, rule)
    if as_json:
        print_json(
            {"simulated": not found.measured, "gpu": gpu.name, **output.search_document(found), "trials": trials}
        )
        return
    print_line(f"{name} on {gpu.name}{'' if found.measured else ' (simulated)'}")
    output.show_partitions(found, rule)
    print_line(f"Plan with them: wattune kernels plan … --trials {trials}")
