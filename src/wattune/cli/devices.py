"""`wattune devices`: list the GPUs that can be used and what may be set on them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import console, json_option, print_error, print_json, print_line, print_table
from wattune.config import load_config
from wattune.core.codec import to_json
from wattune.core.errors import DeviceError

if TYPE_CHECKING:
    from wattune.core.gpu_spec import GpuSpec
    from wattune.render.table import Table


_ALL = "all"
"""What --catalog shows where it names no GPU."""


@click.command()
@click.option(
    "--device", "devices", multiple=True, help="Show only this GPU: nvml:0, sim:a100, table:FILE.csv … (repeatable)."
)
@click.option("--simulated", "with_simulated", is_flag=True, help="List the simulated GPUs in full too.")
@click.option(
    "--catalog",
    is_flag=False,
    flag_value=_ALL,
    metavar="[NAME]",
    help="Show the simulated GPUs and how well each is known; with NAME, every value of that GPU with its source.",
)
@json_option
def command(devices: tuple[str, ...], with_simulated: bool, catalog: str | None, as_json: bool) -> int:
    """List the GPUs that can be used and what may be set on them.

    Without --device: every visible NVIDIA GPU, then the names of the simulated ones; --simulated lists these in full.
    --json prints more, such as every clock and how often the sensors refresh.
    """
    from wattune.api import surroundings
    from wattune.devices.open import expand, nvml_names, open_gpus
    from wattune.physics.catalog import catalog_names

    if catalog is not None:
        if devices or with_simulated:
            other = "--device" if devices else "--simulated"
            raise click.UsageError(f"--catalog and {other} cannot be used together")
        _show_catalog(catalog, as_json=as_json)
        return 0
    around = surroundings(load_config())
    simulated = tuple(f"sim:{name}" for name in catalog_names())
    in_full = simulated if with_simulated or as_json else ()
    rows: list[tuple[str, GpuSpec]] = []
    failures: list[DeviceError] = []
    try:
        names = expand(devices, around) if devices else (*nvml_names(around), *in_full)
    except DeviceError as error:  # a driver that fails must not hide the simulated GPUs
        names = () if devices else in_full
        failures.append(error)
    for name in names:
        try:
            with open_gpus((name,), around) as gpus:
                rows.append((name, gpus[0].spec))
        except DeviceError as error:  # one GPU that is lost must not hide the others
            failures.append(error)
    if as_json:
        print_json({"devices": [{"device": name} | to_json(spec) | {"name": spec.label} for name, spec in rows]})
    else:
        _show(rows, simulated=() if devices or with_simulated else simulated, driver=not failures)
    for failure in failures:
        print_error(failure)
    return 1 if failures else 0


def _show(rows: list[tuple[str, GpuSpec]], *, simulated: tuple[str, ...], driver: bool) -> None:
    """Print a row per GPU, and the simulated GPUs that have none by name."""
    if rows:
        print_table(_table(rows), whole=(2, 3, 4), gap=1)
    elif simulated and driver:
        print_line("no NVIDIA GPU was found: commands use a simulated one (see `wattune doctor`)")
    if simulated:
        print_line("")
        console().print(f"simulated GPUs: {', '.join(simulated)}", markup=False)
        print_line("wattune devices --simulated lists them in full", style="dim")


def _table(rows: list[tuple[str, GpuSpec]]) -> Table:
    """Return a row per GPU, in eighty columns; longer names wrap, and the details are in the JSON."""
    from wattune.render.table import Table

    cells = []
    for name, spec in rows:
        clocks, limits = spec.sm_clocks_mhz, spec.power_limits
        core = _span(clocks[0], clocks[-1]) if clocks else "driver's"
        limit = _span(limits.min_w, limits.max_w) if limits else "driver's"
        cells.append((name, _short_label(spec), core, _mem_clocks(spec), limit))
    return Table("GPUs", ("device", "name", "core MHz", "memory MHz", "limit W"), tuple(cells), words=5)


def _short_label(spec: GpuSpec) -> str:
    return spec.label.removeprefix("NVIDIA ")


def _mem_clocks(spec: GpuSpec) -> str:
    clocks = spec.mem_clocks_mhz
    if not clocks:
        return "driver's"
    return _span(clocks[-1], clocks[0]) if spec.can_lock_mem else f"{clocks[0]} fixed"


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def _show_catalog(name: str, *, as_json: bool) -> None:
    """Print every value of one GPU, or a summary of all."""
    from wattune.physics.catalog import catalog_names, load_model

    keys = catalog_names() if name == _ALL else (load_model(name).key,)
    if as_json:
        print_json({"simulated": True, "catalogue": [_catalog_document(key) for key in keys]})
    elif name == _ALL:
        _show_all(keys)
    else:
        _show_values(keys[0])


def _catalog_document(key: str) -> dict[str, Any]:
    from wattune.physics.catalog import load_model, load_sheet, sources

    spec = load_model(key).spec()
    return {
        "device": f"sim:{key}",
        "name": spec.label,
        "architecture": spec.architecture,
        "trust": to_json(load_sheet(key).trust),
        "values": list(sources(key)),
    }


def _show_all(keys: tuple[str, ...]) -> None:
    from wattune.physics.catalog import load_model, sources
    from wattune.physics.catalog.sheet import MARKS
    from wattune.render.table import Table

    rows = []
    for key in keys:
        marks = Counter(value.mark for value in sources(key))
        rows.append((f"sim:{key}", _short_label(load_model(key).spec()), *(str(marks[mark]) for mark in MARKS)))
    print_table(Table("simulated GPUs", ("device", "name", *MARKS), tuple(rows), words=2), gap=1)
    print_line("How many values of each simulated GPU are measured, published and estimated.")
    print_line("wattune devices --catalog NAME shows them with their sources.")


def _show_values(key: str) -> None:
    from wattune.physics.catalog import load_model, load_sheet, sources
    from wattune.render.table import Table

    trust = load_sheet(key).trust
    print_line(f"sim:{key}, {load_model(key).spec().label}")
    print_line(f"{trust.words}. {trust.text}")
    rows = tuple((value.key, _text(value.value), value.mark, value.source) for value in sources(key))
    print_table(Table("values", ("what", "value", "mark", "source"), rows, words=4), whole=(0, 2), gap=1)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
