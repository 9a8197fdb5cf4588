"""`wattune layers roofline`: what each layer asks of a GPU, and what limits it at two pairs of clocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.layers.network import gpu_option, layers_of, network_options
from wattune.cli.output import (
    FILE,
    check_writable,
    console,
    json_option,
    marked,
    print_json,
    print_line,
    print_table,
    print_written,
    trust_lines,
    write_text,
)
from wattune.core.errors import InputError

if TYPE_CHECKING:
    from wattune.core.workload import Workload
    from wattune.levels.layer.view.roofline import LayersAt
    from wattune.physics.gpu_model import GpuModel

MOST_ROWS = 20
"""Layers in the table on the screen; files and JSON have all."""
WIDE, MIDDLE = 110, 96
"""Columns of a terminal from which on the table has the ridge and the share of time too; operations and bytes."""


@click.command("roofline", short_help="Show what limits each layer at two pairs of clocks.")
@network_options
@gpu_option
@click.option("--clocks", metavar="CORE,MEMORY", help="The second pair, in MHz.  [default: a lower one]")
@click.option("--svg", type=FILE, help="Write the two rooflines as SVG.")
@click.option("--html", type=FILE, help="Write a page with the rooflines and every layer.")
@json_option
def roofline(
    name: str,
    batch: int | None,
    precision: str | None,
    gpu: str,
    clocks: str | None,
    svg: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show operations, bytes and arithmetic intensity of each layer, and whether compute or memory limits it.

    The first pair of clocks is that of the driver under this load, the second is given with --clocks. All figures are
    computed from the catalogue: simulated.
    """
    from wattune.levels.layer.source import precision_of
    from wattune.levels.layer.view.roofline import roofline_charts
    from wattune.physics.catalog import load_model
    from wattune.render.svg import beside

    for path in (svg, html):
        check_writable(path)
    model, workload = load_model(gpu), layers_of(name, batch_size=batch, precision=precision)
    places = places_of(model, workload, clocks)
    if svg is not None:
        write_text(svg, beside(roofline_charts(places, simulated=True)))
    if html is not None:
        write_text(html, _page(places, workload=workload.name, gpu=model.name))
    if as_json:
        print_json({**_document(places, model, workload), "svg": svg, "html": html})
        return
    print_line(f"{workload.name} ({precision_of(workload)}) on {model.spec().label}", style="bold")
    for line in trust_lines(True, model.name):
        print_line(line)
    _show(places)
    print_written(svg, html)


def _page(places: Sequence[LayersAt], *, workload: str, gpu: str) -> str:
    from wattune.cli.output import made_line
    from wattune.levels.layer.view.page import roofline_page
    from wattune.render.page import render_page

    return render_page(roofline_page(places, workload=workload, gpu=gpu, made=made_line()))


def places_of(model: GpuModel, workload: Workload, clocks: str | None) -> tuple[LayersAt, ...]:
    """Return the layers at the driver's clocks and at a second pair."""
    from wattune.levels.layer.costs import simulated_costs
    from wattune.levels.layer.view.roofline import LayersAt, lower_pair

    pairs = simulated_costs(model, workload).clocks_mhz
    second = lower_pair(pairs) if clocks is None else _parsed(model, clocks)
    return tuple(LayersAt.of(model, workload, pair) for pair in (pairs[0], second))


def _parsed(model: GpuModel, text: str) -> tuple[int, int]:
    core, comma, memory = text.partition(",")
    try:
        pair = int(core), int(memory) if comma else model.default_mem_mhz
    except ValueError:
        raise InputError(f"{text!r} is not a pair of clocks", hint="write for example --clocks 1350,5001") from None
    from wattune.core.setting import Setting

    # The default memory clock holds without being set, which not every GPU allows.
    model.spec().check(Setting(pair[0], pair[1] if pair[1] != model.default_mem_mhz else None))
    return pair


def _document(places: Sequence[LayersAt], model: GpuModel, workload: Workload) -> dict[str, Any]:
    from wattune.levels.layer.source import precision_of

    return {
        **marked(True, model.name),
        "model": workload.name,
        "batch_size": workload.batch_size,
        "precision": precision_of(workload),
        "gpu": model.name,
        "settings": [
            {
                "sm_mhz": place.roofline.sm_mhz,
                "mem_mhz": place.roofline.mem_mhz,
                "bytes_per_s": place.roofline.bytes_per_s,
                "flops_per_s": {pipe.value: place.roofline.flops_per_s[pipe] for pipe in place.pipes},
                "ridge": {pipe.value: place.roofline.ridge(pipe) for pipe in place.pipes},
            }
            for place in places
        ],
        "layers": [_layer_document(places, row) for row in range(len(places[0].layers))],
    }


def _layer_document(places: Sequence[LayersAt], row: int) -> dict[str, Any]:
    phase = places[0].layers[row].phase
    return {
        "layer": phase.name,
        "flops": phase.flops,
        "dram_bytes": phase.dram_bytes,
        "intensity": phase.flops / phase.dram_bytes if phase.dram_bytes else None,
        "precision": phase.pipe.value,
        "at": [{"time_s": place.layers[row].time_s, "limit": place.layers[row].limit.value} for place in places],
    }


def _show(places: Sequence[LayersAt]) -> None:
    from wattune.levels.layer.view.page import layer_table
    from wattune.levels.layer.view.roofline import limit_words

    table = layer_table(places, most=MOST_ROWS)
    for place in places:
        ridges = ", ".join(f"{place.roofline.ridge(pipe):.1f} ({pipe.value})" for pipe in place.pipes)
        print_line(f"{limit_words(place)}; ridge {ridges} FLOP/byte")
    print_line("")
    print_line(f"{table.title}:")
    width, columns = console().width, len(table.head)
    left_out = () if width >= WIDE else (columns - 2, columns - 1)
    if width < MIDDLE:  # the name of a layer would be broken; FLOP/byte remains
        left_out = (columns - 6, columns - 5, *left_out)
    print_table(table, left_out=left_out, whole=range(1, columns))
