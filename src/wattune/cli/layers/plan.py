"""`wattune layers plan`: whether other clocks for some layers save energy on a GPU, and the plan that saves most."""

from __future__ import annotations

from pathlib import Path

import click

from wattune.cli.layers.network import network_options
from wattune.cli.output import FILE, check_writable, json_option, print_json, print_written, progress_bar
from wattune.core.errors import InputError
from wattune.core.objective import parse_share

# Written out, because the planner is slow to import; a test compares them.
SCOPES = ("forward", "backward", "step")
STRATEGIES = ("single", "intensity", "exhaustive", "segments", "ideal")


@click.command("plan", short_help="Find out whether clocks per layer pay, and plan them.")
@network_options
@click.option("--scope", type=click.Choice(SCOPES), default="step", show_default=True, help="The pass to plan.")
@click.option("--all-reduce", type=click.IntRange(min=2), metavar="N", help="Sum the gradients over N GPUs.")
@click.option("--switch-latency", metavar="TIME", help="From request to clock: 10ms.  [default: measured or known]")
@click.option("--switch-stall", metavar="TIME", help="Time without kernels per change: 0.1ms.")
@click.option(
    "--min-dwell", type=click.FloatRange(min=1), help="Least length of a segment, in latencies.  [default: 5]"
)
@click.option(
    "--max-slowdown", metavar="SHARE", default="5%", show_default=True, help="How much longer a step may take."
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="segments",
    show_default=True,
    help="Whose plan to write and draw.",
)
@click.option("--table", type=FILE, help="Measured layers: layer,sm_mhz,mem_mhz,time_s,energy_j.")
@click.option("--transfer", is_flag=True, help="Predict what the table lacks, at all settings of the GPU.")
@click.option("--html", type=FILE, help="Write a page with frontiers, clocks and rooflines.")
@click.option("--frontier-csv", "csv_file", type=FILE, help="Write the frontier of every strategy as CSV.")
@click.option("--out", type=FILE, help="Write the plan file (JSON).")
@json_option
def plan(
    name: str,
    batch: int | None,
    precision: str | None,
    gpu: str,
    scope: str,
    all_reduce: int | None,
    switch_latency: str | None,
    switch_stall: str | None,
    min_dwell: float | None,
    max_slowdown: str,
    strategy: str,
    table: Path | None,
    transfer: bool,
    html: Path | None,
    csv_file: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Plan a core and a memory clock for each layer of a network, and find out whether changing clocks pays.

    Five strategies are compared within --max-slowdown: one setting for all layers (single), the clock that does not
    limit a layer lowered (intensity), each layer's own best (exhaustive), the best segments with the cost of switching
    in the choice (segments), and the same if switching were free (ideal: an upper bound). Layers are simulated on a GPU
    of the catalogue, or measured (--table, from `wattune layers measure` or your own).
    """
    from wattune.cli.layers import output, source
    from wattune.levels.layer.comparison import compare_strategies

    files = {"out": out, "html": html, "frontier_csv": csv_file}
    for path in files.values():
        check_writable(path)
    slowdown = share_of("--max-slowdown", max_slowdown)
    with progress_bar("computing the layers") as on_step:
        if table is None:
            if transfer:
                raise InputError("--transfer needs measurements", hint="add --table FILE.csv")
            layers = source.simulated_layers(
                name, gpu, scope=scope, batch_size=batch, precision=precision, all_reduce=all_reduce
            )
        else:
            _check_table(strategy, all_reduce)
            read = source.transferred_layers if transfer else source.measured_layers
            layers = read(table, name, gpu, scope=scope, batch_size=batch, precision=precision)
        switching, origin = source.switching_of(layers, latency=switch_latency, stall=switch_stall, dwell=min_dwell)
        found = compare_strategies(
            layers.costs,
            switching,
            scope=scope,
            slowdown=slowdown,
            spread=layers.model.change.sm.spread,
            roofline=layers.roofline,
            on_step=on_step,
        )
    result = output.PlannedLayers(found, layers, strategy, origin)
    result.write(files)
    if as_json:
        print_json({**result.document(), "all_reduce_gpus": all_reduce, **files})
    else:
        result.show()
        print_written(*files.values())


def share_of(option: str, text: str) -> float:
    """Parse the share of an option."""
    try:
        return parse_share(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no share", hint=f"write for example {option} 5%") from None


def _check_table(strategy: str, all_reduce: int | None) -> None:
    """Refuse what a table of measurements does not allow."""
    if strategy == "intensity":
        raise InputError("intensity needs the work of each layer", hint="leave out --table, or choose another strategy")
    if all_reduce is not None:
        raise InputError("--all-reduce is for simulated layers", hint="measure it as a layer of the table")
