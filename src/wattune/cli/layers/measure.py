"""`wattune layers measure`: time and energy of each layer of a network at a few settings of a GPU, as a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.layers.network import called_model, check_model, is_file_model, layers_of, network_options
from wattune.cli.output import (
    FILE,
    check_writable,
    json_option,
    marked,
    print_json,
    print_line,
    progress_bar,
    trust_lines,
    write_text,
)

if TYPE_CHECKING:
    from wattune.core.setting import Setting
    from wattune.devices.gpu import Gpu
    from wattune.levels.layer.profiling import LayerProgress


_LOOK_S = 5.0
"""How long a step is played before its clock is read, in virtual time."""


_LEAST = 0.4
"""Lowest core clock that is measured, as a share of the highest: below it hardly a layer saves anything."""


@click.command("measure", short_help="Measure the layers of a network at a few settings of a GPU.")
@network_options
@click.option("--device", help="The GPU: auto, nvml:0, sim:a4000 …")
@click.option(
    "--settings", "count", type=click.IntRange(1, 1000), default=10, show_default=True, help="Settings to measure."
)
@click.option("--error", default="1%", show_default=True, metavar="SHARE", help="Largest error of an energy.")
@click.option("--resume", type=FILE, help="Append what was measured, and go on from there after an interruption.")
@click.option("--out", type=FILE, required=True, help="Write layer,sm_mhz,mem_mhz,time_s,energy_j as CSV.")
@json_option
def measure(
    name: str,
    batch: int | None,
    precision: str | None,
    device: str | None,
    count: int,
    error: str,
    resume: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Measure each layer, forward and backward, at the settings that say most about all others.

    A layer runs so often in a row that the energy counter resolves it, at the temperature at which the whole step
    settles. `wattune layers plan --table FILE --transfer` plans with the result. A network by name runs on a simulated
    GPU only; a real GPU runs your own PyTorch model.
    """
    from wattune.cli.gpus import open_gpu
    from wattune.cli.layers.plan import share_of

    for path in (out, resume):
        check_writable(path)
    largest = share_of("--error", error)
    check_model(name, batch_size=batch, precision=precision)
    with open_gpu(device) as gpu:
        settings = chosen_settings(gpu, count, highest_mhz=_reached_mhz(gpu, name, batch, precision))
        with progress_bar() as show:

            def on_cell(seen: LayerProgress) -> None:
                show(seen.cell.layer, seen.done, seen.total)

            text = _table(
                name, gpu, settings, batch=batch, precision=precision, error=largest, file=resume, on_cell=on_cell
            )
        label, simulated = gpu.spec.label, gpu.spec.simulated
    write_text(out, text)
    layers = (len(text.splitlines()) - 1) // len(settings)
    if as_json:
        counts = {"layers": layers, "settings": len(settings), "measurements": layers * len(settings)}
        print_json({**marked(simulated, label), "gpu": label, **counts, "out": out})
        return
    for line in trust_lines(simulated, label):
        print_line(line)
    print_line(f"{layers} layers at {len(settings)} settings of {label} written to {out}")
    print_line(f"Plan with it: wattune layers plan --model {name} --gpu NAME --table {out} --transfer")


def _reached_mhz(gpu: Gpu, name: str, batch: int | None, precision: str | None) -> float | None:
    """Return the clock that the whole step reaches under the power limit; None where that takes a program to see."""
    from wattune.devices.gpu import PlaysWorkloads

    if not isinstance(gpu, PlaysWorkloads):
        return None
    gpu.play(layers_of(name, batch_size=batch, precision=precision))
    gpu.wait(_LOOK_S)
    return gpu.read().sm_mhz


def chosen_settings(gpu: Gpu, count: int, *, highest_mhz: float | None = None) -> tuple[Setting, ...]:
    """Choose the default and the settings that say most about all others, none above a clock that is not reached.

    Layers that are measured alone meet the power limit at other clocks than the step does; where that can happen, the
    highest clock of the step stands for the default.
    """
    from wattune.core.errors import NotSupported
    from wattune.core.setting import DRIVER_DEFAULT
    from wattune.levels.layer.transfer import columns_to_measure
    from wattune.response.points import candidates_of

    spec = gpu.spec
    most_mhz = spec.sm_clocks_mhz[-1] if highest_mhz is None and spec.sm_clocks_mhz else highest_mhz or 0
    found = [setting for setting in candidates_of(spec) if _LEAST * most_mhz <= (setting.sm_mhz or 0) <= most_mhz]
    if not found or not spec.mem_clocks_mhz:
        raise NotSupported(f"{spec.label} does not let its clocks be set", hint="choose a GPU whose clocks can be set")
    clocks = [(setting.sm_mhz or 0, setting.mem_mhz or spec.mem_clocks_mhz[0]) for setting in found]
    top = max(range(len(clocks)), key=lambda place: (clocks[place][1], clocks[place][0]))
    first = DRIVER_DEFAULT if clocks[top][0] == spec.sm_clocks_mhz[-1] else found[top]
    rest = columns_to_measure(clocks, min(count - 1, len(clocks))) if count > 1 else ()
    return tuple(dict.fromkeys((first, *(found[place] for place in rest))))


def _table(
    name: str,
    gpu: Gpu,
    settings: tuple[Setting, ...],
    *,
    batch: int | None,
    precision: str | None,
    error: float,
    file: Path | None,
    on_cell: Callable[[LayerProgress], None],
) -> str:
    """Measure described layers on a GPU that runs them by itself, else the PyTorch model on a real one."""
    from wattune.core.errors import InputError
    from wattune.levels.layer.profiling import RunsWork, TracedLayers, measure_cells
    from wattune.levels.layer.table_file import table_text

    if isinstance(gpu, RunsWork):
        workload = layers_of(name, batch_size=batch, precision=precision)
        runner = TracedLayers(gpu, workload)
        found = measure_cells(
            gpu, runner, settings, workload=workload.name, precision=error, file=file, progress=on_cell
        )
        return table_text(found.cells, simulated=gpu.spec.simulated)
    if not is_file_model(name):
        raise InputError(
            f"{gpu.spec.label} runs programs, and {name} is only a description", hint="give --model FILE.py:FUNCTION"
        )
    from wattune.integrations.torch.layers import measure_layers

    model, inputs = called_model(name)
    return measure_layers(model, inputs, gpu, settings, file=file, precision=error, progress=on_cell).csv
