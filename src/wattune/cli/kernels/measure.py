"""`wattune kernels measure`: trials of the partitions of a model, by ranks of a program or computed, into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.kernels.model import ModelOptions, model_options
from wattune.cli.kernels.plan import epsilon_of, search_options
from wattune.cli.output import (
    FILE,
    check_writable,
    json_option,
    marked,
    print_error,
    print_json,
    print_line,
    trust_lines,
)
from wattune.core.errors import DeviceError, InputError, StoreError

if TYPE_CHECKING:
    from wattune.cli.kernels.ranks import RankRun
    from wattune.cli.kernels.searching import SearchOptions
    from wattune.levels.overlap.partitions import PartitionedModel
    from wattune.levels.overlap.view.kernel_report import SearchedKernels


@click.command(
    "measure",
    short_help="Measure the partitions of a model into a file of trials.",
    context_settings={"allow_interspersed_args": False},
)
@model_options
@search_options
@click.option("--device", help="GPUs of the ranks: nvml, or sim:a100-40gb for each its own.  [default: the setting]")
@click.option("--trials", type=FILE, required=True, help="Append every trial (JSON lines), and go on from there.")
@click.option("--no-passes", is_flag=True, help="Do not measure whole passes, which calibrate plans.")
@click.option("--no-store", is_flag=True, help="Do not store the trials of ranks in the history.")
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
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
    device: str | None,
    trials: Path,
    no_passes: bool,
    no_store: bool,
    as_json: bool,
    command_line: tuple[str, ...],
) -> int:
    """Make the trials that a search asks for; `wattune kernels plan --trials FILE` plans from them.

    COMMAND is your program with all its ranks, such as `torchrun --nproc-per-node 8 train.py`. It calls
    `measured_if_asked` of wattune.integrations.overlap, which measures partitions and whole passes instead of training.
    Without a command the trials are computed for a simulated GPU (--device sim:a100-40gb).

    A run that was stopped or killed goes on where it was.
    """
    from wattune.cli.threads import one_thread_each

    with one_thread_each():
        from wattune.cli.kernels import ranks, searching
        from wattune.levels.overlap.trial_file import MeasureRequest, layout_text

    check_writable(trials)
    options = ModelOptions(
        name=name,
        tp=tp,
        cp=cp,
        sequence_parallel=sequence_parallel,
        microbatch_size=microbatch_size,
        sequence=sequence,
        nanobatches=nanobatches,
    )
    model = options.partitioned()
    rule = searching.SearchOptions(search=search, budget=budget, seed=seed, epsilon=epsilon_of(epsilon), trials=trials)
    if command_line:
        request = MeasureRequest(
            layout=layout_text(model),
            nanobatches=nanobatches,
            search=search,
            budget=budget,
            seed=seed,
            epsilon=rule.epsilon,
            passes=not no_passes,
            trials=str(trials.absolute()),
            device=device,
        )
        run = ranks.run_ranks(command_line, request, model, quiet=as_json)
        stored = no_store or _stored(run, trials)
        if run.exit_code:
            print_error(_failure(run, trials))
            return run.exit_code
        _show(ranks.searched_by_ranks(trials, run.header, model), rule, as_json=as_json)
        return 0 if stored else 1
    _show(_computed(model, device, rule), rule, as_json=as_json)
    return 0


def _computed(model: PartitionedModel, device: str | None, rule: SearchOptions) -> SearchedKernels:
    from wattune.cli.kernels import searching
    from wattune.config import load_config
    from wattune.physics.catalog import load_model

    device = load_config().device if device is None else device
    if device.partition(":")[0].strip().lower() != "sim":
        raise InputError(
            f"{device} needs a program to run partitions of {model.name}",
            hint="add it: -- torchrun --nproc-per-node 8 train.py; or compute trials with --device sim:a100-40gb",
        )
    return searching.searched_kernels(model, load_model(device), rule)


def _failure(run: RankRun, trials: Path) -> DeviceError:
    return DeviceError(
        f"the command ended with exit code {run.exit_code}; it added {len(run.trials)} trials to {trials}",
        hint="see above; the same command goes on from there",
    )


def _stored(run: RankRun, trials: Path) -> bool:
    """Store the trials, and return whether that worked; the file has them in any case."""
    from wattune.cli.kernels.ranks import keep_trials
    from wattune.config import load_config

    try:
        keep_trials(run, trials, load_config())
    except StoreError as error:
        print_error(error)
        return False
    return True


def _show(found: SearchedKernels, rule: SearchOptions, *, as_json: bool) -> None:
    from wattune.cli.kernels import output
    from wattune.levels.overlap.trial_file import layout_text

    if as_json:
        print_json(
            {
                **marked(found.simulated, found.gpu.name),
                "gpu": found.gpu.name,
                **output.search_document(found),
                "trials": rule.trials,
            }
        )
        return
    print_line(f"{layout_text(found.model)} on {found.gpu.name}{' (simulated)' if found.simulated else ''}")
    for line in trust_lines(found.simulated, found.gpu.name):
        print_line(line)
    output.show_partitions(found, rule)
    print_line(f"Plan with them: wattune kernels plan … --trials {rule.trials}")
