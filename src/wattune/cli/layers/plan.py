"""`wattune layers plan`: whether other clocks for some layers save energy on a GPU, and the plan that saves most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.layers.network import gpu_option, is_file_model, layers_of, network_options
from wattune.cli.output import (
    FILE,
    check_writable,
    console,
    json_option,
    made_line,
    print_error,
    print_json,
    print_table,
    print_written,
    progress_bar,
    trust_lines,
    write_text,
)
from wattune.config import load_config
from wattune.core.errors import InputError, StoreError
from wattune.core.objective import parse_seconds, parse_share

if TYPE_CHECKING:
    from wattune.levels.layer.comparison import LayerComparison
    from wattune.levels.layer.source import LayerSource
    from wattune.levels.layer.switching import SwitchCost
    from wattune.levels.layer.view.result import PlannedLayers
    from wattune.physics.gpu_model import GpuModel

# Written out, because the planner is slow to import; a test compares them.
SCOPES = ("forward", "backward", "step")
STRATEGIES = ("single", "intensity", "exhaustive", "segments", "ideal")


@click.command("plan", short_help="Find out whether clocks per layer pay, and plan them.")
@network_options
@gpu_option
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
    from wattune.levels.layer.comparison import compare_strategies
    from wattune.levels.layer.plan_file import layer_plan_text
    from wattune.levels.layer.view.page import layers_page
    from wattune.levels.layer.view.result import PlannedLayers
    from wattune.render.page import render_page

    files = {"out": out, "html": html, "frontier_csv": csv_file}
    for path in files.values():
        check_writable(path)
    slowdown = share_of("--max-slowdown", max_slowdown)
    if table is None and transfer:
        raise InputError("--transfer needs measurements", hint="add --table FILE.csv")
    if table is not None:
        _check_table(strategy, all_reduce)
    with progress_bar("computing the layers") as on_step:
        source = _source(
            table,
            name,
            gpu,
            scope=scope,
            batch_size=batch,
            precision=precision,
            all_reduce=all_reduce,
            transfer=transfer,
        )
        switching, origin = _switching_of(source, latency=switch_latency, stall=switch_stall, dwell=min_dwell)
        found = compare_strategies(
            source.costs,
            switching,
            scope=scope,
            slowdown=slowdown,
            spread=source.model.change.sm.spread,
            roofline=source.roofline,
            on_step=on_step,
        )
    planned = PlannedLayers(
        found=found, source=source, strategy=strategy, switching_origin=origin, tariff=load_config().tariff
    )
    texts: dict[str, Callable[[], str]] = {
        "out": lambda: layer_plan_text(planned.plans_to_write),
        "html": lambda: render_page(layers_page(planned, made=made_line())),
        "frontier_csv": lambda: frontier_csv(found),
    }
    for kind, path in files.items():
        if path is not None:
            write_text(path, texts[kind]())
    if as_json:
        print_json({**planned.document, "all_reduce_gpus": all_reduce, **files})
    else:
        _show(planned)
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


def _source(
    table: Path | None,
    name: str,
    gpu: str,
    *,
    scope: str,
    batch_size: int | None,
    precision: str | None,
    all_reduce: int | None,
    transfer: bool,
) -> LayerSource:
    """Return the layers to plan: simulated, measured, or measured and predicted where the table has gaps."""
    from wattune.levels.layer.source import measured_layers, simulated_layers, transferred_layers
    from wattune.physics.catalog import load_model

    model = load_model(gpu)
    if table is not None and not transfer:
        return measured_layers(table, model, name, scope=scope, batch_size=batch_size, precision=precision)
    workload = layers_of(name, batch_size=batch_size, precision=precision)
    if table is not None:
        return transferred_layers(table, model, workload, scope=scope)
    traced_from = name if is_file_model(name) else None
    return simulated_layers(model, workload, scope=scope, all_reduce=all_reduce, traced_from=traced_from)


def _switching_of(
    source: LayerSource, *, latency: str | None, stall: str | None, dwell: float | None
) -> tuple[SwitchCost, str]:
    """Return the cost of switching and its origin: given, or else measured on such a GPU, or else the catalogue's."""
    from wattune.levels.layer.switching import SwitchCost

    known = SwitchCost.of(source.model.spec(), source.model.change)
    if latency is not None:
        cost, origin = known.at(_seconds("--switch-latency", latency)), "latency as given"
    else:
        cost, origin = _measured(source, known) or (known, _catalogue(source.model))
    if stall is not None:
        # A change of the memory clock never stalls shorter than one of the core clock.
        stall_s = _seconds("--switch-stall", stall)
        cost, origin = (
            replace(cost, sm_stall_s=stall_s, mem_stall_s=max(cost.mem_stall_s, stall_s)),
            f"{origin}, stall as given",
        )
    return (cost if dwell is None else replace(cost, dwell=dwell)), origin


