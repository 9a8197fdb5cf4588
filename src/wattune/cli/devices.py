"""`wattune devices`: the GPUs that can be used and what may be set on them."""

from __future__ import annotations

from typing import Any

import click

from wattune.api import surroundings
from wattune.cli.output import console, json_option, print_json
from wattune.config import load_config
from wattune.core.gpu_spec import GpuSpec
from wattune.devices.open import expand, nvml_names, open_gpus


@click.command()
@click.option(
    "--device", "devices", multiple=True, help="Only this one: nvml:0, sim:a100, table:FILE.csv … (repeatable)."
)
@json_option
def command(devices: tuple[str, ...], as_json: bool) -> None:
    """List the GPUs that can be used and what may be set on them.

    Without --device: every visible NVIDIA GPU, then the simulated ones that this version knows.
    """
    around = surroundings(load_config())
    names = expand(devices, around) if devices else (*nvml_names(around), *_simulated_names())
    rows: list[tuple[str, GpuSpec]] = []
    for name in names:
        with open_gpus((name,), around) as gpus:
            rows.append((name, gpus[0].spec))
    if as_json:
        print_json({"devices": [_document(name, spec) for name, spec in rows]})
        return
    _show(rows)


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

    table = Table(
        "device", "name", "core clock MHz", "memory clock MHz", "power limit W", "sensor", box=None, pad_edge=False
    )
    for name, spec in rows:
        table.add_row(name, spec.label, _clocks(spec), _mem_clocks(spec), _limits(spec), _sensor(spec))
    console().print(table)


def _clocks(spec: GpuSpec) -> str:
    clocks = spec.sm_clocks_mhz
    return f"{clocks[0]}–{clocks[-1]} ({len(clocks)})" if clocks else "not settable"


def _mem_clocks(spec: GpuSpec) -> str:
    clocks = ", ".join(str(mhz) for mhz in spec.mem_clocks_mhz)
    return clocks if spec.can_lock_mem or not clocks else f"{clocks} (fixed)"


def _limits(spec: GpuSpec) -> str:
    limits = spec.power_limits
    return f"{limits.min_w:g}–{limits.max_w:g}, default {limits.default_w:g}" if limits else "not settable"


def _sensor(spec: GpuSpec) -> str:
    period_s = spec.sensors.power_period_s
    return f"every {period_s * 1000:g} ms" if period_s else "unknown"
