"""`wattune devices`: the GPUs that can be used and what may be set on them."""

from __future__ import annotations

from typing import Any

import click

from wattune.api import surroundings
from wattune.cli.output import console, json_option, print_json
from wattune.config import load_config
from wattune.core.errors import DeviceError
from wattune.core.gpu_spec import GpuSpec
from wattune.devices.open import expand, nvml_names, open_gpus


@click.command()
@click.option(
    "--device", "devices", multiple=True, help="Only this one: nvml:0, sim:a100, table:FILE.csv … (repeatable)."
)
@click.option(
    "--catalog",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Show the simulated GPUs instead: how well each is known; of one, every value with its source.",
)
@json_option
def command(devices: tuple[str, ...], catalog: str | None, as_json: bool) -> int:
    """List the GPUs that can be used and what may be set on them.

    Without --device: every visible NVIDIA GPU, then the simulated ones that this version knows. --json tells
    more, such as every clock and how often the sensors refresh.
    """
    if catalog is not None:
        return _catalog(catalog, devices, as_json)
    around = surroundings(load_config())
    names = expand(devices, around) if devices else (*nvml_names(around), *_simulated_names())
    rows: list[tuple[str, GpuSpec]] = []
    failures: list[DeviceError] = []
    for name in names:
        try:
            with open_gpus((name,), around) as gpus:
                rows.append((name, gpus[0].spec))
        except DeviceError as error:  # one GPU that is lost must not hide the others
            failures.append(error)
    if as_json:
        print_json({"devices": [_document(name, spec) for name, spec in rows]})
    elif rows:
        _show(rows)
    for failure in failures:
        click.echo(f"error: {failure.message}\nhint: {failure.hint}", err=True)
    return 1 if failures else 0


def _catalog(name: str, devices: tuple[str, ...], as_json: bool) -> int:
    from wattune.cli.catalog_output import show_catalog

    if devices:
        raise click.UsageError("--catalog and --device exclude each other")
    show_catalog(name.removeprefix("sim:"), as_json=as_json)
    return 0


def _simulated_names() -> tuple[str, ...]:
    from wattune.physics.catalog import catalog_names

    return tuple(f"sim:{name}" for name in catalog_names())


def _document(name: str, spec: GpuSpec) -> dict[str, Any]:
    return {
        "device": name,
        "name": spec.label,
        "uuid": spec.uuid,
        "simulated": spec.simulated,
        "architecture": spec.architecture,
        "clocks": [{"mem_mhz": table.mem_mhz, "sm_mhz": table.sm_mhz} for table in spec.clocks],
        "power_limits": spec.power_limits,
        "can_lock_mem": spec.can_lock_mem,
        "sensors": spec.sensors,
        "switching": spec.switching,
    }


def _show(rows: list[tuple[str, GpuSpec]]) -> None:
    from rich.table import Table

    # Eighty columns hold all of this; what is longer goes on in the next line, and the details are in the JSON.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("device", "name", "core MHz", "memory MHz", "limit W"):
        table.add_column(head, no_wrap=head not in ("device", "name"), overflow="fold")
    for name, spec in rows:
        label = spec.label.removeprefix("NVIDIA ")
        table.add_row(name, label, _clocks(spec), _mem_clocks(spec), _limits(spec))
    console().print(table)


def _clocks(spec: GpuSpec) -> str:
    clocks = spec.sm_clocks_mhz
    return _span(clocks[0], clocks[-1]) if clocks else "driver's"


def _mem_clocks(spec: GpuSpec) -> str:
    clocks = spec.mem_clocks_mhz
    if not clocks:
        return "driver's"
    return _span(clocks[-1], clocks[0]) if spec.can_lock_mem else f"{clocks[0]} fixed"


def _limits(spec: GpuSpec) -> str:
    limits = spec.power_limits
    return _span(limits.min_w, limits.max_w) if limits else "driver's"


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"