def _seconds(option: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError:
        raise InputError(f"{option} {text}: not a time of 0 or more", hint=f"write for example {option} 10ms") from None


def _catalogue(model: GpuModel) -> str:
    if model.switching.sm_s is None:
        return "not known for this GPU and counted as slow; measure it: wattune layers switch-latency"
    return "from the catalogue"


def _measured(source: LayerSource, known: SwitchCost) -> tuple[SwitchCost, str] | None:
    """Return what `wattune layers switch-latency` measured on a real GPU of this model, else on a simulated one."""
    from wattune.levels.layer.switch_latency import KIND, latest_switching
    from wattune.store.worker import StoreWorker

    try:
        runs = StoreWorker(load_config().store_url).call(lambda store: store.runs(kind=KIND))
    except StoreError as error:
        print_error(error, kind="warning")
        return None
    spec = source.model.spec()
    real = latest_switching(runs, replace(spec, simulated=False), known=known)
    if real is not None:
        return real, "measured on such a GPU"
    found = latest_switching(runs, spec, known=known) if source.costs.simulated else None
    return None if found is None else (found, "measured on the simulated GPU")


def frontier_csv(found: LayerComparison) -> str:
    """Return the frontier of every strategy as CSV, fastest first."""
    from wattune.core.csv_input import csv_text
    from wattune.levels.layer.switching import switches_of

    rows = [
        (plans.name, trial.cost.time_s, trial.cost.energy_j, switches_of(trial.choice))
        for plans in found.strategies
        for trial in plans.frontier
    ]
    return csv_text([("strategy", "time_s", "energy_j", "switches"), *rows])


def _show(planned: PlannedLayers) -> None:
    """Print the verdict, the plan of each strategy, their frontiers, and what was assumed."""
    from wattune.levels.layer.view.charts import strategies_chart
    from wattune.levels.layer.view.page import strategy_table
    from wattune.levels.layer.view.result import PAYING, verdict_sentence
    from wattune.render.quantity import footprint_words
    from wattune.render.terminal_graph import draw_chart, legend

    found, costs, screen = planned.found, planned.found.costs, console()

    def say(text: str, style: str | None = None) -> None:
        screen.print(text, style=style, markup=False, soft_wrap=not screen.is_terminal)

    say(verdict_sentence(found), "bold")
    for line in trust_lines(costs.simulated, costs.gpu):
        say(line)
    label = " (simulated)" if costs.simulated else ""
    say(f"The better of one setting and segments saves {footprint_words(planned.saved)} per 1,000 GPU-hours{label}.")
    table, chart = strategy_table(found), strategies_chart(found)
    say(f"\n{table.title}:", "dim")
    print_table(table, left_out=(1,), whole=(2,))
    screen.print()
    screen.print(draw_chart(chart, width=min(screen.width, 100), height=14))
    screen.print(legend(chart))
    say(f"energy over time against the default; {chart.subtitle}\n", "dim")
    say(f"layers: {len(costs.names)} at {len(costs.settings)} settings, {planned.source.origin}", "dim")
    say(f"switching: {planned.switching_words}", "dim")
    say(PAYING, "dim")
